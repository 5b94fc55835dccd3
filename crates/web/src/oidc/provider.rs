//! The issuer: its discovery document, its keys, and the exchange of a code for an ID token.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dovetail_outbound::{Client, HttpRequest, Url, percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Mutex;

use super::jwt::{self, ExpectedClaims, Jwk, TokenError};

/// The discovery document of an issuer.
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
    /// Whether the issuer names itself when it redirects the browser back (RFC 9207).
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

#[derive(Debug, Deserialize)]
struct KeySet {
    #[serde(default)]
    keys: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct TokenResponse {
    id_token: String,
    #[serde(default)]
    access_token: String,
}

#[derive(Debug, Clone)]
struct Metadata {
    discovery: Discovery,
    fetched: Instant,
    keys: Vec<Jwk>,
    /// When the keys were last fetched because of an unknown one.
    keys_refetched: Option<Instant>,
}

/// An issuer that could not authenticate a user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProviderError {
    /// The issuer does not answer, or not as expected.
    #[error("the issuer does not answer as expected: {0}")]
    Issuer(String),
    /// The issuer does not accept the code.
    #[error("the issuer does not accept the code: {0}")]
    Code(String),
    /// The token of the issuer is not valid.
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// An issuer, with a cache of its metadata.
#[derive(Debug)]
pub(super) struct Provider {
    client: Client,
    pub(super) issuer: String,
    pub(super) client_id: String,
    secret: Option<String>,
    metadata: Mutex<Option<Metadata>>,
}

/// Metadata is fetched again after this time.
const METADATA_VALIDITY: Duration = Duration::from_secs(3_600);
/// Minimum time between two fetches because of an unknown key.
const REFETCH_INTERVAL: Duration = Duration::from_secs(10);

impl Provider {
    pub(super) fn new(client: Client, issuer: &str, client_id: &str, secret: Option<String>) -> Self {
        Self {
            client,
            issuer: issuer.to_owned(),
            client_id: client_id.to_owned(),
            secret,
            metadata: Mutex::new(None),
        }
    }

    /// Parses an address that the issuer names, which must use TLS if the issuer does.
    fn address(&self, text: &str) -> Result<Url, ProviderError> {
        let wrong = |e: &dyn std::fmt::Display| ProviderError::Issuer(format!("{text:?}: {e}"));
        let url: Url = text.parse().map_err(|e| wrong(&e))?;
        match url.tls || !self.issuer.starts_with("https://") {
            true => Ok(url),
            false => Err(wrong(&"expected https://")),
        }
    }

    async fn request<T: DeserializeOwned>(
        &self,
        url: &str,
        request: HttpRequest,
    ) -> Result<T, ProviderError> {
        let address = self.address(url)?;
        let reply = self.client.send(&address, request).await;
        let reply = reply.map_err(|e| ProviderError::Issuer(format!("{url}: {e}")))?;
        match reply.status {
            200 => {
                serde_json::from_slice(&reply.body).map_err(|e| ProviderError::Issuer(format!("{url}: {e}")))
            }
            // The answer to a wrong code or client secret is 400 or 401.
            status @ 400..500 => Err(ProviderError::Code(format!(
                "{url}: {status} {}",
                error_code(&reply.body)
            ))),
            status => Err(ProviderError::Issuer(format!("{url}: {status}"))),
        }
    }

    async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, ProviderError> {
        let request = HttpRequest {
            method: "GET".to_owned(),
            headers: vec![("accept".to_owned(), "application/json".to_owned())],
            body: Vec::new(),
        };
        self.request(url, request).await
    }

    async fn keys(&self, discovery: &Discovery) -> Result<Vec<Jwk>, ProviderError> {
        let set: KeySet = self.get(&discovery.jwks_uri).await?;
        // Keys of unknown types are skipped.
        let keys = set.keys.into_iter();
        Ok(keys.filter_map(|key| serde_json::from_value(key).ok()).collect())
    }

    /// Returns the metadata of the issuer, from the cache or fetched.
    async fn metadata(&self) -> Result<Metadata, ProviderError> {
        let mut cached = self.metadata.lock().await;
        if let Some(metadata) = cached
            .as_ref()
            .filter(|m| m.fetched.elapsed() < METADATA_VALIDITY)
        {
            return Ok(metadata.clone());
        }
        let url = format!(
            "{}/.well-known/openid-configuration",
            self.issuer.trim_end_matches('/')
        );
        let discovery: Discovery = self.get(&url).await?;
        if discovery.issuer != self.issuer {
            return Err(ProviderError::Issuer(format!(
                "{url}: issuer is {:?}, expected {:?}",
                discovery.issuer, self.issuer
            )));
        }
        for url in [&discovery.authorization_endpoint, &discovery.token_endpoint] {
            self.address(url)?;
        }
        let keys = self.keys(&discovery).await?;
        let fetched = Metadata {
            discovery,
            fetched: Instant::now(),
            keys,
            keys_refetched: None,
        };
        Ok(cached.insert(fetched).clone())
    }

    pub(super) async fn discovery(&self) -> Result<Discovery, ProviderError> {
        self.metadata().await.map(|metadata| metadata.discovery)
    }

    /// Exchanges a code for the verified claims about the user. Claims in `needs` are also fetched from userinfo.
    pub(super) async fn redeem(
        &self,
        code: &str,
        redirect: &str,
        verifier: &str,
        nonce: &str,
        needs: &[&str],
    ) -> Result<Value, ProviderError> {
        let metadata = self.metadata().await?;
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
            let methods = metadata.discovery.token_endpoint_auth_methods_supported.as_ref();
            match methods.is_none_or(|all| all.iter().any(|method| method == "client_secret_basic")) {
                true => {
                    let pair = format!("{}:{}", percent_encode(&self.client_id), percent_encode(secret));
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
            .map(|(k, v)| format!("{k}={}", percent_encode(v)))
            .collect();
        let request = HttpRequest {
            method: "POST".to_owned(),
            headers,
            body: pairs.join("&").into_bytes(),
        };
        let tokens: TokenResponse = self.request(&metadata.discovery.token_endpoint, request).await?;
        let mut claims = self.verified_claims(&tokens.id_token, &metadata).await?;
        let expected = ExpectedClaims {
            issuer: &self.issuer,
            client: &self.client_id,
            nonce,
            now_s: crate::now().as_secs_f64(),
        };
        jwt::check(&claims, expected)?;
        if needs.iter().any(|key| claims.get(key).is_none()) && !tokens.access_token.is_empty() {
            self.add_userinfo(&mut claims, &metadata.discovery, &tokens.access_token)
                .await?;
        }
        Ok(claims)
    }

    /// Returns the claims of a token that the issuer signed; its keys are fetched again if the token names a new one.
    async fn verified_claims(&self, token: &str, metadata: &Metadata) -> Result<Value, ProviderError> {
        match jwt::signed_claims(token, &metadata.keys) {
            Err(TokenError::UnknownKey) => {}
            other => return Ok(other?),
        }
        let mut cached = self.metadata.lock().await;
        let keys = match cached.as_mut() {
            Some(cached) if cached.keys != metadata.keys => cached.keys.clone(),
            Some(cached)
                if cached
                    .keys_refetched
                    .is_none_or(|at| at.elapsed() >= REFETCH_INTERVAL) =>
            {
                cached.keys_refetched = Some(Instant::now());
                cached.keys = self.keys(&metadata.discovery).await?;
                cached.keys.clone()
            }
            _ => return Err(TokenError::UnknownKey.into()),
        };
        Ok(jwt::signed_claims(token, &keys)?)
    }

    /// Adds claims of the userinfo endpoint: some issuers return the name and the groups only there.
    async fn add_userinfo(
        &self,
        claims: &mut Value,
        discovery: &Discovery,
        access_token: &str,
    ) -> Result<(), ProviderError> {
        let Some(url) = &discovery.userinfo_endpoint else {
            return Ok(());
        };
        let request = HttpRequest {
            method: "GET".to_owned(),
            headers: vec![("authorization".to_owned(), format!("Bearer {access_token}"))],
            body: Vec::new(),
        };
        let userinfo: Value = self.request(url, request).await?;
        if userinfo["sub"] != claims["sub"] {
            return Err(TokenError::Claim("sub: another user than that of userinfo").into());
        }
        let more = userinfo.as_object().cloned().unwrap_or_default();
        if let Some(claims) = claims.as_object_mut() {
            for (key, value) in more {
                claims.entry(key).or_insert(value);
            }
        }
        Ok(())
    }
}

/// Returns the error code of an answer (RFC 6749), if it has one.
fn error_code(body: &[u8]) -> String {
    let answer: Option<Value> = serde_json::from_slice(body).ok();
    let code = answer.and_then(|v| v["error"].as_str().map(str::to_owned));
    code.unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control())
        .take(100)
        .collect()
}
