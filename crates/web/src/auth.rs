//! Who asks, and who may be asked about.

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use crate::users::{User, UsersError};
use crate::views::{NewUser, Token, UserView};
use crate::{Api, Problem};

impl FromRequestParts<Api> for User {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let shown = parts.headers.get(AUTHORIZATION).and_then(|v| v.to_str().ok());
        let token = shown.and_then(|v| v.strip_prefix("Bearer "));
        token
            .and_then(|token| api.users.of_token(token.trim()))
            .ok_or_else(Problem::unauthenticated)
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
}

impl From<UsersError> for Problem {
    fn from(error: UsersError) -> Self {
        match error {
            UsersError::Name(what) => Self::conflict(what),
            // The path is nobody's business.
            UsersError::File { .. } | UsersError::Content { .. } => {
                tracing::error!(%error, "users cannot be changed");
                Self::unavailable("the file of users cannot be written now")
            }
        }
    }
}

fn view(user: User) -> UserView {
    UserView {
        name: user.name,
        admin: user.admin,
    }
}

pub(crate) async fn me(user: User) -> Json<UserView> {
    Json(view(user))
}

pub(crate) async fn list(State(api): State<Api>, user: User) -> Result<Json<Vec<UserView>>, Problem> {
    user.must_be_admin()?;
    Ok(Json(api.users.all().into_iter().map(view).collect()))
}

pub(crate) async fn add(
    State(api): State<Api>,
    user: User,
    body: Result<Json<NewUser>, axum::extract::rejection::JsonRejection>,
) -> Result<(StatusCode, Json<Token>), Problem> {
    user.must_be_admin()?;
    let Json(new) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    let token = api.users.add(&new.name, new.admin)?;
    tracing::info!(
        user = new.name,
        admin = new.admin,
        by = user.name,
        "a user was added"
    );
    Ok((StatusCode::CREATED, Json(Token { token })))
}

pub(crate) async fn remove(
    State(api): State<Api>,
    user: User,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    user.must_be_admin()?;
    if name == user.name {
        return Err(Problem::conflict(
            "nobody can remove itself; ask another administrator",
        ));
    }
    if !api.users.all().iter().any(|u| u.name == name) {
        return Err(Problem::not_found(format!("there is no user {name}")));
    }
    api.users.remove(&name)?;
    tracing::info!(user = name, by = user.name, "a user was removed");
    Ok(StatusCode::NO_CONTENT)
}
