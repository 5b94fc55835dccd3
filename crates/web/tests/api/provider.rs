//! An OpenID Connect provider for tests: codes are valid once, for the client with the verifier. It can be given one flaw.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Json;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

pub(crate) const CLIENT: &str = "dovetail";
pub(crate) const SECRET: &str = "hush hush";

/// What the provider does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    Nothing,
    Nonce,
    Expired,
    Audience,
    Issuer,
    NoSubject,
    /// Signed with another key than the one it names.
    Signature,
    /// Claims changed after signing.
    Tampered,
    AlgNone,
    /// Signed with the public key as a shared secret.
    AlgHmac,
    /// Signed with a key that is not published.
    UnknownKey,
    /// Userinfo of another user.
    OtherUserinfo,
    /// Discovery document of another issuer.
    Discovery,
}

/// Signature algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Es256,
}

#[derive(Debug, Clone)]
struct Code {
    nonce: String,
    challenge: String,
    redirect: String,
}

pub(crate) struct ProviderState {
    pub(crate) flaw: Flaw,
    pub(crate) algorithm: Algorithm,
    /// Claims about the user.
    pub(crate) claims: Value,
    /// Claims that only userinfo has.
    pub(crate) only_userinfo: Vec<&'static str>,
    /// Whether it signs with its second key.
    pub(crate) rotated: bool,
    codes: BTreeMap<String, Code>,
    issued: u32,
    issuer: String,
    pub(crate) key_requests: u32,
}

#[derive(Clone)]
pub(crate) struct Provider {
    pub(crate) inner: Arc<Mutex<ProviderState>>,
    rsa: Arc<[RsaKeyPair; 2]>,
    ec: Arc<EcdsaKeyPair>,
}

impl Provider {
    pub(crate) fn start(runtime: &tokio::runtime::Runtime) -> (Self, String) {
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let ec =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        let rsa = |bytes: &[u8]| RsaKeyPair::from_der(bytes).unwrap();
        let provider = Self {
            inner: Arc::new(Mutex::new(ProviderState {
                flaw: Flaw::Nothing,
                algorithm: Algorithm::Rs256,
                claims: json!({"sub": "1001", "preferred_username": "ann", "email": "ann@example.org", "groups": ["staff"]}),
                only_userinfo: Vec::new(),
                rotated: false,
                codes: BTreeMap::new(),
                issued: 0,
                issuer: issuer.clone(),
                key_requests: 0,
            })),
            rsa: Arc::new([
                rsa(include_bytes!("keys/first.der")),
                rsa(include_bytes!("keys/second.der")),
            ]),
            ec: Arc::new(ec),
        };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/keys", get(keys))
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .route("/userinfo", get(userinfo))
            .with_state(provider.clone());
        runtime.spawn(async move { axum::serve(listener, router).await });
        (provider, issuer)
    }

    fn sign(&self, alg: &str, kid: &str, claims: &Value, flaw: Flaw, rotated: bool) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let alg = match flaw {
            Flaw::AlgNone => "none",
            Flaw::AlgHmac => "HS256",
            _ => alg,
        };
        let kid = if flaw == Flaw::UnknownKey { "unknown" } else { kid };
        let message = format!(
            "{}.{}",
            part(&json!({"alg": alg, "kid": kid, "typ": "JWT"})),
            part(claims)
        );
        let random = SystemRandom::new();
        let signature = match alg {
            "none" => Vec::new(),
            "HS256" => {
                let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, self.rsa[0].public().as_ref());
                ring::hmac::sign(&key, message.as_bytes()).as_ref().to_vec()
            }
            "ES256" => self
                .ec
                .sign(&random, message.as_bytes())
                .unwrap()
                .as_ref()
                .to_vec(),
            _ => {
                let other = (flaw == Flaw::Signature) != rotated;
                let key = &self.rsa[usize::from(other)];
                let mut bytes = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut bytes)
                    .unwrap();
                bytes
            }
        };
        let message = match flaw {
            Flaw::Tampered => {
                let mut claims = claims.clone();
                claims["preferred_username"] = json!("root");
                format!("{}.{}", message.split('.').next().unwrap(), part(&claims))
            }
            _ => message,
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

async fn discovery(State(provider): State<Provider>) -> Json<Value> {
    let inner = provider.inner.lock().unwrap();
    let issuer = &inner.issuer;
    let issuer_claim = if inner.flaw == Flaw::Discovery {
        "http://127.0.0.1:1"
    } else {
        issuer
    };
    Json(json!({
        "issuer": issuer_claim,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/keys"),
        "userinfo_endpoint": format!("{issuer}/userinfo"),
        "response_types_supported": ["code"],
        "id_token_signing_alg_values_supported": ["RS256", "ES256"],
        "authorization_response_iss_parameter_supported": true,
    }))
}

async fn keys(State(provider): State<Provider>) -> Json<Value> {
    let mut inner = provider.inner.lock().unwrap();
    inner.key_requests += 1;
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let rsa = |key: &RsaKeyPair, kid: &str| {
        let parts = ring::rsa::PublicKeyComponents::<Vec<u8>>::from(key.public());
        json!({"kty": "RSA", "use": "sig", "alg": "RS256", "kid": kid, "n": encode(&parts.n), "e": encode(&parts.e)})
    };
    let point = provider.ec.public_key().as_ref();
    let mut all = vec![
        rsa(&provider.rsa[0], "first"),
        json!({"kty": "EC", "crv": "P-256", "kid": "curve", "x": encode(&point[1..33]), "y": encode(&point[33..])}),
        json!({"kty": "OKP", "crv": "Ed25519", "kid": "other", "x": "AAAA", "key_ops": ["verify"]}),
    ];
    if inner.rotated {
        all[0] = rsa(&provider.rsa[1], "second");
    }
    Json(json!({"keys": all}))
}

/// Authenticates every user, and redirects back.
async fn authorize(
    State(provider): State<Provider>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Result<Response, StatusCode> {
    let of = |key: &str| query.get(key).cloned().ok_or(StatusCode::BAD_REQUEST);
    if (
        of("response_type")?.as_str(),
        of("client_id")?.as_str(),
        of("code_challenge_method")?.as_str(),
    ) != ("code", CLIENT, "S256")
        || !of("scope")?.split(' ').any(|s| s == "openid")
    {
        return Err(StatusCode::BAD_REQUEST);
    }
    let code = Code {
        nonce: of("nonce")?,
        challenge: of("code_challenge")?,
        redirect: of("redirect_uri")?,
    };
    let mut inner = provider.inner.lock().unwrap();
    inner.issued += 1;
    let name = format!("code-{}", inner.issued);
    let back = format!(
        "{}?code={name}&state={}&iss={}",
        code.redirect,
        of("state")?,
        inner.issuer
    );
    inner.codes.insert(name, code);
    Ok((StatusCode::FOUND, [(header::LOCATION, back)]).into_response())
}

fn form(body: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(b) = rest.next() {
            match b {
                b'%' => {
                    let hex: String = [rest.next(), rest.next()]
                        .iter()
                        .flatten()
                        .map(|b| char::from(*b))
                        .collect();
                    bytes.push(u8::from_str_radix(&hex, 16).unwrap());
                }
                other => bytes.push(other),
            }
        }
        String::from_utf8(bytes).unwrap()
    };
    let pairs = body.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(k, v)| (k.to_owned(), decode(v))).collect()
}

async fn token(
    State(provider): State<Provider>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, Json<Value>) {
    let refuse = |error: &str| (StatusCode::BAD_REQUEST, Json(json!({"error": error})));
    let pair = format!("{CLIENT}:{}", SECRET.replace(' ', "%20"));
    let basic = format!("Basic {}", STANDARD.encode(pair));
    if headers.get("authorization").and_then(|v| v.to_str().ok()) != Some(basic.as_str()) {
        return (StatusCode::UNAUTHORIZED, Json(json!({"error": "invalid_client"})));
    }
    let form = form(&body);
    let of = |key: &str| form.get(key).cloned().unwrap_or_default();
    let mut inner = provider.inner.lock().unwrap();
    let Some(code) = inner.codes.remove(&of("code")) else {
        return refuse("invalid_grant");
    };
    let challenge = URL_SAFE_NO_PAD.encode(ring::digest::digest(
        &ring::digest::SHA256,
        of("code_verifier").as_bytes(),
    ));
    if of("grant_type") != "authorization_code"
        || challenge != code.challenge
        || of("redirect_uri") != code.redirect
    {
        return refuse("invalid_grant");
    }
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let flaw = inner.flaw;
    let mut claims = inner.claims.clone();
    for (key, value) in [
        (
            "iss",
            json!(if flaw == Flaw::Issuer {
                "http://127.0.0.1:1"
            } else {
                &inner.issuer
            }),
        ),
        (
            "aud",
            json!(if flaw == Flaw::Audience {
                "another-client"
            } else {
                CLIENT
            }),
        ),
        (
            "exp",
            json!(if flaw == Flaw::Expired {
                now - 3_600
            } else {
                now + 300
            }),
        ),
        ("iat", json!(now)),
        (
            "nonce",
            json!(if flaw == Flaw::Nonce {
                "another"
            } else {
                &code.nonce
            }),
        ),
    ] {
        claims[key] = value;
    }
    let object = claims.as_object_mut().unwrap();
    object.retain(|key, _| !inner.only_userinfo.contains(&key.as_str()));
    if flaw == Flaw::NoSubject {
        object.remove("sub");
    }
    let (alg, kid) = match (inner.algorithm, inner.rotated) {
        (Algorithm::Es256, _) => ("ES256", "curve"),
        (Algorithm::Rs256, false) => ("RS256", "first"),
        (Algorithm::Rs256, true) => ("RS256", "second"),
    };
    let id_token = provider.sign(alg, kid, &claims, flaw, inner.rotated);
    (
        StatusCode::OK,
        Json(json!({"token_type": "Bearer", "access_token": "key", "id_token": id_token})),
    )
}

async fn userinfo(State(provider): State<Provider>, headers: HeaderMap) -> Result<Json<Value>, StatusCode> {
    if headers.get("authorization").is_none_or(|v| v != "Bearer key") {
        return Err(StatusCode::UNAUTHORIZED);
    }
    let inner = provider.inner.lock().unwrap();
    let mut claims = inner.claims.clone();
    if inner.flaw == Flaw::OtherUserinfo {
        claims["sub"] = json!("9999");
    }
    Ok(Json(claims))
}
