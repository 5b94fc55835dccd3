//! Sign-in, tokens and users.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, Uri, header::CONTENT_TYPE};
use dovetail_model::Time;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::PaiError;
use super::{PaiCaller, message};
use crate::accounts::{Account, Role, Scope, User, UsersError, new_token, require_address};
use crate::{Api, now};

pub(super) async fn info() -> Json<Value> {
    Json(json!({
        "name": "Dovetail",
        "version": env!("CARGO_PKG_VERSION"),
        "launcherType": "k8s",
        "authnMethod": "basic",
    }))
}

/// Reads a body that is a form or JSON.
fn form<T: DeserializeOwned>(headers: &HeaderMap, body: &Bytes) -> Result<T, PaiError> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    if kind.starts_with("application/json") {
        return serde_json::from_slice(body).map_err(|e| PaiError::parameters(e.to_string()));
    }
    let text = std::str::from_utf8(body).map_err(|_| PaiError::parameters("the form is not UTF-8"))?;
    let uri: Uri = format!("/?{text}")
        .parse()
        .map_err(|_| PaiError::parameters("invalid form"))?;
    let Query(read) = Query::try_from_uri(&uri).map_err(|e| PaiError::parameters(e.body_text()))?;
    Ok(read)
}

#[derive(Deserialize)]
struct Login {
    username: String,
    password: String,
    /// Validity of the token, in seconds.
    expiration: Option<i64>,
}

pub(super) async fn login(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, PaiError> {
    let Login {
        username,
        password,
        expiration,
    } = form(&headers, &body)?;
    let seconds = expiration.unwrap_or(86_400);
    if !(60..=604_800).contains(&seconds) {
        return Err(PaiError::parameters(
            "expiration: expected from 60 to 604800 seconds",
        ));
    }
    api.limits.check_guess(&username)?;
    let (users, name) = (api.users.clone(), username.clone());
    // Hashing is slow on purpose; it must not block other requests.
    let matches = tokio::task::spawn_blocking(move || users.has_password(&name, &password)).await;
    if !matches.unwrap_or(false) {
        api.limits.record_failure(&username);
        api.audit
            .record(&username, "sign-in-failed", &username, None, None);
        let what = "Wrong user name or password.";
        return Err(PaiError::new(
            StatusCode::BAD_REQUEST,
            "IncorrectPasswordError",
            what,
        ));
    }
    api.limits.reset(&username);
    let mut info = new_token("OpenPAI login", Scope::All);
    info.expires = Some(now() + Time::from_secs(seconds));
    let token = api
        .users
        .add_token(&username, info, now())
        .map_err(from_users_error)?;
    api.audit.record(&username, "sign-in", &username, None, None);
    let account = api.users.account(&username).unwrap_or_default();
    Ok(Json(json!({
        "user": username,
        "token": token,
        "admin": account.admin,
        "hasGitHubPAT": false,
    })))
}

pub(super) async fn logout(State(api): State<Api>, caller: PaiCaller) -> Result<Json<Value>, PaiError> {
    // Tokens without expiry are for programs, and stay.
    if caller.0.token.expires.is_some() {
        let removed = api.users.remove_token(&caller.user().name, &caller.0.token.id);
        removed.map_err(from_users_error)?;
    }
    Ok(message("Logout successfully"))
}

pub(super) async fn tokens(State(api): State<Api>, caller: PaiCaller) -> Json<Value> {
    let account = api.users.account(&caller.user().name).unwrap_or_default();
    // Tokens are not stored: their ids are listed, by which they can be removed.
    let ids: Vec<&str> = account.tokens.iter().map(|t| t.id.as_str()).collect();
    Json(json!({ "tokens": ids }))
}

pub(super) async fn application_token(
    State(api): State<Api>,
    caller: PaiCaller,
) -> Result<Json<Value>, PaiError> {
    let user = caller.user();
    user.require_full_scope()?;
    let info = new_token("OpenPAI application", Scope::Jobs);
    let token = api
        .users
        .add_token(&user.name, info, now())
        .map_err(from_users_error)?;
    api.audit.record(&user.name, "token-add", &user.name, None, None);
    Ok(Json(json!({ "token": token, "application": true })))
}

pub(super) async fn check_token(_caller: PaiCaller) -> Json<Value> {
    message("Token is valid.")
}

pub(super) async fn remove_token(
    State(api): State<Api>,
    caller: PaiCaller,
    Path(token): Path<String>,
) -> Result<Json<Value>, PaiError> {
    let user = caller.user();
    let known = api.users.of_token(&token, now());
    let id = known
        .filter(|(name, _, _)| *name == user.name)
        .map_or(token, |(_, _, info)| info.id);
    let removed = api.users.remove_token(&user.name, &id);
    removed.map_err(|e| from_users_error(e).with_code("NoTokenError"))?;
    Ok(message("revoke successfully"))
}

fn from_users_error(error: UsersError) -> PaiError {
    PaiError::from(crate::Problem::from(error))
}

fn no_user(name: &str) -> PaiError {
    PaiError::new(
        StatusCode::NOT_FOUND,
        "NoUserError",
        format!("User {name} is not found."),
    )
}

/// Returns a user, in the format of OpenPAI.
fn shape(api: &Api, name: &str, account: &Account) -> Value {
    let user = User {
        name: name.to_owned(),
        admin: account.admin,
        roles: account.roles.clone(),
        scope: Scope::All,
    };
    let clusters: Vec<String> = api.handle.read(|state| {
        let names = state.virtual_clusters().names().into_iter();
        names
            .filter(|vc| user.role_in(state, vc) >= Some(Role::Member))
            .collect()
    });
    let mut groups = clusters.clone();
    if account.admin {
        groups.push("admingroup".to_owned());
    }
    json!({
        "username": name,
        "admin": account.admin,
        "virtualCluster": clusters,
        "storageConfig": [],
        "email": account.email,
        "extension": {},
        "grouplist": groups,
    })
}

pub(super) async fn list(State(api): State<Api>, caller: PaiCaller) -> Json<Value> {
    let all = api.users.all();
    // Only administrators see other users.
    let visible = all
        .iter()
        .filter(|(name, _)| caller.user().admin || *name == caller.user().name);
    Json(
        visible
            .map(|(name, account)| shape(&api, name, account))
            .collect(),
    )
}

pub(super) async fn show(
    State(api): State<Api>,
    caller: PaiCaller,
    Path(name): Path<String>,
) -> Result<Json<Value>, PaiError> {
    if !caller.user().admin && caller.user().name != name {
        return Err(PaiError::forbidden(format!(
            "User {} may not see user {name}.",
            caller.user().name
        )));
    }
    let account = api.users.account(&name).ok_or_else(|| no_user(&name))?;
    Ok(Json(shape(&api, &name, &account)))
}

/// A new user, or a change of one.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct UserChange {
    username: String,
    password: Option<String>,
    old_password: Option<String>,
    new_password: Option<String>,
    email: Option<String>,
    admin: Option<bool>,
    virtual_cluster: Option<Vec<String>>,
}

/// A change of a user: only of the given fields (`patch`), or of all.
#[derive(Debug, Deserialize)]
pub(super) struct UserChangeRequest {
    data: UserChange,
    #[serde(default)]
    patch: bool,
}

fn roles(api: &Api, clusters: &[String]) -> Result<BTreeMap<String, Role>, PaiError> {
    let known = api.handle.read(|state| state.virtual_clusters().names());
    if let Some(wrong) = clusters.iter().find(|vc| !known.contains(vc)) {
        let what = format!("Virtual cluster {wrong} is not found.");
        return Err(PaiError::new(
            StatusCode::NOT_FOUND,
            "NoVirtualClusterError",
            what,
        ));
    }
    Ok(clusters.iter().map(|vc| (vc.clone(), Role::Member)).collect())
}

/// Applies a change to an existing account.
fn apply(api: &Api, change: UserChange) -> Result<(), PaiError> {
    require_address(change.email.as_deref().unwrap_or_default())?;
    let roles_to_set = change
        .virtual_cluster
        .as_deref()
        .map(|vcs| roles(api, vcs))
        .transpose()?;
    if let Some(password) = &change.password {
        api.users
            .set_password(&change.username, Some(password), false)
            .map_err(from_users_error)?;
    }
    let edited = api.users.edit(&change.username, |account| {
        account.admin = change.admin.unwrap_or(account.admin);
        if let Some(email) = change.email {
            account.email = email;
        }
        if let Some(roles) = roles_to_set {
            // A list of virtual clusters does not change roles other than member.
            account
                .roles
                .retain(|vc, role| roles.contains_key(vc) || *role == Role::Viewer);
            for (vc, role) in roles {
                let own = account.roles.entry(vc).or_insert(role);
                *own = (*own).max(role);
            }
        }
    });
    edited.map(drop).map_err(from_users_error)
}

pub(super) async fn add(
    State(api): State<Api>,
    caller: PaiCaller,
    body: Result<Json<UserChange>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), PaiError> {
    caller.user().require_admin()?;
    let Json(change) = body.map_err(|e| PaiError::parameters(e.body_text()))?;
    let name = change.username.clone();
    if change.password.is_none() {
        return Err(PaiError::parameters("password: missing"));
    }
    if api.users.account(&name).is_some() {
        let what = format!("User {name} already exists.");
        return Err(PaiError::new(StatusCode::CONFLICT, "ConflictUserError", what));
    }
    let vcs = change.virtual_cluster.clone().unwrap_or_default();
    roles(&api, &vcs)?;
    let added = api.users.add(&name, false);
    added.map_err(|e| PaiError::parameters(e.to_string()))?;
    let (blocking, added_name) = (api.clone(), name.clone());
    let done = tokio::task::spawn_blocking(move || apply(&blocking, change)).await;
    if let Err(error) = done.unwrap_or_else(|e| Err(PaiError::parameters(e.to_string()))) {
        // No half-created user remains.
        let _ = api.users.remove(&added_name);
        return Err(error);
    }
    api.audit
        .record(&caller.user().name, "user-add", &name, None, None);
    Ok((StatusCode::CREATED, message("User is created successfully")))
}

pub(super) async fn change(
    State(api): State<Api>,
    caller: PaiCaller,
    body: Result<Json<UserChangeRequest>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), PaiError> {
    caller.user().require_admin()?;
    let Json(UserChangeRequest { data, patch }) = body.map_err(|e| PaiError::parameters(e.body_text()))?;
    let name = data.username.clone();
    if api.users.account(&name).is_none() {
        return Err(no_user(&name));
    }
    let is_complete = data.email.is_some() && data.admin.is_some() && data.virtual_cluster.is_some();
    if !patch && !is_complete {
        return Err(PaiError::parameters(
            "data: email, admin and virtualCluster are required unless patch is true",
        ));
    }
    let blocking = api.clone();
    let done = tokio::task::spawn_blocking(move || apply(&blocking, data)).await;
    done.unwrap_or_else(|e| Err(PaiError::parameters(e.to_string())))?;
    api.audit
        .record(&caller.user().name, "user-change", &name, None, None);
    Ok((
        StatusCode::CREATED,
        message(format!("Update user {name} successfully")),
    ))
}

pub(super) async fn change_me(
    State(api): State<Api>,
    caller: PaiCaller,
    body: Result<Json<UserChangeRequest>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), PaiError> {
    let user = caller.user();
    user.require_full_scope()?;
    let Json(UserChangeRequest { data, .. }) = body.map_err(|e| PaiError::parameters(e.body_text()))?;
    let name = user.name.clone();
    if !data.username.is_empty() && data.username != name {
        return Err(PaiError::forbidden("Only your own account can be changed here."));
    }
    if data.admin.is_some() || data.virtual_cluster.is_some() || data.password.is_some() {
        return Err(PaiError::forbidden(
            "Only administrators may change admin, virtualCluster and password.",
        ));
    }
    require_address(data.email.as_deref().unwrap_or_default())?;
    if let Some(new) = data.new_password {
        let (users, user_name, old) = (
            api.users.clone(),
            name.clone(),
            data.old_password.unwrap_or_default(),
        );
        api.limits.check_guess(&name)?;
        let set = tokio::task::spawn_blocking(move || match users.has_password(&user_name, &old) {
            true => users.set_password(&user_name, Some(&new), false).map(Some),
            false => Ok(None),
        });
        let set = set
            .await
            .map_err(|e| PaiError::parameters(e.to_string()))?
            .map_err(from_users_error)?;
        if set.is_none() {
            api.limits.record_failure(&name);
            let what = "The old password is wrong.";
            return Err(PaiError::new(
                StatusCode::BAD_REQUEST,
                "IncorrectPasswordError",
                what,
            ));
        }
    }
    if let Some(email) = data.email {
        api.users
            .edit(&name, |account| account.email = email)
            .map_err(from_users_error)?;
    }
    Ok((
        StatusCode::CREATED,
        message(format!("Update user {name} successfully")),
    ))
}

pub(super) async fn remove(
    State(api): State<Api>,
    caller: PaiCaller,
    Path(name): Path<String>,
) -> Result<Json<Value>, PaiError> {
    caller.user().require_admin()?;
    let account = api.users.account(&name).ok_or_else(|| no_user(&name))?;
    if account.admin {
        return Err(PaiError::new(
            StatusCode::FORBIDDEN,
            "RemoveAdminError",
            format!("User {name} is an administrator and cannot be removed; remove that role first."),
        ));
    }
    api.users.remove(&name).map_err(from_users_error)?;
    api.audit
        .record(&caller.user().name, "user-remove", &name, None, None);
    Ok(message("user is removed successfully"))
}
