//! There and back: the browser is sent to the issuer, and comes back with a code.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{COOKIE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dovetail_courier::query_value;
use ring::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::config::{NotHere, Oidc};
use super::provider::Trouble;
use super::seal::{Begun, random};
use crate::people::{ForeignError, open_session};
use crate::views::{OidcOption, SignInOptions};
use crate::{Api, Problem, now};

/// Where to go after signing in.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Begin {
    /// A path of the page, such as `/jobs`.
    to: Option<String>,
}

/// What the issuer sends the browser back with.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Back {
    /// What can be turned into a token, once.
    code: Option<String>,
    /// What was sent there.
    state: Option<String>,
    /// Why nobody was signed in.
    error: Option<String>,
    /// Who sends it back.
    iss: Option<String>,
}

const COOKIE_NAME: &str = "dovetail_oidc";
const PATH: &str = "/api/v1/session/oidc";
/// So long somebody may take at the issuer, in seconds.
const PATIENCE_S: i64 = 600;

/// Ways to sign in, for whoever has not.
pub(crate) async fn options(State(api): State<Api>) -> Json<SignInOptions> {
    let oidc = api.config.oidc.as_ref().map(|oidc| OidcOption {
        label: oidc.label().to_owned(),
        url: PATH.to_owned(),
    });
    Json(SignInOptions { password: true, oidc })
}

/// A path of the page: nothing that leads elsewhere.
fn local(to: Option<&str>) -> String {
    let is_fine = |to: &&str| {
        to.starts_with('/')
            && !to.starts_with("//")
            && !to.contains('\\')
            && to.len() <= 1_000
            && to.bytes().all(|b| b.is_ascii_graphic())
    };
    to.filter(is_fine).unwrap_or("/").to_owned()
}

fn set_cookie(api: &Api, value: &str, seconds: i64) -> (HeaderName, String) {
    let secure = if api.config.tls { "; Secure" } else { "" };
    // Lax: it has to come along when the issuer sends the browser back.
    let cookie =
        format!("{COOKIE_NAME}={value}; Path={PATH}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    (SET_COOKIE, cookie)
}

fn set_up(api: &Api) -> Result<&Oidc, Problem> {
    let missing =
        || Problem::not_found("nobody signs in elsewhere here: `oidc` is not set up in server.yaml");
    api.config.oidc.as_deref().ok_or_else(missing)
}

pub(crate) async fn begin(
    State(api): State<Api>,
    begin: Result<Query<Begin>, QueryRejection>,
) -> Result<Response, Problem> {
    let oidc = set_up(&api)?;
    let Query(begin) = begin.map_err(|e| Problem::invalid(e.body_text()))?;
    let discovery = oidc.provider.discovery().await.map_err(|trouble| {
        tracing::warn!(?trouble, "nobody can sign in elsewhere");
        Problem::unavailable("the organisation's sign-in does not answer; try again, or use a password")
    })?;
    let begun = Begun {
        state: random::<24>(),
        nonce: random::<24>(),
        verifier: random::<48>(),
        to: local(begin.to.as_deref()),
        until_s: now().0 / 1_000_000 + PATIENCE_S,
    };
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, begun.verifier.as_bytes()));
    let asked = [
        ("response_type", "code"),
        ("client_id", &oidc.provider.client_id),
        ("redirect_uri", &oidc.redirect),
        ("scope", &oidc.scope()),
        ("state", &begun.state),
        ("nonce", &begun.nonce),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ];
    let asked: Vec<String> = asked
        .iter()
        .map(|(k, v)| format!("{k}={}", query_value(v)))
        .collect();
    let endpoint = &discovery.authorization_endpoint;
    let joint = if endpoint.contains('?') { '&' } else { '?' };
    let sealed = oidc.seal.close(&begun);
    let sealed = sealed.ok_or_else(|| Problem::unavailable("the sign-in cannot be sealed"))?;
    let head = [
        set_cookie(&api, &sealed, PATIENCE_S),
        (LOCATION, format!("{endpoint}{joint}{}", asked.join("&"))),
    ];
    Ok((StatusCode::SEE_OTHER, head).into_response())
}

/// Why nobody was signed in, in a word that the page knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    /// The issuer said no, or the person did.
    Denied,
    /// It took too long, began in another browser, or was forged.
    Expired,
    /// What the issuer says is not to be believed.
    Untrusted,
    /// The issuer does not answer.
    Unavailable,
    /// The person is of no group that may come.
    Forbidden,
    /// The person's name cannot be used here, or is that of a local user.
    Name,
}

impl Failed {
    fn word(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Untrusted => "untrusted",
            Self::Unavailable => "unavailable",
            Self::Forbidden => "forbidden",
            Self::Name => "name",
        }
    }
}

fn sealed(headers: &HeaderMap) -> Option<&str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|v| v.to_str().ok());
    let mut pairs = lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(name, _)| *name == COOKIE_NAME)
        .map(|(_, value)| value)
}

pub(crate) async fn callback(
    State(api): State<Api>,
    headers: HeaderMap,
    back: Result<Query<Back>, QueryRejection>,
) -> Result<Response, Problem> {
    let oidc = set_up(&api)?;
    let Query(back) = back.map_err(|e| Problem::invalid(e.body_text()))?;
    let cleared = set_cookie(&api, "", 0);
    let (to, session) = match finish(&api, oidc, &headers, back).await {
        Ok((to, cookie)) => (to, Some((SET_COOKIE, cookie))),
        Err((failed, why)) => {
            tracing::warn!(failed = failed.word(), why, "nobody was signed in");
            let after = json!({"via": "oidc", "why": failed.word()});
            api.audit.note("", "sign-in-failed", "", None, Some(after));
            (format!("/?sign_in={}", failed.word()), None)
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

/// Where to go, and the cookie of the session.
async fn finish(
    api: &Api,
    oidc: &Oidc,
    headers: &HeaderMap,
    back: Back,
) -> Result<(String, String), (Failed, String)> {
    let now_s = now().0 / 1_000_000;
    let begun = sealed(headers).and_then(|text| oidc.seal.open(text, now_s));
    let begun = begun.ok_or((Failed::Expired, "no sign-in was begun in this browser".to_owned()))?;
    if back.state.as_deref() != Some(begun.state.as_str()) {
        return Err((Failed::Expired, "the state is that of another sign-in".to_owned()));
    }
    let trouble = |trouble: Trouble| {
        let failed = match &trouble {
            Trouble::Issuer(_) => Failed::Unavailable,
            Trouble::Code(_) => Failed::Denied,
            Trouble::Token(_) => Failed::Untrusted,
        };
        (failed, format!("{trouble:?}"))
    };
    let discovery = oidc.provider.discovery().await.map_err(trouble)?;
    let names_itself = discovery.authorization_response_iss_parameter_supported;
    if back
        .iss
        .as_ref()
        .map_or(names_itself, |iss| *iss != oidc.provider.issuer)
    {
        return Err((
            Failed::Untrusted,
            "another issuer sent the browser back".to_owned(),
        ));
    }
    if let Some(error) = back.error {
        return Err((Failed::Denied, error));
    }
    let code = back.code.ok_or((Failed::Denied, "there is no code".to_owned()))?;
    let mut needs = vec![oidc.name_claim()];
    let by_groups = !oidc.config.roles.is_empty()
        || !oidc.config.admin_groups.is_empty()
        || !oidc.config.allowed_groups.is_empty();
    if by_groups {
        needs.push(oidc.groups_claim());
    }
    let redeemed = oidc
        .provider
        .redeem(&code, &oidc.redirect, &begun.verifier, &begun.nonce, &needs);
    let claims = redeemed.await.map_err(trouble)?;
    let person = oidc.person(&claims).map_err(|not_here| match not_here {
        NotHere::Group => (Failed::Forbidden, "of no group that may come".to_owned()),
        NotHere::Name => (Failed::Name, "without a name".to_owned()),
    })?;
    let known = api.users.welcome(&person).map_err(|e| match e {
        ForeignError::Name(why) => (Failed::Name, why),
        ForeignError::File(why) => (Failed::Unavailable, why),
    })?;
    if known.before.as_ref() != Some(&known.after) {
        let what = if known.before.is_some() {
            "user-changed"
        } else {
            "user-added"
        };
        api.audit.note(
            "oidc",
            what,
            &known.name,
            known.before.clone(),
            Some(known.after.clone()),
        );
    }
    let cookie =
        open_session(api, &known.name, oidc.session, "oidc").map_err(|p| (Failed::Unavailable, p.detail))?;
    Ok((begun.to, cookie))
}

#[cfg(test)]
mod tests {
    use super::local;

    #[test]
    fn nobody_is_sent_elsewhere() {
        for (to, leads) in [
            ("/jobs?state=live", "/jobs?state=live"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("https://evil.example", "/"),
            ("jobs", "/"),
            ("/a b", "/"),
            ("/\r\nX: y", "/"),
        ] {
            assert_eq!(local(Some(to)), leads);
        }
        assert_eq!(local(None), "/");
    }
}
