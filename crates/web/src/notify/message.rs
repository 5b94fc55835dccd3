//! What people are told, as a request and as mail.

use dovetail_control::book::{Book, JobRecord};
use dovetail_control::{JobNo, Occasion};
use dovetail_courier::Mail;
use dovetail_model::Time;
use ring::hmac;
use serde::Serialize;

use crate::views::state_word;

/// Something to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Message {
    /// Changes when fields go away.
    pub(super) version: u32,
    /// Of what; `test` for a trial.
    pub(super) event: &'static str,
    /// When, in microseconds since 1970.
    pub(super) at: Time,
    /// In a sentence. Chat programs that take webhooks show it.
    pub(super) text: String,
    /// The job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) job: Option<JobBrief>,
    /// Its page, where the server knows how people reach it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) url: String,
}

/// A job, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct JobBrief {
    id: JobNo,
    name: String,
    user: String,
    tenant: String,
    gpus: u32,
    state: String,
}

impl Message {
    pub(super) fn of(book: &Book, job: &JobRecord, on: Occasion, at: Time, what: &str, page: &str) -> Self {
        let called = match job.request.name.as_str() {
            "" => format!("Job {}", job.no),
            name => format!("Job {} ({name})", job.no),
        };
        let url = match page {
            "" => String::new(),
            page => format!("{page}/jobs/{}", job.no),
        };
        Self {
            version: 1,
            event: on.word(),
            at,
            text: format!("{called} {}", sentence(book, job, on, what)),
            job: Some(JobBrief {
                id: job.no,
                name: job.request.name.clone(),
                user: job.user.clone(),
                tenant: job.request.tenant.clone(),
                gpus: job.request.gpus,
                state: state_word(job).to_owned(),
            }),
            url,
        }
    }

    pub(super) fn test(name: &str, at: Time) -> Self {
        Self {
            version: 1,
            event: "test",
            at,
            text: format!("This is how {name} will be told of jobs."),
            job: None,
            url: String::new(),
        }
    }

    /// The body of a request.
    pub(super) fn body(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

fn sentence(book: &Book, job: &JobRecord, on: Occasion, what: &str) -> String {
    let ended = |word: &str| match what {
        "" => format!("{word}."),
        why => format!("{word}: {why}."),
    };
    match on {
        Occasion::Running => {
            let seats = job
                .attempt()
                .map(|a| book.seats(&a.allocation))
                .unwrap_or_default();
            let nodes: Vec<&str> = seats.iter().map(|s| s.node.as_str()).collect();
            let shown = match nodes.len() {
                0..=4 => nodes.join(", "),
                n => format!("{} and {} more nodes", nodes[..3].join(", "), n - 3),
            };
            let gpus: usize = seats.iter().map(|s| s.gpus.len()).sum();
            let word = if gpus == 1 { "GPU" } else { "GPUs" };
            format!("runs on {gpus} {word} of {shown}.")
        }
        Occasion::Completed => "has completed.".to_owned(),
        Occasion::Failed => ended("is over and did not complete"),
        Occasion::Preempted => ended("was stopped and stands in line again"),
        Occasion::PendingTooLong => {
            let why = book.explain(job.no).map(|why| why.sentence).unwrap_or_default();
            match why.as_str() {
                "" => format!("waits for {what}."),
                why => format!("waits for {what}: {why}."),
            }
        }
        Occasion::LowGpuUse => format!("hardly uses its GPUs: {what}."),
    }
}

/// The header by which whoever gets a request knows that it is ours: the time, and HMAC-SHA256 of `time.body`.
pub(super) fn signature(secret: &str, at_s: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signed = [format!("{at_s}.").as_bytes(), body].concat();
    let tag = hmac::sign(&key, &signed);
    let hex: String = tag.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    format!("t={at_s},v1={hex}")
}

/// One mail of all that there is to tell.
pub(super) fn mail(to: &str, messages: &[Message], id: String, at: Time) -> Option<Mail> {
    let first = messages.first()?;
    let more = messages.len() - 1;
    let subject = match more {
        0 => first.text.clone(),
        1 => format!("{} And one more.", first.text),
        n => format!("{} And {n} more.", first.text),
    };
    let paragraphs = messages.iter().map(|m| match m.url.as_str() {
        "" => m.text.clone(),
        url => format!("{}\n{url}", m.text),
    });
    let end = "When you are told, and how, is under your account on the page, or `dovetail notify`.";
    let text = paragraphs.collect::<Vec<_>>().join("\n\n");
    Some(Mail {
        to: to.to_owned(),
        subject: format!("[dovetail] {subject}"),
        text: format!("{text}\n\n-- \n{end}\n"),
        at: (at.0 / 1_000_000).unsigned_abs(),
        id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_signed_so_that_others_can_check() {
        // RFC 4231, test case 2, is HMAC-SHA256 of "what do ya want for nothing?" by "Jefe"; here the time goes before.
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
    fn several_things_are_one_mail() {
        let one = Message::test("ann", Time::from_secs(60));
        let all = mail(
            "ann@example.org",
            &[one.clone(), one.clone(), one],
            "1".to_owned(),
            Time::from_secs(60),
        )
        .unwrap();
        assert!(all.subject.ends_with("And 2 more."), "{}", all.subject);
        assert_eq!(all.text.matches("will be told").count(), 3);
        assert!(mail("x@y", &[], String::new(), Time::ZERO).is_none());
    }
}
