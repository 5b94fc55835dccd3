//! The state of a pending sign-in, encrypted in a cookie: unauthenticated requests store nothing on the server.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::Rng;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};

/// A sign-in that has started and waits for the redirect of the issuer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PendingSignIn {
    pub(super) state: String,
    pub(super) nonce: String,
    pub(super) verifier: String,
    /// Path to open afterwards.
    pub(super) to: String,
    /// End of its validity, in seconds since 1970.
    pub(super) until_s: i64,
}

/// A key that exists as long as the server runs.
pub(super) struct Seal(LessSafeKey);

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

/// Returns `N` random bytes as base64url.
pub(super) fn random<const N: usize>() -> String {
    let mut bytes = [0u8; N];
    rand::rng().fill_bytes(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Seal {
    pub(super) fn new() -> Self {
        let mut key = [0u8; 32];
        rand::rng().fill_bytes(&mut key);
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).expect("a key of 32 bytes");
        Self(LessSafeKey::new(key))
    }

    pub(super) fn close(&self, pending: &PendingSignIn) -> Option<String> {
        let mut nonce = [0u8; NONCE_LEN];
        rand::rng().fill_bytes(&mut nonce);
        let mut bytes = serde_json::to_vec(pending).ok()?;
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut bytes)
            .ok()?;
        Some(URL_SAFE_NO_PAD.encode([nonce.as_slice(), &bytes].concat()))
    }

    pub(super) fn open(&self, sealed: &str, now_s: i64) -> Option<PendingSignIn> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, rest) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut rest = rest.to_vec();
        let plain = self.0.open_in_place(nonce, Aad::empty(), &mut rest).ok()?;
        let pending: PendingSignIn = serde_json::from_slice(plain).ok()?;
        (pending.until_s > now_s).then_some(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_that_sealed_it_opens_it_and_only_while_it_is_valid() {
        let pending = PendingSignIn {
            state: random::<16>(),
            nonce: random::<16>(),
            verifier: random::<32>(),
            to: "/jobs".to_owned(),
            until_s: 600,
        };
        let (seal, other) = (Seal::new(), Seal::new());
        let sealed = seal.close(&pending).unwrap();
        assert!(!sealed.contains(&pending.verifier));
        assert_eq!(seal.open(&sealed, 599), Some(pending));
        assert_eq!(seal.open(&sealed, 600), None);
        assert_eq!(other.open(&sealed, 0), None);
        let mut torn = sealed.clone();
        torn.pop();
        for wrong in ["", "AAAA", &torn, "§"] {
            assert_eq!(seal.open(wrong, 0), None);
        }
    }
}
