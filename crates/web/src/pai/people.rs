//! Signing in, tokens and users.

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

use super::error::Error;
use super::{Asker, message};
use crate::people::{Account, Role, Scope, User, UsersError, must_be_address, new_token};
use crate::{Api, now};

pub(super) async fn info() -> Json<Value> {
    Json(json!({
        "name": "Dovetail",
        "version": env!("CARGO_PKG_VERSION"),
        "launcherType": "k8s",
        "authnMethod": "basic",
    }))
}

/// A form, or the same as JSON.
fn form<T: DeserializeOwned>(headers: &HeaderMap, body: &Bytes) -> Result<T, Error> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    if kind.starts_with("application/json") {
        return serde_json::from_slice(body).map_err(|e| Error::parameters(e.to_string()));
    }
    let text = std::str::from_utf8(body).map_err(|_| Error::parameters("the form is not UTF-8"))?;
    let uri: Uri = format!("/?{text}")
        .parse()
        .map_err(|_| Error::parameters("the form is none"))?;
    let Query(read) = Query::try_from_uri(&uri).map_err(|e| Error::parameters(e.body_text()))?;
    Ok(read)
}

#[derive(Deserialize)]
struct Login {
    username: String,
    password: String,
    /// Seconds.
    expiration: Option<i64>,
}

pub(super) async fn login(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Error> {
    let Login {
        username,
        password,
        expiration,
    } = form(&headers, &body)?;
    let seconds = expiration.unwrap_or(86_400);
    if !(60..=604_800).contains(&seconds) {
        return Err(Error::parameters(
            "expiration: expected from 60 to 604800 seconds",
        ));
    }
    api.limits.may_try(&username)?;
    let (users, asked) = (api.users.clone(), username.clone());
    // Hashing takes a while, and others are to be served meanwhile.
    let fits = tokio::task::spawn_blocking(move || users.knows_password(&asked, &password)).await;
    if !fits.unwrap_or(false) {
        api.limits.failed(&username);
        api.audit.note(&username, "sign-in-failed", &username, None, None);
        let what = "The name or the password is wrong.";
        return Err(Error::new(
            StatusCode::BAD_REQUEST,
            "IncorrectPasswordError",
            what,
        ));
    }
    api.limits.succeeded(&username);
    let mut info = new_token("OpenPAI login", Scope::All);
    info.expires = Some(now() + Time::from_secs(seconds));
    let token = api.users.add_token(&username, info, now()).map_err(of_users)?;
    api.audit.note(&username, "sign-in", &username, None, None);
    let account = api.users.account(&username).unwrap_or_default();
    Ok(Json(json!({
        "user": username,
        "token": token,
        "admin": account.admin,
        "hasGitHubPAT": false,
    })))
}

pub(super) async fn logout(State(api): State<Api>, asker: Asker) -> Result<Json<Value>, Error> {
    // A token that was made for a program outlives a visit.
    if asker.0.token.expires.is_some() {
        let removed = api.users.remove_token(&asker.user().name, &asker.0.token.id);
        removed.map_err(of_users)?;
    }
    Ok(message("Logout successfully"))
}

pub(super) async fn tokens(State(api): State<Api>, asker: Asker) -> Json<Value> {
    let account = api.users.account(&asker.user().name).unwrap_or_default();
    // What a token is is not kept: they are listed by the ids with which they can be taken back.
    let ids: Vec<&str> = account.tokens.iter().map(|t| t.id.as_str()).collect();
    Json(json!({ "tokens": ids }))
}

pub(super) async fn application_token(State(api): State<Api>, asker: Asker) -> Result<Json<Value>, Error> {
    let user = asker.user();
    user.must_be_whole()?;
    let info = new_token("OpenPAI application", Scope::Jobs);
    let token = api.users.add_token(&user.name, info, now()).map_err(of_users)?;
    api.audit.note(&user.name, "token-add", &user.name, None, None);
    Ok(Json(json!({ "token": token, "application": true })))
}

pub(super) async fn check_token(_asker: Asker) -> Json<Value> {
    message("Token is valid.")
}

pub(super) async fn remove_token(
    State(api): State<Api>,
    asker: Asker,
    Path(token): Path<String>,
) -> Result<Json<Value>, Error> {
    let user = asker.user();
    let known = api.users.of_token(&token, now());
    let id = known
        .filter(|(name, _, _)| *name == user.name)
        .map_or(token, |(_, _, info)| info.id);
    let removed = api.users.remove_token(&user.name, &id);
    removed.map_err(|e| of_users(e).called("NoTokenError"))?;
    Ok(message("revoke successfully"))
}

fn of_users(error: UsersError) -> Error {
    Error::from(crate::Problem::from(error))
}

fn no_user(name: &str) -> Error {
    Error::new(
        StatusCode::NOT_FOUND,
        "NoUserError",
        format!("User {name} is not found."),
    )
}

/// A user, in OpenPAI's words.
fn shape(api: &Api, name: &str, account: &Account) -> Value {
    let user = User {
        name: name.to_owned(),
        admin: account.admin,
        roles: account.roles.clone(),
        scope: Scope::All,
    };
    let clusters: Vec<String> = api.handle.read(|book| {
        let names = book.clusters().names().into_iter();
        names
            .filter(|vc| user.role_in(book, vc) >= Some(Role::Member))
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

pub(super) async fn list(State(api): State<Api>, asker: Asker) -> Json<Value> {
    let all = api.users.all();
    // Who else there is is known to administrators alone.
    let seen = all
        .iter()
        .filter(|(name, _)| asker.user().admin || *name == asker.user().name);
    Json(seen.map(|(name, account)| shape(&api, name, account)).collect())
}

pub(super) async fn show(
    State(api): State<Api>,
    asker: Asker,
    Path(name): Path<String>,
) -> Result<Json<Value>, Error> {
    if !asker.user().admin && asker.user().name != name {
        return Err(Error::forbidden(format!(
            "User {} may not look at {name}.",
            asker.user().name
        )));
    }
    let account = api.users.account(&name).ok_or_else(|| no_user(&name))?;
    Ok(Json(shape(&api, &name, &account)))
}

/// A user to be, or what changes of one.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Change {
    username: String,
    password: Option<String>,
    old_password: Option<String>,
    new_password: Option<String>,
    email: Option<String>,
    admin: Option<bool>,
    virtual_cluster: Option<Vec<String>>,
}

/// Only what is given changes, or all of it.
#[derive(Debug, Deserialize)]
pub(super) struct Changes {
    data: Change,
    #[serde(default)]
    patch: bool,
}

fn roles(api: &Api, clusters: &[String]) -> Result<BTreeMap<String, Role>, Error> {
    let known = api.handle.read(|book| book.clusters().names());
    if let Some(wrong) = clusters.iter().find(|vc| !known.contains(vc)) {
        let what = format!("Virtual cluster {wrong} is not found.");
        return Err(Error::new(StatusCode::NOT_FOUND, "NoVirtualClusterError", what));
    }
    Ok(clusters.iter().map(|vc| (vc.clone(), Role::Member)).collect())
}

/// Does what is given to an account that is there.
fn apply(api: &Api, change: Change) -> Result<(), Error> {
    must_be_address(change.email.as_deref().unwrap_or_default())?;
    let given = change
        .virtual_cluster
        .as_deref()
        .map(|vcs| roles(api, vcs))
        .transpose()?;
    if let Some(password) = &change.password {
        api.users
            .set_password(&change.username, Some(password), false)
            .map_err(of_users)?;
    }
    let edited = api.users.edit(&change.username, |account| {
        account.admin = change.admin.unwrap_or(account.admin);
        if let Some(email) = change.email {
            account.email = email;
        }
        if let Some(given) = given {
            // What somebody may do beyond running jobs is not a matter of lists of virtual clusters.
            account
                .roles
                .retain(|vc, role| given.contains_key(vc) || *role == Role::Viewer);
            for (vc, role) in given {
                let own = account.roles.entry(vc).or_insert(role);
                *own = (*own).max(role);
            }
        }
    });
    edited.map(drop).map_err(of_users)
}

pub(super) async fn add(
    State(api): State<Api>,
    asker: Asker,
    body: Result<Json<Change>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), Error> {
    asker.user().must_be_admin()?;
    let Json(change) = body.map_err(|e| Error::parameters(e.body_text()))?;
    let name = change.username.clone();
    if change.password.is_none() {
        return Err(Error::parameters("password: is missing"));
    }
    if api.users.account(&name).is_some() {
        let what = format!("User {name} already exists.");
        return Err(Error::new(StatusCode::CONFLICT, "ConflictUserError", what));
    }
    let vcs = change.virtual_cluster.clone().unwrap_or_default();
    roles(&api, &vcs)?;
    let added = api.users.add(&name, false);
    added.map_err(|e| Error::parameters(e.to_string()))?;
    let (blocking, given) = (api.clone(), name.clone());
    let done = tokio::task::spawn_blocking(move || apply(&blocking, change)).await;
    if let Err(error) = done.unwrap_or_else(|e| Err(Error::parameters(e.to_string()))) {
        // Half a user is none.
        let _ = api.users.remove(&given);
        return Err(error);
    }
    api.audit.note(&asker.user().name, "user-add", &name, None, None);
    Ok((StatusCode::CREATED, message("User is created successfully")))
}

pub(super) async fn change(
    State(api): State<Api>,
    asker: Asker,
    body: Result<Json<Changes>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), Error> {
    asker.user().must_be_admin()?;
    let Json(Changes { data, patch }) = body.map_err(|e| Error::parameters(e.body_text()))?;
    let name = data.username.clone();
    if api.users.account(&name).is_none() {
        return Err(no_user(&name));
    }
    let whole = data.email.is_some() && data.admin.is_some() && data.virtual_cluster.is_some();
    if !patch && !whole {
        return Err(Error::parameters(
            "data: without patch, email, admin and virtualCluster are needed",
        ));
    }
    let blocking = api.clone();
    let done = tokio::task::spawn_blocking(move || apply(&blocking, data)).await;
    done.unwrap_or_else(|e| Err(Error::parameters(e.to_string())))?;
    api.audit
        .note(&asker.user().name, "user-change", &name, None, None);
    Ok((
        StatusCode::CREATED,
        message(format!("Update user {name} successfully")),
    ))
}

pub(super) async fn change_me(
    State(api): State<Api>,
    asker: Asker,
    body: Result<Json<Changes>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), Error> {
    let user = asker.user();
    user.must_be_whole()?;
    let Json(Changes { data, .. }) = body.map_err(|e| Error::parameters(e.body_text()))?;
    let name = user.name.clone();
    if !data.username.is_empty() && data.username != name {
        return Err(Error::forbidden("Only your own account can be changed here."));
    }
    if data.admin.is_some() || data.virtual_cluster.is_some() || data.password.is_some() {
        return Err(Error::forbidden("Only an administrator changes that."));
    }
    must_be_address(data.email.as_deref().unwrap_or_default())?;
    if let Some(new) = data.new_password {
        let (users, asked, old) = (
            api.users.clone(),
            name.clone(),
            data.old_password.unwrap_or_default(),
        );
        api.limits.may_try(&name)?;
        let set = tokio::task::spawn_blocking(move || match users.knows_password(&asked, &old) {
            true => users.set_password(&asked, Some(&new), false).map(Some),
            false => Ok(None),
        });
        let set = set
            .await
            .map_err(|e| Error::parameters(e.to_string()))?
            .map_err(of_users)?;
        if set.is_none() {
            api.limits.failed(&name);
            let what = "The old password is wrong.";
            return Err(Error::new(
                StatusCode::BAD_REQUEST,
                "IncorrectPasswordError",
                what,
            ));
        }
    }
    if let Some(email) = data.email {
        api.users
            .edit(&name, |account| account.email = email)
            .map_err(of_users)?;
    }
    Ok((
        StatusCode::CREATED,
        message(format!("Update user {name} successfully")),
    ))
}

pub(super) async fn remove(
    State(api): State<Api>,
    asker: Asker,
    Path(name): Path<String>,
) -> Result<Json<Value>, Error> {
    asker.user().must_be_admin()?;
    let account = api.users.account(&name).ok_or_else(|| no_user(&name))?;
    if account.admin {
        return Err(Error::new(
            StatusCode::FORBIDDEN,
            "RemoveAdminError",
            format!("User {name} is an administrator and cannot be removed; take that away first."),
        ));
    }
    api.users.remove(&name).map_err(of_users)?;
    api.audit
        .note(&asker.user().name, "user-remove", &name, None, None);
    Ok(message("user is removed successfully"))
}
