//! The issuer: where it is asked for what, its keys, and codes that are turned into tokens.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dovetail_courier::{Client, Outgoing, Url, query_value};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Mutex;

use super::jwt::{self, Fault, Jwk, Wanted};

/// The document by which an issuer is found out about.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Discovery {
    issuer: String,
    pub(super) authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    userinfo_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// Whether it names itself when it sends people back (RFC 9207).
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

#[derive(Debug, Deserialize)]
struct Keys {
    #[serde(default)]
    keys: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct Tokens {
    id_token: String,
    #[serde(default)]
    access_token: String,
}

#[derive(Debug, Clone)]
struct Known {
    discovery: Discovery,
    since: Instant,
    keys: Vec<Jwk>,
    /// When keys were last asked for because one was not known.
    keys_again: Option<Instant>,
}

/// What went wrong at the issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It does not answer, or not as it should.
    Issuer(String),
    /// It does not take the code.
    Code(String),
    /// Its token is not one.
    Token(Fault),
}

/// An issuer, and what is known of it.
#[derive(Debug)]
pub(super) struct Provider {
    client: Client,
    pub(super) issuer: String,
    pub(super) client_id: String,
    secret: Option<String>,
    known: Mutex<Option<Known>>,
}

/// What is known is asked for again after so long.
const FRESH: Duration = Duration::from_secs(3_600);
/// Keys that are not known are asked for at most so often.
const KEYS_AGAIN: Duration = Duration::from_secs(10);

impl Provider {
    pub(super) fn new(client: Client, issuer: &str, client_id: &str, secret: Option<String>) -> Self {
        Self {
            client,
            issuer: issuer.to_owned(),
            client_id: client_id.to_owned(),
            secret,
            known: Mutex::new(None),
        }
    }

    /// An address the issuer names: encrypted, as the issuer itself is.
    fn address(&self, text: &str) -> Result<Url, Trouble> {
        let wrong = |e: &dyn std::fmt::Display| Trouble::Issuer(format!("{text:?}: {e}"));
        let url: Url = text.parse().map_err(|e| wrong(&e))?;
        match url.tls || !self.issuer.starts_with("https://") {
            true => Ok(url),
            false => Err(wrong(&"is not encrypted")),
        }
    }

    async fn ask<T: DeserializeOwned>(&self, url: &str, outgoing: Outgoing) -> Result<T, Trouble> {
        let place = self.address(url)?;
        let reply = self.client.send(&place, outgoing).await;
        let reply = reply.map_err(|e| Trouble::Issuer(format!("{url}: {e}")))?;
        match reply.status {
            200 => serde_json::from_slice(&reply.body).map_err(|e| Trouble::Issuer(format!("{url}: {e}"))),
            // 400 and 401 are how it says that a code or a secret is none.
            status @ 400..500 => Err(Trouble::Code(format!(
                "{url}: {status} {}",
                error_of(&reply.body)
            ))),
            status => Err(Trouble::Issuer(format!("{url}: {status}"))),
        }
    }

    async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, Trouble> {
        let outgoing = Outgoing {
            method: "GET".to_owned(),
            headers: vec![("accept".to_owned(), "application/json".to_owned())],
            body: Vec::new(),
        };
        self.ask(url, outgoing).await
    }

    async fn keys(&self, discovery: &Discovery) -> Result<Vec<Jwk>, Trouble> {
        let set: Keys = self.get(&discovery.jwks_uri).await?;
        // Keys of kinds that are not known are no mistake.
        let keys = set.keys.into_iter();
        Ok(keys.filter_map(|key| serde_json::from_value(key).ok()).collect())
    }

    /// What is known of the issuer, asked for if need be.
    async fn known(&self) -> Result<Known, Trouble> {
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref().filter(|k| k.since.elapsed() < FRESH) {
            return Ok(known.clone());
        }
        let url = format!(
            "{}/.well-known/openid-configuration",
            self.issuer.trim_end_matches('/')
        );
        let discovery: Discovery = self.get(&url).await?;
        if discovery.issuer != self.issuer {
            return Err(Trouble::Issuer(format!(
                "{url}: is of {:?}, not of {:?}",
                discovery.issuer, self.issuer
            )));
        }
        for url in [&discovery.authorization_endpoint, &discovery.token_endpoint] {
            self.address(url)?;
        }
        let keys = self.keys(&discovery).await?;
        let fresh = Known {
            discovery,
            since: Instant::now(),
            keys,
            keys_again: None,
        };
        Ok(known.insert(fresh).clone())
    }

    pub(super) async fn discovery(&self) -> Result<Discovery, Trouble> {
        self.known().await.map(|known| known.discovery)
    }

    /// Turns a code into what the issuer says of whoever has signed in.
    pub(super) async fn redeem(
        &self,
        code: &str,
        redirect: &str,
        verifier: &str,
        nonce: &str,
        needs: &[&str],
    ) -> Result<Value, Trouble> {
        let known = self.known().await?;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect),
            ("code_verifier", verifier),
            ("client_id", &self.client_id),
        ];
        let mut headers = vec![
            (
                "content-type".to_owned(),
                "application/x-www-form-urlencoded".to_owned(),
            ),
            ("accept".to_owned(), "application/json".to_owned()),
        ];
        if let Some(secret) = &self.secret {
            let ways = known.discovery.token_endpoint_auth_methods_supported.as_ref();
            match ways.is_none_or(|ways| ways.iter().any(|way| way == "client_secret_basic")) {
                true => {
                    let pair = format!("{}:{}", query_value(&self.client_id), query_value(secret));
                    headers.push((
                        "authorization".to_owned(),
                        format!("Basic {}", STANDARD.encode(pair)),
                    ));
                }
                false => form.push(("client_secret", secret)),
            }
        }
        let pairs: Vec<String> = form
            .iter()
            .map(|(k, v)| format!("{k}={}", query_value(v)))
            .collect();
        let outgoing = Outgoing {
            method: "POST".to_owned(),
            headers,
            body: pairs.join("&").into_bytes(),
        };
        let tokens: Tokens = self.ask(&known.discovery.token_endpoint, outgoing).await?;
        let mut claims = self.believed(&tokens.id_token, &known).await?;
        let wanted = Wanted {
            issuer: &self.issuer,
            client: &self.client_id,
            nonce,
            now_s: crate::now().as_secs_f64(),
        };
        jwt::check(&claims, wanted).map_err(Trouble::Token)?;
        if needs.iter().any(|key| claims.get(key).is_none()) && !tokens.access_token.is_empty() {
            self.add_userinfo(&mut claims, &known.discovery, &tokens.access_token)
                .await?;
        }
        Ok(claims)
    }

    /// The claims of a token that is signed by the issuer, with its present keys if it has new ones.
    async fn believed(&self, token: &str, known: &Known) -> Result<Value, Trouble> {
        match jwt::signed_claims(token, &known.keys) {
            Err(Fault::UnknownKey) => {}
            other => return other.map_err(Trouble::Token),
        }
        let mut shared = self.known.lock().await;
        let keys = match shared.as_mut() {
            Some(shared) if shared.keys != known.keys => shared.keys.clone(),
            Some(shared) if shared.keys_again.is_none_or(|at| at.elapsed() >= KEYS_AGAIN) => {
                shared.keys_again = Some(Instant::now());
                shared.keys = self.keys(&known.discovery).await?;
                shared.keys.clone()
            }
            _ => return Err(Trouble::Token(Fault::UnknownKey)),
        };
        jwt::signed_claims(token, &keys).map_err(Trouble::Token)
    }

    /// Some issuers say the name and the groups only when they are asked once more.
    async fn add_userinfo(
        &self,
        claims: &mut Value,
        discovery: &Discovery,
        access_token: &str,
    ) -> Result<(), Trouble> {
        let Some(url) = &discovery.userinfo_endpoint else {
            return Ok(());
        };
        let outgoing = Outgoing {
            method: "GET".to_owned(),
            headers: vec![("authorization".to_owned(), format!("Bearer {access_token}"))],
            body: Vec::new(),
        };
        let more: Value = self.ask(url, outgoing).await?;
        if more["sub"] != claims["sub"] {
            return Err(Trouble::Token(Fault::Claim("about another person than userinfo")));
        }
        let said = more.as_object().cloned().unwrap_or_default();
        if let Some(claims) = claims.as_object_mut() {
            for (key, value) in said {
                claims.entry(key).or_insert(value);
            }
        }
        Ok(())
    }
}

/// The word for what is wrong in an answer (RFC 6749), if there is one.
fn error_of(body: &[u8]) -> String {
    let said: Option<Value> = serde_json::from_slice(body).ok();
    let word = said.and_then(|v| v["error"].as_str().map(str::to_owned));
    word.unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control())
        .take(100)
        .collect()
}
