//! How people are told.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use dovetail_control::parse_span;
use dovetail_courier::{Client, Guard, Security, Smtp, Trust, Url, is_address};
use dovetail_model::Time;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::lanes::Lanes;

/// `notify` in `server.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyConfig {
    /// Where people reach the page, for links: `https://scheduler.cluster:7878`.
    pub public_url: Option<String>,
    /// Let requests go to this machine and its own link too.
    pub local_webhooks: bool,
    /// A file with the authorities that vouch for the hosts of webhooks (PEM), if the system does not know them.
    pub ca_file: Option<PathBuf>,
    /// The server that takes mail.
    pub smtp: Option<SmtpConfig>,
    /// A job waits too long after this, where its owner says nothing: `1h`.
    pub pending: Option<String>,
    /// A job hardly uses its GPUs below this, in percent.
    pub low_gpu_percent: Option<f64>,
    /// After it has done so for this long: `15m`.
    pub low_gpu_for: Option<String>,
}

/// A server that takes mail.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SmtpConfig {
    /// `host` or `host:port`.
    pub server: String,
    /// `starttls`, `tls` or `off`.
    pub security: Option<String>,
    /// As whom to sign in; none for nobody.
    pub user: Option<String>,
    /// A file with the password.
    pub password_file: Option<PathBuf>,
    /// Who writes: `dovetail@example.org`.
    pub from: String,
    /// A file with the authorities that vouch for it (PEM), if the system does not know them.
    pub ca_file: Option<PathBuf>,
}

/// How quickly things are done; other than usual only in tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    /// Waits before each further try.
    pub again: Vec<Duration>,
    /// How long a try may take.
    pub patience: Duration,
    /// How often it is looked who waits too long or uses too little.
    pub look: Duration,
    /// The least time between two mails to somebody; what happens meanwhile is in the next.
    pub mails: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            again: [2, 10, 60, 300].map(Duration::from_secs).to_vec(),
            patience: Duration::from_secs(10),
            look: Duration::from_secs(15),
            mails: Duration::from_secs(10),
        }
    }
}

/// How often something was delivered, given up, or not taken because too much waited.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

/// What tells people.
#[derive(Debug)]
pub struct Notifier {
    pub(super) web: Client,
    pub(super) smtp: Option<Smtp>,
    pub(super) public_url: String,
    pub(super) pending: Time,
    pub(super) low_percent: f64,
    pub(super) low_for: Time,
    pub(super) pace: Pace,
    pub(super) lanes: Lanes,
    pub(super) requests: Semaphore,
    pub(super) mails: Semaphore,
    pub(crate) counts: Counts,
}

/// Requests and mails under way at once.
const MOST_REQUESTS: usize = 64;
const MOST_MAILS: usize = 4;

fn span(key: &str, text: Option<&String>, usual_s: i64) -> Result<Time, String> {
    match text {
        None => Ok(Time::from_secs(usual_s)),
        Some(text) => parse_span(text).filter(|span| span.0 > 0).ok_or_else(|| {
            format!("notify.{key}: {text:?} is no span of time; expected one such as 15m or 1h")
        }),
    }
}

impl Notifier {
    /// Checks the settings. Nobody is spoken to yet.
    ///
    /// # Errors
    /// Names the key and what would be accepted.
    pub fn open(config: &NotifyConfig, pace: Pace) -> Result<Arc<Self>, String> {
        if let Some(url) = &config.public_url {
            let known: Result<Url, _> = url.parse();
            known.map_err(|e| format!("notify.public_url: {e}"))?;
        }
        let percent = config.low_gpu_percent.unwrap_or(10.0);
        if !(0.0..=100.0).contains(&percent) {
            return Err("notify.low_gpu_percent: must be from 0 to 100".to_owned());
        }
        let guard = if config.local_webhooks {
            Guard::Any
        } else {
            Guard::Others
        };
        let trust = Trust::open(config.ca_file.as_deref()).map_err(|e| format!("notify.ca_file: {e}"))?;
        let smtp = config.smtp.as_ref().map(|smtp| mail_server(smtp, pace.patience));
        Ok(Arc::new(Self {
            web: Client::new(trust, guard, pace.patience),
            smtp: smtp.transpose()?,
            public_url: config
                .public_url
                .as_deref()
                .unwrap_or_default()
                .trim_end_matches('/')
                .to_owned(),
            pending: span("pending", config.pending.as_ref(), 3_600)?,
            low_percent: percent,
            low_for: span("low_gpu_for", config.low_gpu_for.as_ref(), 900)?,
            pace,
            lanes: Lanes::default(),
            requests: Semaphore::new(MOST_REQUESTS),
            mails: Semaphore::new(MOST_MAILS),
            counts: Counts::default(),
        }))
    }
}

fn mail_server(config: &SmtpConfig, patience: Duration) -> Result<Smtp, String> {
    let security = match config.security.as_deref() {
        None | Some("starttls") => Security::StartTls,
        Some("tls") => Security::Tls,
        Some("off") => Security::Off,
        Some(other) => {
            return Err(format!(
                "notify.smtp.security: {other:?} is none; expected starttls, tls or off"
            ));
        }
    };
    let usual = match security {
        Security::StartTls => 587,
        Security::Tls => 465,
        Security::Off => 25,
    };
    let (host, port) = match config.server.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => {
            let port = port.parse::<u16>();
            (
                host,
                port.map_err(|_| "notify.smtp.server: the port is none".to_owned())?,
            )
        }
        _ => (config.server.as_str(), usual),
    };
    if host.is_empty() || port == 0 {
        return Err("notify.smtp.server: is missing; expected host or host:port".to_owned());
    }
    if !is_address(&config.from) {
        return Err(format!(
            "notify.smtp.from: {:?} is none; expected an address such as dovetail@example.org",
            config.from
        ));
    }
    let login = match (&config.user, &config.password_file) {
        (None, None) => None,
        (Some(user), Some(path)) => {
            let text = std::fs::read_to_string(path)
                .map_err(|e| format!("notify.smtp.password_file: {}: {e}", path.display()))?;
            Some((user.clone(), text.trim_end_matches(['\r', '\n']).to_owned()))
        }
        _ => return Err("notify.smtp: user and password_file go together".to_owned()),
    };
    let is_here = host == "localhost" || host.parse().is_ok_and(|a: std::net::IpAddr| a.is_loopback());
    if login.is_some() && security == Security::Off && !is_here {
        return Err(
            "notify.smtp.security: off would send the password in the open; expected starttls or tls"
                .to_owned(),
        );
    }
    Ok(Smtp {
        host: host.to_owned(),
        port,
        security,
        login,
        from: config.from.clone(),
        from_name: "Dovetail".to_owned(),
        trust: Trust::open(config.ca_file.as_deref()).map_err(|e| format!("notify.smtp.ca_file: {e}"))?,
        patience,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(yaml: &str) -> Result<Arc<Notifier>, String> {
        let config: NotifyConfig = serde_saphyr::from_str(yaml).map_err(|e| e.to_string())?;
        Notifier::open(&config, Pace::default())
    }

    #[test]
    fn settings_are_looked_at_before_anybody_is_told() {
        let full = open(
            "public_url: https://d.example.org/\npending: 30m\nlow_gpu_for: 20m\nlow_gpu_percent: 5\n\
                         smtp: {server: 'mail.example.org', from: d@example.org}\n",
        )
        .unwrap();
        assert_eq!(full.public_url, "https://d.example.org");
        assert_eq!(full.pending, Time::from_secs(1_800));
        let smtp = full.smtp.as_ref().unwrap();
        assert_eq!((smtp.port, smtp.security), (587, Security::StartTls));
        assert!(open("{}").unwrap().smtp.is_none());
        for (wrong, part) in [
            ("pending: soon", "notify.pending"),
            ("low_gpu_percent: 200", "notify.low_gpu_percent"),
            ("public_url: d", "notify.public_url"),
            ("ca_file: /nowhere", "notify.ca_file"),
            ("smtp: {from: d@example.org}", "notify.smtp.server"),
            ("smtp: {server: h, from: nobody}", "notify.smtp.from"),
            (
                "smtp: {server: h, from: d@e, security: ssl}",
                "notify.smtp.security",
            ),
            ("smtp: {server: h, from: d@e, user: x}", "go together"),
            ("colour: red", "colour"),
        ] {
            let said = open(wrong).unwrap_err();
            assert!(said.contains(part), "{wrong}: {said}");
        }
    }
}
