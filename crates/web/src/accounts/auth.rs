//! Authentication: by a token, or by the session cookie of a browser.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequestParts, State};
use axum::http::header::{AUTHORIZATION, COOKIE, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use dovetail_cluster::state::{ClusterState, JobRecord};
use dovetail_model::Time;

use super::account::{TokenInfo, new_token};
use super::passwords::fast_hash;
use super::roles::{Role, Scope};
use super::users::UsersError;
use crate::views::{SessionView, SignIn};
use crate::{Api, Problem, now};

/// The user that a request is made for.
#[derive(Debug, Clone, PartialEq)]
pub struct User {
    /// User name.
    pub name: String,
    /// Whether the user is an administrator.
    pub admin: bool,
    /// Roles, by virtual cluster.
    pub roles: BTreeMap<String, Role>,
    /// Scope of the token that the request was made with.
    pub scope: Scope,
}

/// An authenticated caller: the user, and the token that identified it.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) user: User,
    pub(crate) token: TokenInfo,
    /// The value that the page must send as `X-Csrf-Token` with every change; none for tokens.
    pub(crate) csrf: Option<String>,
}

const COOKIE_NAME: &str = "dovetail_session";
/// How long a browser stays signed in.
const SESSION: Time = Time::from_secs(7 * 86_400);

/// Returns the token of the session cookie.
fn cookie(parts: &Parts) -> Option<&str> {
    let all = parts
        .headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|v| v.to_str().ok());
    let mut pairs = all
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(name, _)| *name == COOKIE_NAME)
        .map(|(_, token)| token)
}

/// Returns the value that proves that a request comes from our own page: other pages cannot know it.
fn csrf_of(token: &str) -> String {
    fast_hash(&format!("page:{token}"))
}

impl FromRequestParts<Api> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let header = parts.headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
        let by_header = header.and_then(|v| v.strip_prefix("Bearer ")).map(str::trim);
        let by_cookie = by_header.is_none().then(|| cookie(parts)).flatten();
        let token = by_header.or(by_cookie).ok_or_else(Problem::unauthenticated)?;
        let found = api.users.of_token(token, now());
        let (name, account, info) = found.ok_or_else(Problem::unauthenticated)?;
        let csrf = by_cookie.map(csrf_of);
        let changes = ![Method::GET, Method::HEAD, Method::OPTIONS].contains(&parts.method);
        if let Some(csrf) = csrf.as_ref().filter(|_| changes) {
            let sent = parts.headers.get("x-csrf-token").and_then(|v| v.to_str().ok());
            if sent != Some(csrf.as_str()) {
                return Err(Problem::forbidden(
                    "header X-Csrf-Token is missing or wrong; reload the page",
                ));
            }
        }
        if changes && info.scope == Scope::Read {
            return Err(Problem::forbidden(
                "this token is read-only; create one with scope jobs or all",
            ));
        }
        api.limits.count(&name)?;
        let user = User {
            name,
            admin: account.admin && info.scope == Scope::All,
            roles: account.roles,
            scope: info.scope,
        };
        Ok(Self {
            user,
            token: info,
            csrf,
        })
    }
}

impl FromRequestParts<Api> for User {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        Caller::from_request_parts(parts, api)
            .await
            .map(|caller| caller.user)
    }
}

impl User {
    /// Returns an error unless the user is an administrator.
    pub(crate) fn require_admin(&self) -> Result<(), Problem> {
        match self.admin {
            true => Ok(()),
            false => Err(Problem::forbidden("only administrators may do this")),
        }
    }

    /// Returns an error unless the token may do everything that its owner may.
    pub(crate) fn require_full_scope(&self) -> Result<(), Problem> {
        match self.scope {
            Scope::All => Ok(()),
            Scope::Read | Scope::Jobs => Err(Problem::forbidden("this token needs scope all to do this")),
        }
    }

    /// Returns the role of the user in a virtual cluster.
    pub(crate) fn role_in(&self, state: &ClusterState, cluster: &str) -> Option<Role> {
        if self.admin {
            return Some(Role::Administrator);
        }
        let default = state
            .virtual_clusters()
            .get(cluster)
            .map(|c| c.everyone)
            .unwrap_or_default();
        let own = self.roles.get(cluster).copied();
        own.max(Role::by_default(default))
    }

    /// Whether the user may see a job.
    pub(crate) fn may_see(&self, state: &ClusterState, job: &JobRecord) -> bool {
        self.admin
            || self.name == job.user
            || (!job.request.private && self.role_in(state, &job.request.tenant).is_some())
    }

    /// Whether the user may change a job and read its logs.
    pub(crate) fn may_control(&self, state: &ClusterState, job: &JobRecord) -> bool {
        let operates = || self.role_in(state, &job.request.tenant) >= Some(Role::Operator);
        self.admin || self.name == job.user || (!job.request.private && operates())
    }
}

impl From<UsersError> for Problem {
    fn from(error: UsersError) -> Self {
        match error {
            UsersError::Password(_) => Self::invalid(error.to_string()),
            // The path stays in the log.
            UsersError::File { .. } | UsersError::Content { .. } => {
                tracing::error!(%error, "cannot change the users");
                Self::unavailable("the file of users cannot be written; see the log of the server")
            }
            _ => Self::conflict(error.to_string()),
        }
    }
}

fn cookie_of(api: &Api, token: &str, seconds: i64) -> String {
    let secure = if api.config.tls { "; Secure" } else { "" };
    format!("{COOKIE_NAME}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

pub(crate) async fn sign_in(
    State(api): State<Api>,
    body: Result<Json<SignIn>, JsonRejection>,
) -> Result<Response, Problem> {
    let Json(SignIn { name, password }) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    api.limits.check_guess(&name)?;
    let (users, user) = (api.users.clone(), name.clone());
    // Hashing is slow on purpose; it must not block other requests.
    let matches = tokio::task::spawn_blocking(move || users.has_password(&user, &password)).await;
    if !matches.unwrap_or(false) {
        api.limits.record_failure(&name);
        api.audit.record(&name, "sign-in-failed", &name, None, None);
        return Err(Problem::wrong_password());
    }
    api.limits.reset(&name);
    let token = new_session(&api, &name, SESSION, "password")?;
    let account = api.users.account(&name).ok_or_else(Problem::unauthenticated)?;
    let user = super::routes::current_user(&name, &account, Some(csrf_of(&token)));
    let cookie = [(SET_COOKIE, cookie_of(&api, &token, SESSION.0 / 1_000_000))];
    Ok((cookie, Json(SessionView { user })).into_response())
}

fn new_session(api: &Api, name: &str, validity: Time, via: &str) -> Result<String, Problem> {
    let info = TokenInfo {
        session: true,
        expires: Some(now() + validity),
        ..new_token("browser", Scope::All)
    };
    let token = api.users.add_token(name, info, now())?;
    let after = (via != "password").then(|| serde_json::json!({"via": via}));
    api.audit.record(name, "sign-in", name, None, after);
    Ok(token)
}

/// Opens a session for a user that an external provider has authenticated, and returns its cookie.
pub(crate) fn open_session(api: &Api, name: &str, validity: Time, via: &str) -> Result<String, Problem> {
    let token = new_session(api, name, validity, via)?;
    Ok(cookie_of(api, &token, validity.0 / 1_000_000))
}

pub(crate) async fn sign_out(State(api): State<Api>, caller: Caller) -> Result<Response, Problem> {
    if caller.token.session {
        api.users.remove_token(&caller.user.name, &caller.token.id)?;
    }
    let cleared = [(SET_COOKIE, cookie_of(&api, "", 0))];
    Ok((StatusCode::NO_CONTENT, cleared).into_response())
}
