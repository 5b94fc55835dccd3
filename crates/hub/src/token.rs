//! The word by which a new node joins: a secret, and the fingerprint of the scheduler's authority, so that the node
//! knows whom it gives the secret to.

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
    /// A new one for this authority.
    pub fn generate(fingerprint: &str) -> Self {
        let mut bytes = [0u8; 16];
        rand::rng().fill_bytes(&mut bytes);
        Self {
            secret: bytes.iter().map(|b| format!("{b:02x}")).collect(),
            fingerprint: fingerprint.to_owned(),
        }
    }

    /// Whether a node has shown the secret. Hashes are compared, so that the time it takes tells nothing of the secret.
    pub fn is(&self, shown: &str) -> bool {
        digest(&SHA256, self.secret.as_bytes()).as_ref() == digest(&SHA256, shown.as_bytes()).as_ref()
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.secret, self.fingerprint)
    }
}

impl fmt::Debug for JoinToken {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken(….{})", self.fingerprint)
    }
}

impl FromStr for JoinToken {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_hex = |s: &str, digits: usize| s.len() == digits && s.bytes().all(|b| b.is_ascii_hexdigit());
        match text.trim().split_once('.') {
            Some((secret, fingerprint)) if is_hex(secret, 32) && is_hex(fingerprint, 64) => Ok(Self {
                secret: secret.to_owned(),
                fingerprint: fingerprint.to_ascii_lowercase(),
            }),
            _ => Err(
                "not a join token: 32 hex digits, a dot and 64 hex digits, as the scheduler prints it"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_is_written_and_shows_no_secret() {
        let token = JoinToken::generate(&"ab".repeat(32));
        assert_eq!(token.to_string().parse(), Ok(token.clone()));
        assert!(token.is(&token.secret));
        assert!(!token.is("") && !token.is(&"0".repeat(32)));
        assert!(!format!("{token:?}").contains(&token.secret));
        assert!("abc.def".parse::<JoinToken>().is_err());
    }
}
