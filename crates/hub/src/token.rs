//! Join tokens: a secret, and the fingerprint of the certificate authority, by which a new node verifies the server before it
//! sends the secret.

use std::fmt;
use std::str::FromStr;

use rand::Rng;
use ring::digest::{SHA256, digest};

/// A join token: `SECRET.FINGERPRINT`, both in hex.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Sixteen random bytes, in hex.
    pub secret: String,
    /// The SHA-256 of the authority's certificate, in hex.
    pub fingerprint: String,
}

impl JoinToken {
    /// Generates a token for the authority with this fingerprint.
    pub fn generate(fingerprint: &str) -> Self {
        let mut bytes = [0u8; 16];
        rand::rng().fill_bytes(&mut bytes);
        Self {
            secret: bytes.iter().map(|b| format!("{b:02x}")).collect(),
            fingerprint: fingerprint.to_owned(),
        }
    }

    /// Returns whether this is the secret. Hashes are compared, so that the time does not reveal anything about it.
    pub fn has_secret(&self, secret: &str) -> bool {
        digest(&SHA256, self.secret.as_bytes()).as_ref() == digest(&SHA256, secret.as_bytes()).as_ref()
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.secret, self.fingerprint)
    }
}

impl fmt::Debug for JoinToken {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken(….{})", self.fingerprint)
    }
}

/// A text that is not a join token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid join token: expected 32 hex digits, a dot and 64 hex digits, as `dovetail server` prints it"
)]
pub struct InvalidToken;

impl FromStr for JoinToken {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let is_hex = |s: &str, digits: usize| s.len() == digits && s.bytes().all(|b| b.is_ascii_hexdigit());
        match text.trim().split_once('.') {
            Some((secret, fingerprint)) if is_hex(secret, 32) && is_hex(fingerprint, 64) => Ok(Self {
                secret: secret.to_owned(),
                fingerprint: fingerprint.to_ascii_lowercase(),
            }),
            _ => Err(InvalidToken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_parsed_as_it_is_printed_and_debug_output_has_no_secret() {
        let token = JoinToken::generate(&"ab".repeat(32));
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        assert!(token.has_secret(&token.secret));
        assert!(!token.has_secret("") && !token.has_secret(&"0".repeat(32)));
        assert!(!format!("{token:?}").contains(&token.secret));
        assert!("abc.def".parse::<JoinToken>().is_err());
    }
}
