//! ID tokens: who signed them, for whom, and until when they are good (RFC 7515, 7517, 7519; OpenID Connect Core §3.1.3.7).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

/// Clocks differ by so much at most, in seconds.
const LEEWAY_S: f64 = 60.0;
/// The longest token that is looked at.
const LONGEST: usize = 64 << 10;

/// A key of the issuer, as it publishes it.
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
struct Head {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// What is wrong with a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is none, or is signed in a way that is not taken.
    Form(&'static str),
    /// None of the keys is the one it names: the issuer may have a new one.
    UnknownKey,
    /// The signature is not of the issuer.
    Signature,
    /// What it says does not go with what was asked for.
    Claim(&'static str),
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

impl Jwk {
    fn suits(&self, head: &Head) -> bool {
        let kind = match head.alg.as_str() {
            "RS256" => self.kty == "RSA",
            "ES256" => self.kty == "EC" && self.crv == "P-256",
            _ => false,
        };
        kind && self.purpose.as_deref().is_none_or(|p| p == "sig")
            && self.alg.as_ref().is_none_or(|alg| *alg == head.alg)
            && head.kid.as_ref().is_none_or(|kid| self.kid.as_ref() == Some(kid))
    }

    fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let whole = || match self.kty.as_str() {
            "RSA" => {
                let (n, e) = (bytes(&self.n)?, bytes(&self.e)?);
                // Leading zeros are not part of a number.
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
        whole().is_some()
    }
}

/// What a token says, if one of these keys signed it.
pub(super) fn signed_claims(token: &str, keys: &[Jwk]) -> Result<Value, Fault> {
    if token.len() > LONGEST {
        return Err(Fault::Form("it is too long"));
    }
    let parts: Vec<&str> = token.split('.').collect();
    let [head, body, signature] = parts[..] else {
        return Err(Fault::Form("it does not have three parts"));
    };
    let json = |part: &str| bytes(part).ok_or(Fault::Form("a part is not base64url"));
    let parsed: Head =
        serde_json::from_slice(&json(head)?).map_err(|_| Fault::Form("its head is not understood"))?;
    // Nothing is taken that whoever made the token chooses: neither `none`, nor a secret in place of a key.
    if !["RS256", "ES256"].contains(&parsed.alg.as_str()) {
        return Err(Fault::Form("it is not signed with RS256 or ES256"));
    }
    if parsed.crit.is_some() {
        return Err(Fault::Form("it has critical extensions"));
    }
    let mut candidates = keys.iter().filter(|key| key.suits(&parsed)).peekable();
    if candidates.peek().is_none() {
        return Err(Fault::UnknownKey);
    }
    let signature = json(signature)?;
    let message = format!("{head}.{body}");
    if !candidates.any(|key| key.signed(message.as_bytes(), &signature)) {
        return Err(Fault::Signature);
    }
    let claims: Value =
        serde_json::from_slice(&json(body)?).map_err(|_| Fault::Form("its claims are not understood"))?;
    match claims.is_object() {
        true => Ok(claims),
        false => Err(Fault::Form("its claims are not understood")),
    }
}

/// What a token must say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) issuer: &'a str,
    pub(super) client: &'a str,
    pub(super) nonce: &'a str,
    pub(super) now_s: f64,
}

/// Whether the claims are for us, now, and for this very sign-in.
pub(super) fn check(claims: &Value, wanted: Wanted<'_>) -> Result<(), Fault> {
    let text = |key: &str| claims[key].as_str();
    let must = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(Fault::Claim(what)) };
    must(text("iss") == Some(wanted.issuer), "another issuer")?;
    let (is_ours, others) = match &claims["aud"] {
        Value::String(aud) => (aud == wanted.client, false),
        Value::Array(all) => (
            all.iter().any(|aud| aud.as_str() == Some(wanted.client)),
            all.len() > 1,
        ),
        _ => (false, false),
    };
    must(is_ours, "for somebody else")?;
    match claims.get("azp") {
        Some(azp) => must(azp.as_str() == Some(wanted.client), "given to somebody else")?,
        None => must(!others, "for several, and not said who asked for it")?,
    }
    let expires = claims["exp"].as_f64();
    must(
        expires.is_some_and(|at| at + LEEWAY_S > wanted.now_s),
        "no longer good",
    )?;
    let begins = claims.get("nbf").map(|at| at.as_f64().unwrap_or(f64::MAX));
    must(
        begins.is_none_or(|at| at - LEEWAY_S <= wanted.now_s),
        "not good yet",
    )?;
    let made = claims["iat"].as_f64();
    must(
        made.is_some_and(|at| at - LEEWAY_S <= wanted.now_s),
        "made in the future, or nobody knows when",
    )?;
    must(
        !wanted.nonce.is_empty() && text("nonce") == Some(wanted.nonce),
        "of another sign-in",
    )?;
    must(text("sub").is_some_and(|sub| !sub.is_empty()), "about nobody")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_must_be_for_us_now_and_for_this_sign_in() {
        let wanted = Wanted {
            issuer: "https://i",
            client: "d",
            nonce: "n",
            now_s: 1_000.0,
        };
        let good =
            json!({"iss": "https://i", "aud": "d", "sub": "7", "exp": 1_100, "iat": 990, "nonce": "n"});
        assert_eq!(check(&good, wanted), Ok(()));
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
            assert!(check(&bad, wanted).is_err(), "{bad}");
        }
        let mut several = good.clone();
        (several["aud"], several["azp"]) = (json!(["d", "e"]), json!("d"));
        assert_eq!(check(&several, wanted), Ok(()));
        assert!(check(&good, Wanted { nonce: "", ..wanted }).is_err());
    }

    #[test]
    fn what_is_no_token_is_none() {
        for wrong in ["", "a.b", "a.b.c.d", "..", "e30.e30.", &"x".repeat(100_000)] {
            assert!(
                matches!(signed_claims(wrong, &[]), Err(Fault::Form(_))),
                "{wrong:.20}"
            );
        }
        let head = |text: &str| format!("{}.e30.AAAA", URL_SAFE_NO_PAD.encode(text));
        for alg in ["none", "None", "HS256", "RS384", ""] {
            let token = head(&format!(r#"{{"alg": "{alg}"}}"#));
            assert!(matches!(signed_claims(&token, &[]), Err(Fault::Form(_))), "{alg}");
        }
        let token = head(r#"{"alg": "RS256", "crit": ["b64"]}"#);
        assert!(matches!(signed_claims(&token, &[]), Err(Fault::Form(_))));
        assert_eq!(
            signed_claims(&head(r#"{"alg": "ES256"}"#), &[]),
            Err(Fault::UnknownKey)
        );
    }
}
