//! Tokens of the calling user.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use dovetail_model::Time;

use super::account::{TokenInfo, new_token};
use super::auth::User;
use crate::views::{CreatedToken, NewToken, TokenView};
use crate::{Api, Problem, now};

pub(crate) async fn list(State(api): State<Api>, user: User) -> Result<Json<Vec<TokenView>>, Problem> {
    let account = api
        .users
        .account(&user.name)
        .ok_or_else(Problem::unauthenticated)?;
    let view = |t: &TokenInfo| TokenView {
        id: t.id.clone(),
        label: t.label.clone(),
        scope: t.scope,
        session: t.session,
        created: t.created,
        expires: t.expires,
    };
    Ok(Json(account.tokens.iter().map(view).collect()))
}

/// Maximum validity of a token that expires, in seconds: ten years.
const MAX_VALIDITY_S: f64 = 315_576_000.0;

pub(crate) async fn add(
    State(api): State<Api>,
    user: User,
    body: Result<Json<NewToken>, JsonRejection>,
) -> Result<(StatusCode, Json<CreatedToken>), Problem> {
    user.require_full_scope()?;
    let Json(new) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    if new.label.chars().count() > 100 {
        return Err(Problem::invalid("label: exceeds 100 characters"));
    }
    if new.expires_s.is_some_and(|s| !(s > 0.0 && s <= MAX_VALIDITY_S)) {
        return Err(Problem::invalid(
            "expires_s: must be more than 0 and at most ten years, in seconds",
        ));
    }
    let info = TokenInfo {
        expires: new.expires_s.map(|s| now() + Time::from_secs_f64(s)),
        ..new_token(&new.label, new.scope)
    };
    let id = info.id.clone();
    let token = api.users.add_token(&user.name, info, now())?;
    api.audit.record(
        &user.name,
        "token-added",
        &id,
        None,
        Some(serde_json::json!({"scope": new.scope})),
    );
    Ok((StatusCode::CREATED, Json(CreatedToken { id, token })))
}

pub(crate) async fn remove(
    State(api): State<Api>,
    user: User,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    user.require_full_scope()?;
    let account = api
        .users
        .account(&user.name)
        .ok_or_else(Problem::unauthenticated)?;
    if !account.tokens.iter().any(|t| t.id == id) {
        return Err(Problem::not_found(format!("unknown token {id:?}")));
    }
    api.users.remove_token(&user.name, &id)?;
    api.audit.record(&user.name, "token-removed", &id, None, None);
    Ok(StatusCode::NO_CONTENT)
}
