//! Delivery of notifications: in order for each recipient, with retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dovetail_outbound::{Client, HttpRequest, OutboundError, Smtp, Url};
use rand::Rng;
use tokio::sync::Semaphore;

use super::config::NotifyTiming;
use super::message::{Message, mail, signature};
use super::outbox::{Channel, Enqueued, Outbox, Recipient};
use crate::accounts::Notify;
use crate::now;
use crate::views::{DeliveryResult, NotifyTest};

/// Maximum number of notifications in one mail.
const MAX_PER_MAIL: usize = 50;

/// Maximum number of concurrent webhook requests.
const MAX_REQUESTS: usize = 64;
/// Maximum number of mails that are sent concurrently.
const MAX_MAILS: usize = 4;

/// Number of notifications that were delivered, given up, or dropped because too many were pending.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

/// Delivers notifications by webhook and mail.
#[derive(Debug)]
pub(crate) struct Delivery {
    client: Client,
    pub(super) smtp: Option<Smtp>,
    retry_delays: Vec<Duration>,
    /// Shortest time between two mails to a user.
    mail_interval: Duration,
    outbox: Outbox,
    requests: Semaphore,
    mails: Semaphore,
    pub(crate) counts: Counts,
}

impl Delivery {
    pub(super) fn new(client: Client, smtp: Option<Smtp>, timing: NotifyTiming) -> Self {
        Self {
            client,
            smtp,
            retry_delays: timing.retry_delays,
            mail_interval: timing.mail_interval,
            outbox: Outbox::default(),
            requests: Semaphore::new(MAX_REQUESTS),
            mails: Semaphore::new(MAX_MAILS),
            counts: Counts::default(),
        }
    }

    /// Returns the channels that a user has configured.
    pub(super) fn channels(&self, notify: &Notify, email: &str) -> Vec<Channel> {
        let webhook = (!notify.webhook.is_empty()).then(|| Channel::Webhook {
            url: notify.webhook.clone(),
            secret: notify.secret.clone().unwrap_or_default(),
        });
        let can_mail = notify.email && self.smtp.is_some() && dovetail_outbound::is_address(email);
        let mail = can_mail.then(|| Channel::Mail(email.to_owned()));
        webhook.into_iter().chain(mail).collect()
    }

    /// Queues a notification for delivery.
    pub(super) fn send(self: &Arc<Self>, recipient: Recipient, message: Message) {
        match self.outbox.put(&recipient, message) {
            Enqueued::Queued => {}
            Enqueued::Full => drop(self.counts.dropped.fetch_add(1, Ordering::Relaxed)),
            Enqueued::NewQueue => {
                let delivery = Arc::clone(self);
                tokio::spawn(async move { delivery.deliver_all(recipient).await });
            }
        }
    }

    /// Delivers the notifications of a recipient until none are pending.
    async fn deliver_all(&self, recipient: Recipient) {
        let limit = match &recipient.channel {
            Channel::Webhook { .. } => 1,
            Channel::Mail(_) => MAX_PER_MAIL,
        };
        loop {
            let messages = self.outbox.take(&recipient, limit);
            if messages.is_empty() {
                return;
            }
            let count = match self.deliver_with_retries(&recipient.channel, &messages).await {
                Ok(()) => &self.counts.sent,
                Err(error) => {
                    tracing::warn!(user = recipient.user, %error, "cannot deliver a notification");
                    &self.counts.failed
                }
            };
            count.fetch_add(messages.len() as u64, Ordering::Relaxed);
            if matches!(recipient.channel, Channel::Mail(_)) {
                tokio::time::sleep(self.mail_interval).await;
            }
        }
    }

    async fn deliver_with_retries(
        &self,
        channel: &Channel,
        messages: &[Message],
    ) -> Result<(), OutboundError> {
        // The same id for all attempts, so that the receiver can recognize duplicates.
        let id = random_id();
        let mut delays = self.retry_delays.iter();
        loop {
            let result = self.deliver(channel, messages, &id).await;
            match (&result, delays.next()) {
                (Err(error), Some(delay)) if error.is_transient() => {
                    tokio::time::sleep(jittered(*delay)).await;
                }
                _ => return result,
            }
        }
    }

    async fn deliver(&self, channel: &Channel, messages: &[Message], id: &str) -> Result<(), OutboundError> {
        let closed = |_| OutboundError::Unreachable("the server is shutting down".to_owned());
        match channel {
            Channel::Webhook { url, secret } => {
                let _permit = self.requests.acquire().await.map_err(closed)?;
                for message in messages {
                    self.post(url, secret, message, id).await?;
                }
                Ok(())
            }
            Channel::Mail(to) => {
                let _permit = self.mails.acquire().await.map_err(closed)?;
                let missing = || OutboundError::Invalid("mail is not configured on this server".to_owned());
                let smtp = self.smtp.as_ref().ok_or_else(missing)?;
                match mail(to, messages, id.to_owned(), now()) {
                    Some(mail) => smtp.send(&mail).await,
                    None => Ok(()),
                }
            }
        }
    }

    async fn post(&self, url: &str, secret: &str, message: &Message, id: &str) -> Result<(), OutboundError> {
        let url: Url = url.parse()?;
        let body = message.body();
        let mut headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("x-dovetail-event".to_owned(), message.event.to_owned()),
            ("x-dovetail-delivery".to_owned(), id.to_owned()),
        ];
        if !secret.is_empty() {
            let signature = signature(secret, now().0 / 1_000_000, &body);
            headers.push(("x-dovetail-signature".to_owned(), signature));
        }
        let request = HttpRequest {
            method: "POST".to_owned(),
            headers,
            body,
        };
        let reply = self.client.send(&url, request).await?;
        match reply.status {
            200..300 => Ok(()),
            status @ (408 | 425 | 429 | 500..) => Err(OutboundError::Deferred(format!("status {status}"))),
            status => Err(OutboundError::Rejected(format!("status {status}"))),
        }
    }

    /// Sends a test notification over each channel of a user, without retries.
    pub(crate) async fn test(&self, name: &str, notify: &Notify, email: &str) -> NotifyTest {
        let mut test = NotifyTest::default();
        let message = [Message::test(name, now())];
        for channel in self.channels(notify, email) {
            let delivered = self.deliver(&channel, &message, &random_id()).await;
            let result = Some(DeliveryResult {
                ok: delivered.is_ok(),
                detail: delivered.err().map(public_text).unwrap_or_default(),
            });
            match channel {
                Channel::Webhook { .. } => test.webhook = result,
                Channel::Mail(_) => test.email = result,
            }
        }
        if notify.email && test.email.is_none() {
            let detail = match self.smtp {
                None => "mail is not configured on this server (notify.smtp in server.yaml)",
                Some(_) => "your account has no mail address; ask an administrator to add it",
            };
            test.email = Some(DeliveryResult {
                ok: false,
                detail: detail.to_owned(),
            });
        }
        test
    }
}

/// Returns the error as shown to users, without details that would let them explore the network of the server.
fn public_text(error: OutboundError) -> String {
    match error {
        OutboundError::Unreachable(_) | OutboundError::Timeout => "unreachable".to_owned(),
        other => other.to_string(),
    }
}

fn random_id() -> String {
    format!(
        "{:032x}",
        rand::rng().next_u64() as u128 | (u128::from(rand::rng().next_u64()) << 64)
    )
}

/// Varies a delay by up to a quarter, so that deliveries that failed together are not retried together.
fn jittered(delay: Duration) -> Duration {
    let part = f64::from(rand::rng().next_u32()) / f64::from(u32::MAX);
    delay.mul_f64(0.75 + part / 2.0)
}
