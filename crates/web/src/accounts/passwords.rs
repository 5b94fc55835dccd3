//! Passwords and secrets, of which only hashes are stored.

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use rand::Rng;
use ring::digest::{SHA256, digest};

/// Minimum number of characters of a password.
const MIN_CHARS: usize = 8;
/// Maximum number of bytes of a password, which bounds the time to hash it.
const MAX_BYTES: usize = 1_024;

/// A password that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// Too short or too long.
    #[error("password: expected {MIN_CHARS} characters or more, and at most {MAX_BYTES} bytes")]
    Length,
    /// It could not be hashed.
    #[error("password: {0}")]
    Hash(String),
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Returns `N` random bytes in hex.
pub(super) fn random_hex<const N: usize>() -> String {
    let mut bytes = [0u8; N];
    rand::rng().fill_bytes(&mut bytes);
    hex(&bytes)
}

/// Returns SHA-256 in hex. A token has 256 random bits, so a fast hash is enough for it.
pub(super) fn fast_hash(token: &str) -> String {
    hex(digest(&SHA256, token.as_bytes()).as_ref())
}

/// Returns a random password.
pub(super) fn random_password() -> String {
    // No letters that look alike, such as l and 1.
    const LETTERS: &[u8] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0u8; 16];
    rand::rng().fill_bytes(&mut bytes);
    let letters: String = bytes
        .iter()
        .map(|b| char::from(LETTERS[usize::from(*b) % 32]))
        .collect();
    format!(
        "{}-{}-{}-{}",
        &letters[..4],
        &letters[4..8],
        &letters[8..12],
        &letters[12..]
    )
}

/// Checks the length of a password.
///
/// # Errors
/// When it is too short or too long.
pub(super) fn check_length(password: &str) -> Result<(), PasswordError> {
    match password.chars().count() < MIN_CHARS || password.len() > MAX_BYTES {
        true => Err(PasswordError::Length),
        false => Ok(()),
    }
}

/// Returns the salted hash of a password, which is stored instead of it.
pub(super) fn slow_hash(password: &str) -> Result<String, PasswordError> {
    let hash = Argon2::default().hash_password(password.as_bytes());
    hash.map(|h| h.to_string())
        .map_err(|e| PasswordError::Hash(e.to_string()))
}

/// Whether the hash is that of the password. Takes as long without a hash, so that the time does not reveal which users
/// have a password.
pub(super) fn verify(password: &str, hash: Option<&str>) -> bool {
    // The hash of a random password that no user has.
    const DUMMY: &str = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$\
                         3nJ2ZkQ0Ovxr0y0nA3SVu3JZ4f0VSsDoQW1D1gqW9dE";
    if password.len() > MAX_BYTES {
        return false;
    }
    let stored = hash.unwrap_or(DUMMY);
    let verified = PasswordVerifier::<str>::verify_password(&Argon2::default(), password.as_bytes(), stored);
    verified.is_ok() && hash.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_password_matches_its_hash() {
        let password = random_password();
        let hash = slow_hash(&password).unwrap();
        assert!(hash.starts_with("$argon2id$") && !hash.contains(&password));
        assert!(verify(&password, Some(&hash)) && !verify("another one", Some(&hash)));
        assert!(!verify("", None) && !verify(&password, None) && !verify(&password, Some("nonsense")));
        assert_ne!(slow_hash(&password).unwrap(), hash, "salted");
        assert_eq!(check_length("short"), Err(PasswordError::Length));
        assert_eq!(check_length(&"x".repeat(2_000)), Err(PasswordError::Length));
        assert_eq!(check_length(&password), Ok(()));
    }
}
