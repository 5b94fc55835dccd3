//! The sign-in flow: the browser is redirected to the issuer, and returns with a code.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{COOKIE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dovetail_outbound::percent_encode;
use ring::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::{IdentityError, Oidc};
use super::provider::ProviderError;
use super::seal::{PendingSignIn, random};
use crate::accounts::{ExternalIdentity, ExternalSignInError, open_session};
use crate::views::{OidcOption, SignInOptions};
use crate::{Api, Problem, now};

/// Query of the start of a sign-in.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SignInQuery {
    /// Path to open afterwards, such as `/jobs`.
    to: Option<String>,
}

/// Query that the issuer redirects the browser back with.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct CallbackQuery {
    /// Code to exchange for a token.
    code: Option<String>,
    /// The `state` that was sent to the issuer.
    state: Option<String>,
    /// Error code of the provider, if the user was not authenticated.
    error: Option<String>,
    /// The issuer.
    iss: Option<String>,
}

const COOKIE_NAME: &str = "dovetail_oidc";
const PATH: &str = "/api/v1/session/oidc";
/// How long a user may take to sign in at the issuer, in seconds.
const TIMEOUT_S: i64 = 600;

/// Returns the ways to sign in.
pub(crate) async fn options(State(api): State<Api>) -> Json<SignInOptions> {
    let oidc = api.config.oidc.as_ref().map(|oidc| OidcOption {
        label: oidc.label().to_owned(),
        url: PATH.to_owned(),
    });
    Json(SignInOptions { password: true, oidc })
}

/// Returns the path if it is one of this server, else `/`.
fn local_path(to: Option<&str>) -> String {
    let is_local = |to: &&str| {
        to.starts_with('/')
            && !to.starts_with("//")
            && !to.contains('\\')
            && to.len() <= 1_000
            && to.bytes().all(|b| b.is_ascii_graphic())
    };
    to.filter(is_local).unwrap_or("/").to_owned()
}

fn set_cookie(api: &Api, value: &str, seconds: i64) -> (HeaderName, String) {
    let secure = if api.config.tls { "; Secure" } else { "" };
    // Lax, because the browser must send it with the redirect from the issuer.
    let cookie =
        format!("{COOKIE_NAME}={value}; Path={PATH}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    (SET_COOKIE, cookie)
}

fn configured(api: &Api) -> Result<&Oidc, Problem> {
    let missing = || Problem::not_found("no OpenID Connect provider: `oidc` is missing in server.yaml");
    api.config.oidc.as_deref().ok_or_else(missing)
}

/// Redirects the browser to the issuer.
pub(crate) async fn begin(
    State(api): State<Api>,
    query: Result<Query<SignInQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let oidc = configured(&api)?;
    let Query(query) = query.map_err(|e| Problem::invalid(e.body_text()))?;
    let discovery = oidc.provider.discovery().await.map_err(|error| {
        tracing::warn!(%error, "the OpenID Connect provider is not available");
        Problem::unavailable("the organisation's sign-in does not respond; try again, or use a password")
    })?;
    let pending = PendingSignIn {
        state: random::<24>(),
        nonce: random::<24>(),
        verifier: random::<48>(),
        to: local_path(query.to.as_deref()),
        until_s: now().0 / 1_000_000 + TIMEOUT_S,
    };
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, pending.verifier.as_bytes()));
    let parameters = [
        ("response_type", "code"),
        ("client_id", &oidc.provider.client_id),
        ("redirect_uri", &oidc.redirect),
        ("scope", &oidc.scope()),
        ("state", &pending.state),
        ("nonce", &pending.nonce),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ];
    let parameters: Vec<String> = parameters
        .iter()
        .map(|(k, v)| format!("{k}={}", percent_encode(v)))
        .collect();
    let endpoint = &discovery.authorization_endpoint;
    let separator = if endpoint.contains('?') { '&' } else { '?' };
    let sealed = oidc.seal.close(&pending);
    let sealed = sealed.ok_or_else(|| Problem::unavailable("the sign-in cannot be encrypted"))?;
    let headers = [
        set_cookie(&api, &sealed, TIMEOUT_S),
        (LOCATION, format!("{endpoint}{separator}{}", parameters.join("&"))),
    ];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

/// A sign-in that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum SignInError {
    /// The issuer or the user refused it.
    #[error("{0}")]
    Denied(String),
    /// It took too long, was started in another browser, or was forged.
    #[error("{0}")]
    Expired(&'static str),
    /// The answer of the issuer is not valid.
    #[error("{0}")]
    Untrusted(String),
    /// The issuer does not answer, or the user cannot be stored.
    #[error("{0}")]
    Unavailable(String),
    /// The user is not a member of an allowed group.
    #[error("{0}")]
    Forbidden(IdentityError),
    /// The user name is not valid, or belongs to another user.
    #[error("{0}")]
    Name(String),
}

impl SignInError {
    /// Returns the word by which the page chooses its message.
    fn word(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::Expired(_) => "expired",
            Self::Untrusted(_) => "untrusted",
            Self::Unavailable(_) => "unavailable",
            Self::Forbidden(_) => "forbidden",
            Self::Name(_) => "name",
        }
    }
}

impl From<ProviderError> for SignInError {
    fn from(error: ProviderError) -> Self {
        let text = error.to_string();
        match error {
            ProviderError::Issuer(_) => Self::Unavailable(text),
            ProviderError::Code(_) => Self::Denied(text),
            ProviderError::Token(_) => Self::Untrusted(text),
        }
    }
}

impl From<IdentityError> for SignInError {
    fn from(error: IdentityError) -> Self {
        match error {
            IdentityError::Group => Self::Forbidden(error),
            IdentityError::Name => Self::Name(error.to_string()),
        }
    }
}

impl From<ExternalSignInError> for SignInError {
    fn from(error: ExternalSignInError) -> Self {
        match error {
            ExternalSignInError::Name(text) => Self::Name(text),
            ExternalSignInError::File(text) => Self::Unavailable(text),
        }
    }
}

fn sealed_cookie(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|v| v.to_str().ok());
    let mut pairs = lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(name, _)| *name == COOKIE_NAME)
        .map(|(_, value)| value)
}

/// Handles the redirect from the issuer: signs the user in, or redirects to the page with the reason.
pub(crate) async fn callback(
    State(api): State<Api>,
    headers: HeaderMap,
    query: Result<Query<CallbackQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let oidc = configured(&api)?;
    let Query(query) = query.map_err(|e| Problem::invalid(e.body_text()))?;
    let cleared = set_cookie(&api, "", 0);
    let (to, session) = match finish(&api, oidc, &headers, query).await {
        Ok((to, cookie)) => (to, Some((SET_COOKIE, cookie))),
        Err(error) => {
            tracing::warn!(%error, reason = error.word(), "sign-in failed");
            let after = json!({"via": "oidc", "why": error.word()});
            api.audit.record("", "sign-in-failed", "", None, Some(after));
            (format!("/?sign_in={}", error.word()), None)
        }
    };
    let mut response = (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response();
    for (name, value) in [Some(cleared), session].into_iter().flatten() {
        if let Ok(value) = value.parse() {
            response.headers_mut().append(name, value);
        }
    }
    Ok(response)
}

/// Finishes a sign-in, and returns the path to open and the cookie of the session.
async fn finish(
    api: &Api,
    oidc: &Oidc,
    headers: &HeaderMap,
    query: CallbackQuery,
) -> Result<(String, String), SignInError> {
    let now_s = now().0 / 1_000_000;
    let pending = sealed_cookie(headers).and_then(|text| oidc.seal.open(text, now_s));
    let pending = pending.ok_or(SignInError::Expired("no sign-in was started in this browser"))?;
    if query.state.as_deref() != Some(pending.state.as_str()) {
        return Err(SignInError::Expired("the state is that of another sign-in"));
    }
    let claims = claims(oidc, &pending, query).await?;
    let identity = oidc.identity(&claims)?;
    let name = store_identity(api, &identity)?;
    let cookie =
        open_session(api, &name, oidc.session, "oidc").map_err(|p| SignInError::Unavailable(p.detail))?;
    Ok((pending.to, cookie))
}

/// Exchanges the code for claims about the user, after checking that the redirect is from the issuer.
async fn claims(oidc: &Oidc, pending: &PendingSignIn, query: CallbackQuery) -> Result<Value, SignInError> {
    let discovery = oidc.provider.discovery().await?;
    let must_name_issuer = discovery.authorization_response_iss_parameter_supported;
    let is_other_issuer = query
        .iss
        .as_ref()
        .map_or(must_name_issuer, |iss| *iss != oidc.provider.issuer);
    if is_other_issuer {
        return Err(SignInError::Untrusted(
            "the redirect is from another issuer".to_owned(),
        ));
    }
    if let Some(error) = query.error {
        return Err(SignInError::Denied(error));
    }
    let code = query
        .code
        .ok_or_else(|| SignInError::Denied("the redirect has no code".to_owned()))?;
    let mut needs = vec![oidc.name_claim()];
    let config = &oidc.config;
    let uses_groups =
        !config.roles.is_empty() || !config.admin_groups.is_empty() || !config.allowed_groups.is_empty();
    if uses_groups {
        needs.push(oidc.groups_claim());
    }
    let claims = oidc
        .provider
        .redeem(&code, &oidc.redirect, &pending.verifier, &pending.nonce, &needs)
        .await?;
    Ok(claims)
}

/// Finds or creates the account of an external user, records the change, and returns its name.
fn store_identity(api: &Api, identity: &ExternalIdentity) -> Result<String, SignInError> {
    let account = api.users.sign_in_external(identity)?;
    if account.before.as_ref() != Some(&account.after) {
        let what = match account.before {
            Some(_) => "user-changed",
            None => "user-added",
        };
        api.audit
            .record("oidc", what, &account.name, account.before, Some(account.after));
    }
    Ok(account.name)
}

#[cfg(test)]
mod tests {
    use super::local_path;

    #[test]
    fn only_paths_of_this_server_are_redirected_to() {
        for (to, expected) in [
            ("/jobs?state=live", "/jobs?state=live"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("https://evil.example", "/"),
            ("jobs", "/"),
            ("/a b", "/"),
            ("/\r\nX: y", "/"),
        ] {
            assert_eq!(local_path(Some(to)), expected);
        }
        assert_eq!(local_path(None), "/");
    }
}
