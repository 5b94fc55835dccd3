//! Delivering: one thing after the other for each person and way, tried again where that may help.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dovetail_courier::{CourierError, Outgoing, Url};
use rand::Rng;

use super::config::Notifier;
use super::lanes::{Taken, Way, Whom};
use super::message::{Message, mail, signature};
use crate::now;
use crate::people::Notify;
use crate::views::{NotifyTried, Tried};

/// Things in one mail at most.
const MOST_IN_A_MAIL: usize = 50;

impl Notifier {
    /// The ways somebody is told, as it wants them.
    pub(super) fn ways(&self, notify: &Notify, email: &str) -> Vec<Way> {
        let webhook = (!notify.webhook.is_empty()).then(|| Way::Webhook {
            url: notify.webhook.clone(),
            secret: notify.secret.clone().unwrap_or_default(),
        });
        let can = notify.email && self.smtp.is_some() && dovetail_courier::is_address(email);
        let mail = can.then(|| Way::Mail(email.to_owned()));
        webhook.into_iter().chain(mail).collect()
    }

    /// Lets it wait to be delivered.
    pub(super) fn tell(self: &Arc<Self>, whom: Whom, message: Message) {
        match self.lanes.put(&whom, message) {
            Taken::Waits => {}
            Taken::No => drop(self.counts.dropped.fetch_add(1, Ordering::Relaxed)),
            Taken::Begin => {
                let notifier = Arc::clone(self);
                tokio::spawn(async move { notifier.work(whom).await });
            }
        }
    }

    /// Delivers what waits in a lane until nothing does.
    async fn work(&self, whom: Whom) {
        let most = match &whom.1 {
            Way::Webhook { .. } => 1,
            Way::Mail(_) => MOST_IN_A_MAIL,
        };
        loop {
            let messages = self.lanes.take(&whom, most);
            if messages.is_empty() {
                return;
            }
            let count = match self.try_often(&whom.1, &messages).await {
                Ok(()) => &self.counts.sent,
                Err(error) => {
                    tracing::warn!(user = whom.0, %error, "somebody could not be told");
                    &self.counts.failed
                }
            };
            count.fetch_add(messages.len() as u64, Ordering::Relaxed);
            if matches!(whom.1, Way::Mail(_)) {
                tokio::time::sleep(self.pace.mails).await;
            }
        }
    }

    async fn try_often(&self, way: &Way, messages: &[Message]) -> Result<(), CourierError> {
        // The same for every try, so that whoever gets it twice can tell.
        let id = random_id();
        let mut waits = self.pace.again.iter();
        loop {
            let result = self.once(way, messages, &id).await;
            match (&result, waits.next()) {
                (Err(error), Some(wait)) if error.may_pass() => tokio::time::sleep(jittered(*wait)).await,
                _ => return result,
            }
        }
    }

    async fn once(&self, way: &Way, messages: &[Message], id: &str) -> Result<(), CourierError> {
        let closed = |_| CourierError::Unreachable("the server ends".to_owned());
        match way {
            Way::Webhook { url, secret } => {
                let _turn = self.requests.acquire().await.map_err(closed)?;
                for message in messages {
                    self.post(url, secret, message, id).await?;
                }
                Ok(())
            }
            Way::Mail(to) => {
                let _turn = self.mails.acquire().await.map_err(closed)?;
                let missing = || CourierError::Invalid("this server sends no mail".to_owned());
                let smtp = self.smtp.as_ref().ok_or_else(missing)?;
                match mail(to, messages, id.to_owned(), now()) {
                    Some(mail) => smtp.send(&mail).await,
                    None => Ok(()),
                }
            }
        }
    }

    async fn post(&self, url: &str, secret: &str, message: &Message, id: &str) -> Result<(), CourierError> {
        let url: Url = url.parse()?;
        let body = message.body();
        let mut headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("x-dovetail-event".to_owned(), message.event.to_owned()),
            ("x-dovetail-delivery".to_owned(), id.to_owned()),
        ];
        if !secret.is_empty() {
            let signed = signature(secret, now().0 / 1_000_000, &body);
            headers.push(("x-dovetail-signature".to_owned(), signed));
        }
        let outgoing = Outgoing {
            method: "POST".to_owned(),
            headers,
            body,
        };
        let reply = self.web.send(&url, outgoing).await?;
        match reply.status {
            200..300 => Ok(()),
            status @ (408 | 425 | 429 | 500..) => Err(CourierError::Later(format!("status {status}"))),
            status => Err(CourierError::Refused(format!("status {status}"))),
        }
    }

    /// Tries each way once, now.
    pub(crate) async fn test(&self, name: &str, notify: &Notify, email: &str) -> NotifyTried {
        let mut tried = NotifyTried::default();
        let message = [Message::test(name, now())];
        for way in self.ways(notify, email) {
            let result = self.once(&way, &message, &random_id()).await;
            let said = Some(Tried {
                ok: result.is_ok(),
                detail: result.err().map(shown).unwrap_or_default(),
            });
            match way {
                Way::Webhook { .. } => tried.webhook = said,
                Way::Mail(_) => tried.email = said,
            }
        }
        if notify.email && tried.email.is_none() {
            let detail = match self.smtp {
                None => {
                    "this server sends no mail; an administrator can set that up (notify.smtp in server.yaml)"
                }
                Some(_) => "nobody has entered an address for you; an administrator can",
            };
            tried.email = Some(Tried {
                ok: false,
                detail: detail.to_owned(),
            });
        }
        tried
    }
}

/// What whoever tries is told: not so much that it could look around in a network with it.
fn shown(error: CourierError) -> String {
    match error {
        CourierError::Unreachable(_) | CourierError::TooSlow => "it cannot be reached".to_owned(),
        other => other.to_string(),
    }
}

fn random_id() -> String {
    format!(
        "{:032x}",
        rand::rng().next_u64() as u128 | (u128::from(rand::rng().next_u64()) << 64)
    )
}

/// A wait, a quarter shorter or longer, so that what failed together is not tried together.
fn jittered(wait: Duration) -> Duration {
    let part = f64::from(rand::rng().next_u32()) / f64::from(u32::MAX);
    wait.mul_f64(0.75 + part / 2.0)
}
