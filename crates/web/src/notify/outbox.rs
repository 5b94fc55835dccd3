//! Pending notifications: a bounded queue for each recipient.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use super::message::Message;

/// How a notification is delivered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Channel {
    /// A request to this URL, signed with this secret.
    Webhook { url: String, secret: String },
    /// Mail to this address.
    Mail(String),
}

/// A user, and the channel to notify it over.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Recipient {
    pub(super) user: String,
    pub(super) channel: Channel,
}

/// Maximum number of pending notifications of one recipient.
const MAX_PER_RECIPIENT: usize = 100;
/// Maximum number of pending notifications.
const MAX_PENDING: usize = 10_000;

#[derive(Debug, Default)]
struct Pending {
    /// A queue exists exactly while a task delivers it.
    queues: BTreeMap<Recipient, VecDeque<Message>>,
    count: usize,
}

/// All pending notifications.
#[derive(Debug, Default)]
pub(super) struct Outbox(Mutex<Pending>);

/// The result of adding a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enqueued {
    /// A task already delivers the queue.
    Queued,
    /// The queue is new: the caller must start a task that delivers it.
    NewQueue,
    /// Too many notifications are pending.
    Full,
}

impl Outbox {
    pub(super) fn put(&self, recipient: &Recipient, message: Message) -> Enqueued {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.count >= MAX_PENDING {
            return Enqueued::Full;
        }
        let is_new = !pending.queues.contains_key(recipient);
        let queue = pending.queues.entry(recipient.clone()).or_default();
        if queue.len() >= MAX_PER_RECIPIENT {
            return Enqueued::Full;
        }
        queue.push_back(message);
        pending.count += 1;
        if is_new {
            Enqueued::NewQueue
        } else {
            Enqueued::Queued
        }
    }

    /// Takes up to `limit` notifications of a recipient. If there are none, its queue is removed.
    pub(super) fn take(&self, recipient: &Recipient, limit: usize) -> Vec<Message> {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = pending.queues.get_mut(recipient) else {
            return Vec::new();
        };
        let n = queue.len().min(limit);
        let taken: Vec<Message> = queue.drain(..n).collect();
        pending.count -= n;
        if taken.is_empty() {
            pending.queues.remove(recipient);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use dovetail_model::Time;

    use super::*;

    #[test]
    fn queues_are_ordered_and_bounded() {
        let outbox = Outbox::default();
        let recipient = |name: &str| Recipient {
            user: name.to_owned(),
            channel: Channel::Mail("a@b".to_owned()),
        };
        let message = |i: i64| Message::test("x", Time(i));
        assert_eq!(outbox.put(&recipient("ann"), message(0)), Enqueued::NewQueue);
        for i in 1..MAX_PER_RECIPIENT as i64 {
            assert_eq!(outbox.put(&recipient("ann"), message(i)), Enqueued::Queued);
        }
        assert_eq!(outbox.put(&recipient("ann"), message(100)), Enqueued::Full);
        assert_eq!(
            outbox.put(&recipient("bob"), message(0)),
            Enqueued::NewQueue,
            "other recipients have their own limit"
        );
        let at: Vec<i64> = outbox.take(&recipient("ann"), 3).iter().map(|m| m.at.0).collect();
        assert_eq!(at, [0, 1, 2]);
        assert_eq!(outbox.take(&recipient("ann"), 1_000).len(), 97);
        assert_eq!(
            outbox.put(&recipient("ann"), message(5)),
            Enqueued::Queued,
            "the queue is still being delivered"
        );
        assert_eq!(outbox.take(&recipient("ann"), 1_000).len(), 1);
        assert!(outbox.take(&recipient("ann"), 1_000).is_empty());
        assert_eq!(outbox.put(&recipient("ann"), message(6)), Enqueued::NewQueue);
        for i in 0..(MAX_PENDING / MAX_PER_RECIPIENT) {
            for j in 0..MAX_PER_RECIPIENT as i64 {
                let _ = outbox.put(&recipient(&format!("u{i}")), message(j));
            }
        }
        assert_eq!(outbox.put(&recipient("late"), message(0)), Enqueued::Full);
    }
}
