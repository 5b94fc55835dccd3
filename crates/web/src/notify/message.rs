//! The text of notifications, as webhook requests and as mail.

use dovetail_cluster::state::{ClusterState, JobRecord};
use dovetail_cluster::{JobId, NotificationKind};
use dovetail_model::Time;
use dovetail_outbound::Mail;
use ring::hmac;
use serde::Serialize;

use crate::views::state_of;

/// A notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Message {
    /// Version of the format; changes when fields are removed.
    pub(super) version: u32,
    /// Kind of notification; `test` for a test.
    pub(super) event: &'static str,
    /// Time of the event, in microseconds since 1970.
    pub(super) at: Time,
    /// Text in a sentence. Chat programs that accept webhooks show it.
    pub(super) text: String,
    /// The job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) job: Option<JobSummary>,
    /// Page of the job, if the address of the server is configured.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) url: String,
}

/// The job of a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct JobSummary {
    id: JobId,
    name: String,
    user: String,
    tenant: String,
    gpus: u32,
    state: String,
}

impl Message {
    /// Creates a notification about a job. `detail` has what the kind does not say, and `public_url` the address of the
    /// page; both may be empty.
    pub(super) fn about_job(
        state: &ClusterState,
        job: &JobRecord,
        kind: NotificationKind,
        at: Time,
        detail: &str,
        public_url: &str,
    ) -> Self {
        let subject = match job.request.name.as_str() {
            "" => format!("Job {}", job.id),
            name => format!("Job {} ({name})", job.id),
        };
        let url = match public_url {
            "" => String::new(),
            base => format!("{base}/jobs/{}", job.id),
        };
        Self {
            version: 1,
            event: kind.word(),
            at,
            text: format!("{subject} {}", predicate(state, job, kind, detail)),
            job: Some(JobSummary {
                id: job.id,
                name: job.request.name.clone(),
                user: job.user.clone(),
                tenant: job.request.tenant.clone(),
                gpus: job.request.gpus,
                state: state_of(job).0.to_owned(),
            }),
            url,
        }
    }

    /// Creates a test notification.
    pub(super) fn test(name: &str, at: Time) -> Self {
        Self {
            version: 1,
            event: "test",
            at,
            text: format!("This is a test notification for {name}."),
            job: None,
            url: String::new(),
        }
    }

    /// Returns the body of a webhook request.
    pub(super) fn body(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Returns the sentence about a job, without its subject.
fn predicate(state: &ClusterState, job: &JobRecord, kind: NotificationKind, detail: &str) -> String {
    let with_detail = |text: &str| match detail {
        "" => format!("{text}."),
        detail => format!("{text}: {detail}."),
    };
    match kind {
        NotificationKind::Running => {
            let slots = job
                .attempt()
                .map(|a| state.node_slots(&a.allocation))
                .unwrap_or_default();
            let nodes: Vec<&str> = slots.iter().map(|s| s.node.as_str()).collect();
            let nodes = match nodes.len() {
                0..=4 => nodes.join(", "),
                n => format!("{} and {} more nodes", nodes[..3].join(", "), n - 3),
            };
            let gpus: usize = slots.iter().map(|s| s.gpus.len()).sum();
            let unit = if gpus == 1 { "GPU" } else { "GPUs" };
            format!("is running on {gpus} {unit} of {nodes}.")
        }
        NotificationKind::Completed => "has completed.".to_owned(),
        NotificationKind::Failed => with_detail("has ended without completing"),
        NotificationKind::Preempted => with_detail("was preempted and is queued again"),
        NotificationKind::PendingTooLong => {
            let reason = state.explain(job.id).map(|e| e.sentence).unwrap_or_default();
            match reason.as_str() {
                "" => format!("has been waiting for {detail}."),
                reason => format!("has been waiting for {detail}: {reason}."),
            }
        }
        NotificationKind::LowGpuUse => format!("has low GPU utilization: {detail}."),
    }
}

/// Returns the header by which a receiver verifies a request: the time, and HMAC-SHA256 of `time.body`.
pub(super) fn signature(secret: &str, at_s: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signed = [format!("{at_s}.").as_bytes(), body].concat();
    let tag = hmac::sign(&key, &signed);
    let hex: String = tag.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    format!("t={at_s},v1={hex}")
}

/// Returns one mail with several notifications.
pub(super) fn mail(to: &str, messages: &[Message], id: String, at: Time) -> Option<Mail> {
    let first = messages.first()?;
    let subject = match messages.len() - 1 {
        0 => first.text.clone(),
        more => format!("{} (and {more} more)", first.text),
    };
    let paragraphs = messages.iter().map(|m| match m.url.as_str() {
        "" => m.text.clone(),
        url => format!("{}\n{url}", m.text),
    });
    let footer = "Change your notifications under your account on the page, or with `dovetail notify`.";
    let text = paragraphs.collect::<Vec<_>>().join("\n\n");
    Some(Mail {
        to: to.to_owned(),
        subject: format!("[dovetail] {subject}"),
        text: format!("{text}\n\n-- \n{footer}\n"),
        sent_at_s: (at.0 / 1_000_000).unsigned_abs(),
        id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_can_be_verified() {
        // "Jefe" is the key of test case 2 in RFC 4231.
        let signed = signature("Jefe", 7, b"body");
        let (time, tag) = signed.split_once(",v1=").unwrap();
        assert_eq!((time, tag.len()), ("t=7", 64));
        assert_ne!(signature("Jefe", 8, b"body"), signed);
        assert_ne!(signature("jefe", 7, b"body"), signed);
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"Jefe");
        let bytes: Vec<u8> = (0..32)
            .map(|i| u8::from_str_radix(&tag[2 * i..2 * i + 2], 16).unwrap())
            .collect();
        assert!(hmac::verify(&key, b"7.body", &bytes).is_ok());
    }

    #[test]
    fn several_notifications_are_one_mail() {
        let message = Message::test("ann", Time::from_secs(60));
        let all = mail(
            "ann@example.org",
            &[message.clone(), message.clone(), message],
            "1".to_owned(),
            Time::from_secs(60),
        )
        .unwrap();
        assert!(all.subject.ends_with("(and 2 more)"), "{}", all.subject);
        assert_eq!(all.text.matches("test notification").count(), 3);
        assert!(mail("x@y", &[], String::new(), Time::ZERO).is_none());
    }
}
