//! Profiles of models, measured while jobs run.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use dovetail_cluster::{Actor, OperatorAction};
use dovetail_learning::owner_of;

use crate::accounts::User;
use crate::views::ProfileView;
use crate::{Api, Problem};

/// Whether a user may see a profile: administrators all of them; others those of models, and of their own jobs without one.
fn may_see(user: &User, key: &str) -> bool {
    user.admin || owner_of(key).is_none_or(|owner| owner == user.name)
}

pub(crate) async fn list(State(api): State<Api>, user: User) -> Json<Vec<ProfileView>> {
    Json(api.handle.read(|state| {
        let visible = state.profiles().iter().filter(|(key, _)| may_see(&user, key));
        visible
            .map(|(key, profile)| ProfileView::new(key, profile))
            .collect()
    }))
}

pub(crate) async fn show(
    State(api): State<Api>,
    user: User,
    Path(key): Path<String>,
) -> Result<Json<ProfileView>, Problem> {
    let view = api.handle.read(|state| {
        let profile = state.profiles().get(&key).filter(|_| may_see(&user, &key));
        profile.map(|profile| ProfileView::new(&key, profile))
    });
    let unknown = || Problem::not_found(format!("no profile of model {key:?}"));
    view.map(Json).ok_or_else(unknown)
}

pub(crate) async fn forget(
    State(api): State<Api>,
    user: User,
    Path(key): Path<String>,
) -> Result<StatusCode, Problem> {
    user.require_admin()?;
    let action = OperatorAction::ForgetProfile(key.clone());
    api.call(api.handle.operate(action, Actor::user(&user.name)))
        .await?;
    api.audit
        .record(&user.name, "forget", &format!("profile {key}"), None, None);
    Ok(StatusCode::NO_CONTENT)
}
