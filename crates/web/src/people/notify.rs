//! When somebody wants to be told of its jobs, and how.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use dovetail_control::{JobNotify, Occasion, check_pending, check_webhook};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::User;
use super::passwords::random_hex;
use crate::views::NotifyTried;
use crate::{Api, Problem};

/// When somebody wants to be told of its jobs, and how.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Notify {
    /// By mail, where the server can send some.
    pub email: bool,
    /// By a request to this address; empty for none.
    pub webhook: String,
    /// Of what.
    pub on: Vec<Occasion>,
    /// So long a job waits before that is too long, in seconds; 0 for as the server has it.
    pub pending_s: f64,
    /// A job that uses less of its GPUs than this hardly uses them, in percent; 0 for as the server has it.
    pub low_gpu_percent: f64,
    /// What requests are signed with. Left out it stays, empty a new one is drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl Notify {
    /// Checks that it makes sense.
    ///
    /// # Errors
    /// Names the field and what would be accepted.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if !self.webhook.is_empty() {
            check_webhook(&self.webhook)?;
            let parsed: Result<dovetail_courier::Url, _> = self.webhook.parse();
            parsed.map_err(|e| format!("webhook: {e}"))?;
        }
        check_pending(self.pending_s)?;
        if !(0.0..=100.0).contains(&self.low_gpu_percent) {
            return Err("low_gpu_percent: must be from 0 to 100".to_owned());
        }
        let is_fine = |s: &String| {
            s.is_empty() || (16..=200).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_graphic())
        };
        if !self.secret.as_ref().is_none_or(is_fine) {
            return Err(
                "secret: expected 16 to 200 visible ASCII characters, or none to have one drawn".to_owned(),
            );
        }
        Ok(())
    }

    /// The same with what a job says of it.
    pub(crate) fn for_job(&self, said: Option<&JobNotify>) -> Self {
        let mut own = self.clone();
        if let Some(said) = said {
            own.on = said.on.clone().unwrap_or(own.on);
            own.email = said.email.unwrap_or(own.email);
            own.webhook = said.webhook.clone().unwrap_or(own.webhook);
            own.pending_s = said.pending_s.unwrap_or(own.pending_s);
        }
        own
    }

    /// Takes the place of what was before, and has a secret if requests are to be signed.
    fn after(mut self, before: &Self) -> Self {
        self.secret = match self.secret {
            Some(new) if !new.is_empty() => Some(new),
            Some(_) => Some(random_hex::<24>()),
            None => before.secret.clone(),
        };
        if self.secret.is_none() && !self.webhook.is_empty() {
            self.secret = Some(random_hex::<24>());
        }
        self
    }
}

fn own(api: &Api, user: &User) -> Result<Notify, Problem> {
    let account = api.users.account(&user.name);
    account.map(|a| a.notify).ok_or_else(Problem::unauthenticated)
}

pub(crate) async fn show(State(api): State<Api>, user: User) -> Result<Json<Notify>, Problem> {
    let mut notify = own(&api, &user)?;
    if user.must_be_whole().is_err() {
        notify.secret = None;
    }
    Ok(Json(notify))
}

pub(crate) async fn set(
    State(api): State<Api>,
    user: User,
    body: Result<Json<Notify>, JsonRejection>,
) -> Result<Json<Notify>, Problem> {
    user.must_be_whole()?;
    let Json(notify) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    notify.validate().map_err(Problem::invalid)?;
    let account = api.users.edit(&user.name, |account| {
        account.notify = notify.after(&account.notify);
    })?;
    Ok(Json(account.notify))
}

/// Tries each way there is, now.
pub(crate) async fn test(State(api): State<Api>, user: User) -> Result<Json<NotifyTried>, Problem> {
    user.must_be_whole()?;
    api.limits.may_test(&user.name)?;
    let account = api
        .users
        .account(&user.name)
        .ok_or_else(Problem::unauthenticated)?;
    let Some(notifier) = &api.config.notifier else {
        return Err(Problem::unavailable("this server tells nobody anything"));
    };
    Ok(Json(
        notifier.test(&user.name, &account.notify, &account.email).await,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_until_another_is_asked_for_and_jobs_say_their_own() {
        let first = Notify {
            webhook: "https://h.example/x".to_owned(),
            on: vec![Occasion::Failed],
            ..Notify::default()
        }
        .after(&Notify::default());
        let secret = first.secret.clone().unwrap();
        assert_eq!(secret.len(), 48);
        let kept = Notify::default().after(&first);
        assert_eq!(kept.secret.as_ref(), Some(&secret));
        let drawn = Notify {
            secret: Some(String::new()),
            ..Notify::default()
        };
        assert_ne!(drawn.after(&first).secret.unwrap(), secret);
        assert_eq!(Notify::default().after(&Notify::default()).secret, None);
        let said = JobNotify {
            on: Some(Vec::new()),
            email: Some(true),
            ..JobNotify::default()
        };
        let job = first.for_job(Some(&said));
        assert!(job.on.is_empty() && job.email && job.webhook == first.webhook);
        assert_eq!(first.for_job(None), first);
    }

    #[test]
    fn settings_are_looked_at() {
        let wrong = |change: fn(&mut Notify)| {
            let mut notify = Notify::default();
            change(&mut notify);
            notify.validate().is_err()
        };
        assert!(wrong(|n| n.webhook = "ftp://x".to_owned()));
        assert!(wrong(|n| n.webhook = "https://user:pw@h/".to_owned()));
        assert!(wrong(|n| n.pending_s = -1.0));
        assert!(wrong(|n| n.low_gpu_percent = 101.0));
        assert!(wrong(|n| n.secret = Some("short".to_owned())));
        assert!(Notify::default().validate().is_ok());
    }
}
