//! Routes of accounts: the caller's own, and those of all users for administrators.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::json;

use super::account::Account;
use super::auth::{Caller, User};
use crate::views::{AccountChange, AccountView, CurrentUser, NewPassword, NewUser, NewUserSecrets};
use crate::{Api, Problem};

pub(super) fn current_user(name: &str, account: &Account, csrf: Option<String>) -> CurrentUser {
    CurrentUser {
        name: name.to_owned(),
        admin: account.admin,
        email: account.email.clone(),
        roles: account.roles.clone(),
        via: if csrf.is_some() { "session" } else { "token" }.to_owned(),
        must_change_password: account.must_change_password,
        csrf,
    }
}

fn view(name: &str, account: &Account) -> AccountView {
    AccountView {
        name: name.to_owned(),
        admin: account.admin,
        email: account.email.clone(),
        roles: account.roles.clone(),
        has_password: account.has_password(),
        tokens: account.tokens.iter().filter(|t| !t.session).count() as u64,
    }
}

/// Returns an error unless the text is empty or exactly one mail address.
pub(crate) fn require_address(email: &str) -> Result<(), Problem> {
    match email.is_empty() || dovetail_outbound::is_address(email) {
        true => Ok(()),
        false => Err(Problem::invalid(format!(
            "email: invalid value {email:?}: expected an address such as ann@example.org"
        ))),
    }
}

fn own_account(api: &Api, user: &User) -> Result<Account, Problem> {
    api.users.account(&user.name).ok_or_else(Problem::unauthenticated)
}

pub(crate) async fn me(State(api): State<Api>, caller: Caller) -> Result<Json<CurrentUser>, Problem> {
    let account = own_account(&api, &caller.user)?;
    let mut me = current_user(&caller.user.name, &account, caller.csrf);
    me.admin = caller.user.admin;
    Ok(Json(me))
}

/// Hashes and stores a password without blocking other requests.
async fn store_password(
    api: &Api,
    name: &str,
    new: Option<String>,
    must_change: bool,
) -> Result<String, Problem> {
    let (users, name) = (api.users.clone(), name.to_owned());
    let stored = tokio::task::spawn_blocking(move || users.set_password(&name, new.as_deref(), must_change));
    Ok(stored.await.map_err(|e| Problem::unavailable(e.to_string()))??)
}

pub(crate) async fn set_password(
    State(api): State<Api>,
    user: User,
    body: Result<Json<NewPassword>, JsonRejection>,
) -> Result<StatusCode, Problem> {
    user.require_full_scope()?;
    let Json(NewPassword { old, new }) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    api.limits.check_guess(&user.name)?;
    if own_account(&api, &user)?.has_password() {
        let (users, name) = (api.users.clone(), user.name.clone());
        let matches = tokio::task::spawn_blocking(move || users.has_password(&name, &old)).await;
        if !matches.unwrap_or(false) {
            api.limits.record_failure(&user.name);
            return Err(Problem::forbidden("old: wrong password"));
        }
    }
    store_password(&api, &user.name, Some(new), false).await?;
    api.audit
        .record(&user.name, "password-changed", &user.name, None, None);
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn list(State(api): State<Api>, user: User) -> Result<Json<Vec<AccountView>>, Problem> {
    user.require_admin()?;
    let all = api.users.all();
    Ok(Json(
        all.iter().map(|(name, account)| view(name, account)).collect(),
    ))
}

pub(crate) async fn add(
    State(api): State<Api>,
    user: User,
    body: Result<Json<NewUser>, JsonRejection>,
) -> Result<(StatusCode, Json<NewUserSecrets>), Problem> {
    user.require_admin()?;
    let Json(new) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    require_address(&new.email)?;
    let token = api.users.add(&new.name, new.admin)?;
    let has_chosen_password = new.password.is_some();
    let account = api.users.edit(&new.name, |account| {
        account.email = new.email;
        account.roles = new.roles;
    })?;
    let password = match store_password(&api, &new.name, new.password, true).await {
        Ok(password) => password,
        Err(problem) => {
            api.users.remove(&new.name)?;
            return Err(problem);
        }
    };
    let after = json!(view(&new.name, &account));
    api.audit
        .record(&user.name, "user-added", &new.name, None, Some(after));
    let secrets = NewUserSecrets {
        token,
        password: (!has_chosen_password).then_some(password),
    };
    Ok((StatusCode::CREATED, Json(secrets)))
}

fn find(api: &Api, name: &str) -> Result<Account, Problem> {
    let account = api.users.account(name);
    account.ok_or_else(|| Problem::not_found(format!("unknown user {name:?}")))
}

pub(crate) async fn change(
    State(api): State<Api>,
    user: User,
    Path(name): Path<String>,
    body: Result<Json<AccountChange>, JsonRejection>,
) -> Result<Json<AccountView>, Problem> {
    user.require_admin()?;
    let Json(change) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    require_address(change.email.as_deref().unwrap_or_default())?;
    let before = find(&api, &name)?;
    if name == user.name && change.admin == Some(false) {
        return Err(Problem::conflict(
            "administrators cannot remove their own role; ask another administrator",
        ));
    }
    if let Some(password) = change.password {
        store_password(&api, &name, Some(password), name != user.name).await?;
        api.audit
            .record(&user.name, "password-changed", &name, None, None);
    }
    let account = api.users.edit(&name, |account| {
        account.admin = change.admin.unwrap_or(account.admin);
        account.email = change.email.unwrap_or_else(|| account.email.clone());
        account.roles = change.roles.unwrap_or_else(|| account.roles.clone());
    })?;
    let (before, after) = (view(&name, &before), view(&name, &account));
    if before != after {
        let (before, after) = (json!(before), json!(after));
        api.audit
            .record(&user.name, "user-changed", &name, Some(before), Some(after));
    }
    Ok(Json(view(&name, &account)))
}

pub(crate) async fn remove(
    State(api): State<Api>,
    user: User,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    user.require_admin()?;
    if name == user.name {
        return Err(Problem::conflict(
            "administrators cannot remove themselves; ask another administrator",
        ));
    }
    let before = view(&name, &find(&api, &name)?);
    api.users.remove(&name)?;
    api.audit
        .record(&user.name, "user-removed", &name, Some(json!(before)), None);
    Ok(StatusCode::NO_CONTENT)
}
