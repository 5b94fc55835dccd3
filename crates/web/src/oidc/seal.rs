//! What a sign-in has to remember goes with the browser, sealed: the server keeps nothing that strangers could fill up.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::Rng;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};

/// A sign-in that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Begun {
    pub(super) state: String,
    pub(super) nonce: String,
    pub(super) verifier: String,
    /// Where to go afterwards.
    pub(super) to: String,
    /// Good until then, in seconds since 1970.
    pub(super) until_s: i64,
}

/// A key that lives as long as the server.
pub(super) struct Seal(LessSafeKey);

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

/// So many random bytes, in letters that go anywhere.
pub(super) fn random<const N: usize>() -> String {
    let mut bytes = [0u8; N];
    rand::rng().fill_bytes(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Seal {
    pub(super) fn new() -> Result<Self, String> {
        let mut key = [0u8; 32];
        rand::rng().fill_bytes(&mut key);
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).map_err(|e| e.to_string())?;
        Ok(Self(LessSafeKey::new(key)))
    }

    pub(super) fn close(&self, begun: &Begun) -> Option<String> {
        let mut nonce = [0u8; NONCE_LEN];
        rand::rng().fill_bytes(&mut nonce);
        let mut bytes = serde_json::to_vec(begun).ok()?;
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut bytes)
            .ok()?;
        Some(URL_SAFE_NO_PAD.encode([nonce.as_slice(), &bytes].concat()))
    }

    pub(super) fn open(&self, sealed: &str, now_s: i64) -> Option<Begun> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, rest) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut rest = rest.to_vec();
        let plain = self.0.open_in_place(nonce, Aad::empty(), &mut rest).ok()?;
        let begun: Begun = serde_json::from_slice(plain).ok()?;
        (begun.until_s > now_s).then_some(begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_server_opens_what_it_sealed_and_only_for_a_while() {
        let begun = Begun {
            state: random::<16>(),
            nonce: random::<16>(),
            verifier: random::<32>(),
            to: "/jobs".to_owned(),
            until_s: 600,
        };
        let (seal, other) = (Seal::new().unwrap(), Seal::new().unwrap());
        let sealed = seal.close(&begun).unwrap();
        assert!(!sealed.contains(&begun.verifier));
        assert_eq!(seal.open(&sealed, 599), Some(begun));
        assert_eq!(seal.open(&sealed, 600), None);
        assert_eq!(other.open(&sealed, 0), None);
        let mut torn = sealed.clone();
        torn.pop();
        for wrong in ["", "AAAA", &torn, "§"] {
            assert_eq!(seal.open(wrong, 0), None);
        }
    }
}
