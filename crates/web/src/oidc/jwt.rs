//! Verification of ID tokens (RFC 7515, 7517, 7519; OpenID Connect Core §3.1.3.7).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

/// Maximum difference between clocks, in seconds.
const LEEWAY_S: f64 = 60.0;
/// Maximum length of a token, in bytes.
const MAX_BYTES: usize = 64 << 10;

/// A public key of the issuer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    crv: String,
    n: String,
    e: String,
    x: String,
    y: String,
}

#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// A token that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    /// Not a token, or signed with an algorithm that is not supported.
    #[error("malformed token: {0}")]
    Form(&'static str),
    /// The issuer has no key with the id of the token, as far as is known; it may have a new one.
    #[error("unknown key")]
    UnknownKey,
    /// The signature is not that of the issuer.
    #[error("wrong signature")]
    Signature,
    /// A claim is not the expected one.
    #[error("wrong claim: {0}")]
    Claim(&'static str),
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

impl Jwk {
    fn suits(&self, header: &Header) -> bool {
        let kind = match header.alg.as_str() {
            "RS256" => self.kty == "RSA",
            "ES256" => self.kty == "EC" && self.crv == "P-256",
            _ => false,
        };
        kind && self.purpose.as_deref().is_none_or(|p| p == "sig")
            && self.alg.as_ref().is_none_or(|alg| *alg == header.alg)
            && header
                .kid
                .as_ref()
                .is_none_or(|kid| self.kid.as_ref() == Some(kid))
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = || match self.kty.as_str() {
            "RSA" => {
                let (n, e) = (bytes(&self.n)?, bytes(&self.e)?);
                // Leading zeros are not part of the number.
                let n: Vec<u8> = n.into_iter().skip_while(|b| *b == 0).collect();
                let key = RsaPublicKeyComponents { n: &n, e: &e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).ok()
            }
            _ => {
                let (x, y) = (bytes(&self.x)?, bytes(&self.y)?);
                if x.len() != 32 || y.len() != 32 {
                    return None;
                }
                let point = [&[4u8], x.as_slice(), y.as_slice()].concat();
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature).ok()
            }
        };
        verified().is_some()
    }
}

/// Returns the claims of a token that one of the keys signed.
pub(super) fn signed_claims(token: &str, keys: &[Jwk]) -> Result<Value, TokenError> {
    if token.len() > MAX_BYTES {
        return Err(TokenError::Form("too long"));
    }
    let parts: Vec<&str> = token.split('.').collect();
    let [header, body, signature] = parts[..] else {
        return Err(TokenError::Form("expected three parts"));
    };
    let decode = |part: &str| bytes(part).ok_or(TokenError::Form("a part is not base64url"));
    let parsed: Header =
        serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::Form("the header is not valid"))?;
    // The token must not choose its own verification: neither `none`, nor a shared secret in place of a key.
    if !["RS256", "ES256"].contains(&parsed.alg.as_str()) {
        return Err(TokenError::Form("expected algorithm RS256 or ES256"));
    }
    if parsed.crit.is_some() {
        return Err(TokenError::Form("critical extensions are not supported"));
    }
    let mut candidates = keys.iter().filter(|key| key.suits(&parsed)).peekable();
    if candidates.peek().is_none() {
        return Err(TokenError::UnknownKey);
    }
    let signature = decode(signature)?;
    let message = format!("{header}.{body}");
    if !candidates.any(|key| key.verifies(message.as_bytes(), &signature)) {
        return Err(TokenError::Signature);
    }
    let claims: Value =
        serde_json::from_slice(&decode(body)?).map_err(|_| TokenError::Form("the claims are not valid"))?;
    match claims.is_object() {
        true => Ok(claims),
        false => Err(TokenError::Form("the claims are not an object")),
    }
}

/// Expected claims of a token.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedClaims<'a> {
    pub(super) issuer: &'a str,
    pub(super) client: &'a str,
    pub(super) nonce: &'a str,
    pub(super) now_s: f64,
}

/// Checks that the claims are for this server, valid now, and of this sign-in.
pub(super) fn check(claims: &Value, expected: ExpectedClaims<'_>) -> Result<(), TokenError> {
    let text = |key: &str| claims[key].as_str();
    let must = |holds: bool, claim: &'static str| {
        if holds {
            Ok(())
        } else {
            Err(TokenError::Claim(claim))
        }
    };
    must(text("iss") == Some(expected.issuer), "iss: another issuer")?;
    let (is_ours, has_others) = match &claims["aud"] {
        Value::String(aud) => (aud == expected.client, false),
        Value::Array(all) => (
            all.iter().any(|aud| aud.as_str() == Some(expected.client)),
            all.len() > 1,
        ),
        _ => (false, false),
    };
    must(is_ours, "aud: another client")?;
    match claims.get("azp") {
        Some(azp) => must(azp.as_str() == Some(expected.client), "azp: another client")?,
        None => must(!has_others, "azp: missing, although there are several audiences")?,
    }
    let expires = claims["exp"].as_f64();
    must(
        expires.is_some_and(|at| at + LEEWAY_S > expected.now_s),
        "exp: expired",
    )?;
    let not_before = claims.get("nbf").map(|at| at.as_f64().unwrap_or(f64::MAX));
    must(
        not_before.is_none_or(|at| at - LEEWAY_S <= expected.now_s),
        "nbf: not valid yet",
    )?;
    let issued = claims["iat"].as_f64();
    must(
        issued.is_some_and(|at| at - LEEWAY_S <= expected.now_s),
        "iat: missing or in the future",
    )?;
    must(
        !expected.nonce.is_empty() && text("nonce") == Some(expected.nonce),
        "nonce: of another sign-in",
    )?;
    must(text("sub").is_some_and(|sub| !sub.is_empty()), "sub: missing")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_must_be_for_this_client_now_and_for_this_sign_in() {
        let expected = ExpectedClaims {
            issuer: "https://i",
            client: "d",
            nonce: "n",
            now_s: 1_000.0,
        };
        let good =
            json!({"iss": "https://i", "aud": "d", "sub": "7", "exp": 1_100, "iat": 990, "nonce": "n"});
        assert_eq!(check(&good, expected), Ok(()));
        for (key, value) in [
            ("iss", json!("https://j")),
            ("aud", json!("e")),
            ("aud", json!(["d", "e"])),
            ("aud", json!(null)),
            ("azp", json!("e")),
            ("exp", json!(900)),
            ("exp", json!("never")),
            ("exp", json!(null)),
            ("nbf", json!(2_000)),
            ("iat", json!(2_000)),
            ("iat", json!(null)),
            ("nonce", json!("m")),
            ("nonce", json!(null)),
            ("sub", json!("")),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            assert!(check(&bad, expected).is_err(), "{bad}");
        }
        let mut several = good.clone();
        (several["aud"], several["azp"]) = (json!(["d", "e"]), json!("d"));
        assert_eq!(check(&several, expected), Ok(()));
        assert!(
            check(
                &good,
                ExpectedClaims {
                    nonce: "",
                    ..expected
                }
            )
            .is_err()
        );
    }

    #[test]
    fn malformed_tokens_are_refused() {
        for wrong in ["", "a.b", "a.b.c.d", "..", "e30.e30.", &"x".repeat(100_000)] {
            assert!(
                matches!(signed_claims(wrong, &[]), Err(TokenError::Form(_))),
                "{wrong:.20}"
            );
        }
        let with_header = |text: &str| format!("{}.e30.AAAA", URL_SAFE_NO_PAD.encode(text));
        for alg in ["none", "None", "HS256", "RS384", ""] {
            let token = with_header(&format!(r#"{{"alg": "{alg}"}}"#));
            assert!(
                matches!(signed_claims(&token, &[]), Err(TokenError::Form(_))),
                "{alg}"
            );
        }
        let token = with_header(r#"{"alg": "RS256", "crit": ["b64"]}"#);
        assert!(matches!(signed_claims(&token, &[]), Err(TokenError::Form(_))));
        assert_eq!(
            signed_claims(&with_header(r#"{"alg": "ES256"}"#), &[]),
            Err(TokenError::UnknownKey)
        );
    }
}
