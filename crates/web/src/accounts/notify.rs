//! Notification settings of users.

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use dovetail_cluster::{JobNotifications, NotificationKind, validate_pending_limit, validate_webhook};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::User;
use super::passwords::random_hex;
use crate::views::NotifyTest;
use crate::{Api, Problem};

/// The events a user is notified about, and the channels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Notify {
    /// Whether to send mail, if the server is configured to.
    pub email: bool,
    /// URL to send requests to; empty for none.
    pub webhook: String,
    /// Events to notify about.
    pub on: Vec<NotificationKind>,
    /// Waiting time after which `pending-too-long` is sent, in seconds; 0 for the default of the server.
    pub pending_s: f64,
    /// GPU utilization below which `low-gpu-use` is sent, in percent; 0 for the default of the server.
    pub low_gpu_percent: f64,
    /// Secret that requests are signed with. If it is left out the current one stays; if it is empty a new one is generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// A notification setting that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotifyError {
    /// The webhook or the waiting time of a job's notifications.
    #[error("{0}")]
    Job(String),
    /// The webhook is not a URL.
    #[error("webhook: {0}")]
    Webhook(String),
    /// A percentage out of range.
    #[error("low_gpu_percent: must be from 0 to 100")]
    Percent,
    /// A secret that is too short, too long or not printable.
    #[error("secret: expected 16 to 200 printable ASCII characters, or an empty string to generate one")]
    Secret,
}

impl Notify {
    /// Returns an error that names the first setting that is not valid.
    pub(crate) fn validate(&self) -> Result<(), NotifyError> {
        if !self.webhook.is_empty() {
            validate_webhook(&self.webhook).map_err(|e| NotifyError::Job(e.to_string()))?;
            let parsed: Result<dovetail_outbound::Url, _> = self.webhook.parse();
            parsed.map_err(|e| NotifyError::Webhook(e.to_string()))?;
        }
        validate_pending_limit(self.pending_s).map_err(|e| NotifyError::Job(e.to_string()))?;
        if !(0.0..=100.0).contains(&self.low_gpu_percent) {
            return Err(NotifyError::Percent);
        }
        let is_valid = |s: &String| {
            s.is_empty() || (16..=200).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_graphic())
        };
        if !self.secret.as_ref().is_none_or(is_valid) {
            return Err(NotifyError::Secret);
        }
        Ok(())
    }

    /// Returns the settings for a job, where what the job asks for takes precedence.
    pub(crate) fn for_job(&self, job: Option<&JobNotifications>) -> Self {
        let mut own = self.clone();
        if let Some(job) = job {
            own.on = job.on.clone().unwrap_or(own.on);
            own.email = job.email.unwrap_or(own.email);
            own.webhook = job.webhook.clone().unwrap_or(own.webhook);
            own.pending_s = job.pending_s.unwrap_or(own.pending_s);
        }
        own
    }

    /// Returns the settings that replace `before`, with a secret if there is a webhook.
    fn replacing(mut self, before: &Self) -> Self {
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
    if user.require_full_scope().is_err() {
        notify.secret = None;
    }
    Ok(Json(notify))
}

pub(crate) async fn set(
    State(api): State<Api>,
    user: User,
    body: Result<Json<Notify>, JsonRejection>,
) -> Result<Json<Notify>, Problem> {
    user.require_full_scope()?;
    let Json(notify) = body.map_err(|e| Problem::invalid(e.body_text()))?;
    notify.validate().map_err(|e| Problem::invalid(e.to_string()))?;
    let account = api.users.edit(&user.name, |account| {
        account.notify = notify.replacing(&account.notify);
    })?;
    Ok(Json(account.notify))
}

/// Sends a test notification over each channel of the caller.
pub(crate) async fn test(State(api): State<Api>, user: User) -> Result<Json<NotifyTest>, Problem> {
    user.require_full_scope()?;
    api.limits.count_test(&user.name)?;
    let account = api
        .users
        .account(&user.name)
        .ok_or_else(Problem::unauthenticated)?;
    let Some(notifier) = &api.config.notifier else {
        return Err(Problem::unavailable(
            "notifications are not configured on this server",
        ));
    };
    Ok(Json(
        notifier
            .delivery
            .test(&user.name, &account.notify, &account.email)
            .await,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_stays_until_a_new_one_is_requested_and_jobs_override_settings() {
        let first = Notify {
            webhook: "https://h.example/x".to_owned(),
            on: vec![NotificationKind::Failed],
            ..Notify::default()
        }
        .replacing(&Notify::default());
        let secret = first.secret.clone().unwrap();
        assert_eq!(secret.len(), 48);
        let same = Notify::default().replacing(&first);
        assert_eq!(same.secret.as_ref(), Some(&secret));
        let generated = Notify {
            secret: Some(String::new()),
            ..Notify::default()
        };
        assert_ne!(generated.replacing(&first).secret.unwrap(), secret);
        assert_eq!(Notify::default().replacing(&Notify::default()).secret, None);
        let of_job = JobNotifications {
            on: Some(Vec::new()),
            email: Some(true),
            ..JobNotifications::default()
        };
        let job = first.for_job(Some(&of_job));
        assert!(job.on.is_empty() && job.email && job.webhook == first.webhook);
        assert_eq!(first.for_job(None), first);
    }

    #[test]
    fn invalid_settings_are_refused() {
        let is_refused = |change: fn(&mut Notify)| {
            let mut notify = Notify::default();
            change(&mut notify);
            notify.validate().is_err()
        };
        assert!(is_refused(|n| n.webhook = "ftp://x".to_owned()));
        assert!(is_refused(|n| n.webhook = "https://user:pw@h/".to_owned()));
        assert!(is_refused(|n| n.pending_s = -1.0));
        assert!(is_refused(|n| n.low_gpu_percent = 101.0));
        assert!(is_refused(|n| n.secret = Some("short".to_owned())));
        assert!(Notify::default().validate().is_ok());
    }
}
