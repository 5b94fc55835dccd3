//! Accounts: one's own, and those of all for administrators.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::json;

use super::auth::{Asker, User};
use super::users::Account;
use crate::views::{AccountChange, AccountView, Me, NewPassword, NewUser, NewUserSecrets};
use crate::{Api, Problem};

pub(super) fn view_of_me(name: &str, account: &Account, csrf: Option<String>) -> Me {
    Me {
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

/// Where mail can reach somebody; nothing that could be more than one address.
pub(crate) fn must_be_address(email: &str) -> Result<(), Problem> {
    match email.is_empty() || dovetail_courier::is_address(email) {
        true => Ok(()),
        false => Err(Problem::invalid(format!(
            "email: {email:?} is none; expected one such as ann@example.org"
        ))),
    }
}

fn own(api: &Api, user: &User) -> Result<Account, Problem> {
    api.users.account(&user.name).ok_or_else(Problem::unauthenticated)
}

pub(crate) async fn me(State(api): State<Api>, asker: Asker) -> Result<Json<Me>, Problem> {
    let account = own(&api, &asker.user)?;
    let mut me = view_of_me(&asker.user.name, &account, asker.csrf);
    me.admin = asker.user.admin;
    Ok(Json(me))
}

/// Hashes and keeps a password without holding up other requests.
async fn keep_password(
    api: &Api,
    name: &str,
    new: Option<String>,
    must_change: bool,
) -> Result<String, Problem> {
    let (users, name) = (api.users.clone(), name.to_owned());
    let kept = tokio::task::spawn_blocking(move || users.set_password(&name, new.as_deref(), must_change));
    Ok(kept.await.map_err(|e| Problem::unavailable(e.to_string()))??)
}

pub(crate) async fn set_password(
    State(api): State<Api>,
    user: User,
    body: Result<Json<NewPassword>, JsonRejection>,
) -> Result<StatusCode, Problem> {
    user.must_be_whole()?;
    let Json(NewPassword { old, new }) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    api.limits.may_try(&user.name)?;
    if own(&api, &user)?.has_password() {
        let (users, name) = (api.users.clone(), user.name.clone());
        let fits = tokio::task::spawn_blocking(move || users.knows_password(&name, &old)).await;
        if !fits.unwrap_or(false) {
            api.limits.failed(&user.name);
            return Err(Problem::forbidden("old: is not the password"));
        }
    }
    keep_password(&api, &user.name, Some(new), false).await?;
    api.audit
        .note(&user.name, "password-changed", &user.name, None, None);
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn list(State(api): State<Api>, user: User) -> Result<Json<Vec<AccountView>>, Problem> {
    user.must_be_admin()?;
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
    user.must_be_admin()?;
    let Json(new) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    must_be_address(&new.email)?;
    let token = api.users.add(&new.name, new.admin)?;
    let chosen = new.password.is_some();
    let account = api.users.edit(&new.name, |account| {
        account.email = new.email;
        account.roles = new.roles;
    })?;
    let password = match keep_password(&api, &new.name, new.password, true).await {
        Ok(password) => password,
        Err(problem) => {
            api.users.remove(&new.name)?;
            return Err(problem);
        }
    };
    let after = json!(view(&new.name, &account));
    api.audit
        .note(&user.name, "user-added", &new.name, None, Some(after));
    let secrets = NewUserSecrets {
        token,
        password: (!chosen).then_some(password),
    };
    Ok((StatusCode::CREATED, Json(secrets)))
}

fn known(api: &Api, name: &str) -> Result<Account, Problem> {
    let account = api.users.account(name);
    account.ok_or_else(|| Problem::not_found(format!("there is no user {name}")))
}

pub(crate) async fn change(
    State(api): State<Api>,
    user: User,
    Path(name): Path<String>,
    body: Result<Json<AccountChange>, JsonRejection>,
) -> Result<Json<AccountView>, Problem> {
    user.must_be_admin()?;
    let Json(change) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    must_be_address(change.email.as_deref().unwrap_or_default())?;
    let before = known(&api, &name)?;
    if name == user.name && change.admin == Some(false) {
        return Err(Problem::conflict(
            "nobody can stop being administrator by itself; ask another one",
        ));
    }
    if let Some(password) = change.password {
        keep_password(&api, &name, Some(password), name != user.name).await?;
        api.audit.note(&user.name, "password-changed", &name, None, None);
    }
    let account = api.users.edit(&name, |account| {
        account.admin = change.admin.unwrap_or(account.admin);
        account.email = change.email.unwrap_or_else(|| account.email.clone());
        account.roles = change.roles.unwrap_or_else(|| account.roles.clone());
    })?;
    let (was, is) = (view(&name, &before), view(&name, &account));
    if was != is {
        let (was, is) = (json!(was), json!(is));
        api.audit
            .note(&user.name, "user-changed", &name, Some(was), Some(is));
    }
    Ok(Json(view(&name, &account)))
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
    let before = view(&name, &known(&api, &name)?);
    api.users.remove(&name)?;
    api.audit
        .note(&user.name, "user-removed", &name, Some(json!(before)), None);
    Ok(StatusCode::NO_CONTENT)
}
