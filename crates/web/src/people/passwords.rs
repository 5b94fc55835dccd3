//! Passwords and secrets: kept only as what cannot be turned back.

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use rand::Rng;
use ring::digest::{SHA256, digest};

/// The fewest characters of a password.
const SHORTEST: usize = 8;
/// The most bytes, so that hashing takes no longer than it should.
const LONGEST: usize = 1_024;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// So many random bytes in hex.
pub(super) fn random_hex<const N: usize>() -> String {
    let mut bytes = [0u8; N];
    rand::rng().fill_bytes(&mut bytes);
    hex(&bytes)
}

/// SHA-256 in hex. A token has 256 random bits, so a fast hash is enough for it.
pub(super) fn fast_hash(token: &str) -> String {
    hex(digest(&SHA256, token.as_bytes()).as_ref())
}

/// A password nobody chose.
pub(super) fn random_password() -> String {
    // No letters that look alike.
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

/// Checks that a password will do.
///
/// # Errors
/// Says what would.
pub(super) fn will_do(password: &str) -> Result<(), String> {
    if password.chars().count() < SHORTEST || password.len() > LONGEST {
        return Err(format!(
            "password: expected {SHORTEST} characters or more, and at most {LONGEST} bytes"
        ));
    }
    Ok(())
}

/// What is kept of a password.
pub(super) fn slow_hash(password: &str) -> Result<String, String> {
    let hash = Argon2::default().hash_password(password.as_bytes());
    hash.map(|h| h.to_string()).map_err(|e| format!("password: {e}"))
}

/// Whether this is the password. Takes as long where there is none, so that nobody learns who has one.
pub(super) fn fits(password: &str, kept: Option<&str>) -> bool {
    // Of a password nobody has.
    const NOBODYS: &str = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$\
                           3nJ2ZkQ0Ovxr0y0nA3SVu3JZ4f0VSsDoQW1D1gqW9dE";
    if password.len() > LONGEST {
        return false;
    }
    let hash = kept.unwrap_or(NOBODYS);
    let fits = PasswordVerifier::<str>::verify_password(&Argon2::default(), password.as_bytes(), hash);
    fits.is_ok() && kept.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_fits_and_it_is_not_kept() {
        let password = random_password();
        let kept = slow_hash(&password).unwrap();
        assert!(kept.starts_with("$argon2id$") && !kept.contains(&password));
        assert!(fits(&password, Some(&kept)) && !fits("another one", Some(&kept)));
        assert!(!fits("", None) && !fits(&password, None) && !fits(&password, Some("nonsense")));
        assert_ne!(slow_hash(&password).unwrap(), kept, "salted");
        assert!(
            will_do("short").is_err() && will_do(&"x".repeat(2_000)).is_err() && will_do(&password).is_ok()
        );
    }
}
