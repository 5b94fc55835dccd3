//! Who asks: by a token, or by the cookie of a browser that has signed in.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequestParts, State};
use axum::http::header::{AUTHORIZATION, COOKIE, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use dovetail_control::book::{Book, JobRecord};
use dovetail_model::Time;

use super::passwords::fast_hash;
use super::roles::{Role, Scope};
use super::users::{TokenInfo, UsersError, new_token};
use crate::views::{SignIn, SignedIn};
use crate::{Api, Problem, now};

/// Somebody who asks for something.
#[derive(Debug, Clone, PartialEq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Whether it may do everything.
    pub admin: bool,
    /// What it may do in virtual clusters.
    pub roles: BTreeMap<String, Role>,
    /// What it may do by the token it shows.
    pub scope: Scope,
}

/// Somebody who asks, and by what it is known.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub(crate) user: User,
    pub(crate) token: TokenInfo,
    /// What a page has to send along to change anything; none for tokens.
    pub(crate) csrf: Option<String>,
}

const COOKIE_NAME: &str = "dovetail_session";
/// So long a browser stays signed in.
const SESSION: Time = Time::from_secs(7 * 86_400);

/// The token of the cookie, if there is one.
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

/// What proves that a request comes from our own page: another page cannot know it.
fn csrf_of(token: &str) -> String {
    fast_hash(&format!("page:{token}"))
}

impl FromRequestParts<Api> for Asker {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let shown = parts.headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
        let by_header = shown.and_then(|v| v.strip_prefix("Bearer ")).map(str::trim);
        let by_cookie = by_header.is_none().then(|| cookie(parts)).flatten();
        let token = by_header.or(by_cookie).ok_or_else(Problem::unauthenticated)?;
        let known = api.users.of_token(token, now());
        let (name, account, info) = known.ok_or_else(Problem::unauthenticated)?;
        let csrf = by_cookie.map(csrf_of);
        let changes = ![Method::GET, Method::HEAD, Method::OPTIONS].contains(&parts.method);
        if let Some(csrf) = csrf.as_ref().filter(|_| changes) {
            let sent = parts.headers.get("x-csrf-token").and_then(|v| v.to_str().ok());
            if sent != Some(csrf.as_str()) {
                return Err(Problem::forbidden(
                    "the header X-Csrf-Token is missing or wrong; reload the page",
                ));
            }
        }
        if changes && info.scope == Scope::Read {
            return Err(Problem::forbidden(
                "this token may only look; make one of scope jobs or all",
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
        Asker::from_request_parts(parts, api)
            .await
            .map(|asker| asker.user)
    }
}

impl User {
    /// Goes on only for administrators.
    pub(crate) fn must_be_admin(&self) -> Result<(), Problem> {
        match self.admin {
            true => Ok(()),
            false => Err(Problem::forbidden("only an administrator may do that")),
        }
    }

    /// Goes on only with a token that may do all its owner may.
    pub(crate) fn must_be_whole(&self) -> Result<(), Problem> {
        match self.scope {
            Scope::All => Ok(()),
            Scope::Read | Scope::Jobs => Err(Problem::forbidden("this token may only deal with jobs")),
        }
    }

    /// What it may do in a virtual cluster.
    pub(crate) fn role_in(&self, book: &Book, cluster: &str) -> Option<Role> {
        if self.admin {
            return Some(Role::Administrator);
        }
        let everyone = book
            .clusters()
            .get(cluster)
            .map(|c| c.everyone)
            .unwrap_or_default();
        let own = self.roles.get(cluster).copied();
        own.max(Role::of_everyone(everyone))
    }

    /// Whether it may know of a job.
    pub(crate) fn may_see(&self, book: &Book, job: &JobRecord) -> bool {
        self.admin
            || self.name == job.user
            || (!job.request.private && self.role_in(book, &job.request.tenant).is_some())
    }

    /// Whether it may do something to a job, and read what it prints.
    pub(crate) fn may_touch(&self, book: &Book, job: &JobRecord) -> bool {
        let operates = || self.role_in(book, &job.request.tenant) >= Some(Role::Operator);
        self.admin || self.name == job.user || (!job.request.private && operates())
    }
}

impl From<UsersError> for Problem {
    fn from(error: UsersError) -> Self {
        match error {
            UsersError::Name(what) => Self::conflict(what),
            UsersError::Password(what) => Self::invalid(what),
            // The path is nobody's business.
            UsersError::File { .. } | UsersError::Content { .. } => {
                tracing::error!(%error, "users cannot be changed");
                Self::unavailable("the file of users cannot be written now")
            }
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
    api.limits.may_try(&name)?;
    let (users, asked) = (api.users.clone(), name.clone());
    // Hashing takes a while, and others are to be served meanwhile.
    let fits = tokio::task::spawn_blocking(move || users.knows_password(&asked, &password)).await;
    if !fits.unwrap_or(false) {
        api.limits.failed(&name);
        api.audit.note(&name, "sign-in-failed", &name, None, None);
        return Err(Problem::wrong_password());
    }
    api.limits.succeeded(&name);
    let token = new_session(&api, &name, SESSION, "password")?;
    let account = api.users.account(&name).ok_or_else(Problem::unauthenticated)?;
    let user = super::accounts::view_of_me(&name, &account, Some(csrf_of(&token)));
    let cookie = [(SET_COOKIE, cookie_of(&api, &token, SESSION.0 / 1_000_000))];
    Ok((cookie, Json(SignedIn { user })).into_response())
}

fn new_session(api: &Api, name: &str, span: Time, via: &str) -> Result<String, Problem> {
    let info = TokenInfo {
        session: true,
        expires: Some(now() + span),
        ..new_token("browser", Scope::All)
    };
    let token = api.users.add_token(name, info, now())?;
    let after = (via != "password").then(|| serde_json::json!({"via": via}));
    api.audit.note(name, "sign-in", name, None, after);
    Ok(token)
}

/// Signs somebody in whom somebody else vouches for; the cookie for its browser.
pub(crate) fn open_session(api: &Api, name: &str, span: Time, via: &str) -> Result<String, Problem> {
    let token = new_session(api, name, span, via)?;
    Ok(cookie_of(api, &token, span.0 / 1_000_000))
}

pub(crate) async fn sign_out(State(api): State<Api>, asker: Asker) -> Result<Response, Problem> {
    if asker.token.session {
        api.users.remove_token(&asker.user.name, &asker.token.id)?;
    }
    let cleared = [(SET_COOKIE, cookie_of(&api, "", 0))];
    Ok((StatusCode::NO_CONTENT, cleared).into_response())
}
