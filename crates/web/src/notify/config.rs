//! Configuration of notifications.

use std::path::PathBuf;
use std::time::Duration;

use dovetail_model::{Time, parse_span};
use dovetail_outbound::{AddressPolicy, Client, Security, Smtp, Trust, Url, is_address};
use serde::Deserialize;

use crate::SettingError;

/// The section `notify` of `server.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NotifyConfig {
    /// Address at which users reach the page, for links: `https://scheduler.cluster:7878`.
    pub public_url: Option<String>,
    /// Whether webhooks may use addresses of this machine and of its local links.
    pub local_webhooks: bool,
    /// File with the certificate authorities of webhook hosts (PEM), if the system does not have them.
    pub ca_file: Option<PathBuf>,
    /// Mail server.
    pub smtp: Option<SmtpConfig>,
    /// Default waiting time after which `pending-too-long` is sent: `1h`.
    pub pending: Option<String>,
    /// Default GPU utilization below which `low-gpu-use` is sent, in percent.
    pub low_gpu_percent: Option<f64>,
    /// Period over which the utilization is measured: `15m`.
    pub low_gpu_for: Option<String>,
}

/// A mail server.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SmtpConfig {
    /// `host` or `host:port`.
    pub server: String,
    /// Encryption: `starttls`, `tls` or `off`.
    pub security: Option<String>,
    /// User name; none to send without authentication.
    pub user: Option<String>,
    /// File with the password.
    pub password_file: Option<PathBuf>,
    /// Address of the sender: `dovetail@example.org`.
    pub from: String,
    /// File with the certificate authorities of the server (PEM), if the system does not have them.
    pub ca_file: Option<PathBuf>,
}

/// Delays and intervals; tests use shorter ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifyTiming {
    /// Delay before each retry.
    pub retry_delays: Vec<Duration>,
    /// Longest time of one delivery.
    pub timeout: Duration,
    /// Interval between checks for jobs that wait too long or have low GPU utilization.
    pub check_interval: Duration,
    /// Shortest time between two mails to a user; later notifications are collected in the next mail.
    pub mail_interval: Duration,
}

impl Default for NotifyTiming {
    fn default() -> Self {
        Self {
            retry_delays: [2, 10, 60, 300].map(Duration::from_secs).to_vec(),
            timeout: Duration::from_secs(10),
            check_interval: Duration::from_secs(15),
            mail_interval: Duration::from_secs(10),
        }
    }
}

fn duration(key: &'static str, text: Option<&String>, default_s: i64) -> Result<Time, SettingError> {
    match text {
        None => Ok(Time::from_secs(default_s)),
        Some(text) => parse_span(text).filter(|span| span.0 > 0).ok_or_else(|| {
            SettingError::new(
                key,
                format!("invalid value {text:?}: expected a duration such as 15m or 1h"),
            )
        }),
    }
}

impl NotifyConfig {
    /// Returns the address of the page without a slash at its end; empty if it is not configured.
    pub(super) fn page_address(&self) -> Result<String, SettingError> {
        let Some(url) = &self.public_url else {
            return Ok(String::new());
        };
        let parsed: Result<Url, _> = url.parse();
        parsed.map_err(|e| SettingError::new("notify.public_url", e))?;
        Ok(url.trim_end_matches('/').to_owned())
    }

    /// Returns the client for webhooks.
    pub(super) fn client(&self, timeout: Duration) -> Result<Client, SettingError> {
        let policy = if self.local_webhooks {
            AddressPolicy::Any
        } else {
            AddressPolicy::NonLocal
        };
        let trust =
            Trust::open(self.ca_file.as_deref()).map_err(|e| SettingError::new("notify.ca_file", e))?;
        Ok(Client::new(trust, policy, timeout))
    }

    /// Returns the mail server, if one is configured.
    pub(super) fn mail_server(&self, timeout: Duration) -> Result<Option<Smtp>, SettingError> {
        let smtp = self.smtp.as_ref().map(|smtp| mail_server(smtp, timeout));
        smtp.transpose()
    }

    /// Returns the default waiting time after which users are notified.
    pub(super) fn pending_limit(&self) -> Result<Time, SettingError> {
        duration("notify.pending", self.pending.as_ref(), 3_600)
    }

    /// Returns the default GPU utilization below which users are notified, in percent.
    pub(super) fn low_gpu_limit(&self) -> Result<f64, SettingError> {
        let percent = self.low_gpu_percent.unwrap_or(10.0);
        if !(0.0..=100.0).contains(&percent) {
            return Err(SettingError::new(
                "notify.low_gpu_percent",
                "must be from 0 to 100",
            ));
        }
        Ok(percent)
    }

    /// Returns the period over which the utilization is measured.
    pub(super) fn low_gpu_period(&self) -> Result<Time, SettingError> {
        duration("notify.low_gpu_for", self.low_gpu_for.as_ref(), 900)
    }
}

fn mail_server(config: &SmtpConfig, timeout: Duration) -> Result<Smtp, SettingError> {
    let security = match config.security.as_deref() {
        None | Some("starttls") => Security::StartTls,
        Some("tls") => Security::Tls,
        Some("off") => Security::Off,
        Some(other) => {
            return Err(SettingError::new(
                "notify.smtp.security",
                format!("invalid value {other:?}: expected starttls, tls or off"),
            ));
        }
    };
    let (host, port) = host_and_port(&config.server, security)?;
    if !is_address(&config.from) {
        return Err(SettingError::new(
            "notify.smtp.from",
            format!(
                "invalid value {:?}: expected an address such as dovetail@example.org",
                config.from
            ),
        ));
    }
    let login = login(config)?;
    let is_local = host == "localhost" || host.parse().is_ok_and(|a: std::net::IpAddr| a.is_loopback());
    if login.is_some() && security == Security::Off && !is_local {
        return Err(SettingError::new(
            "notify.smtp.security",
            "`off` would send the password unencrypted: expected starttls or tls",
        ));
    }
    Ok(Smtp {
        host: host.to_owned(),
        port,
        security,
        login,
        from: config.from.clone(),
        from_name: "Dovetail".to_owned(),
        trust: Trust::open(config.ca_file.as_deref())
            .map_err(|e| SettingError::new("notify.smtp.ca_file", e))?,
        timeout,
    })
}

fn host_and_port(server: &str, security: Security) -> Result<(&str, u16), SettingError> {
    let default = match security {
        Security::StartTls => 587,
        Security::Tls => 465,
        Security::Off => 25,
    };
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => {
            let parsed = port.parse::<u16>().ok().filter(|port| *port > 0);
            let invalid = || {
                SettingError::new(
                    "notify.smtp.server",
                    format!("invalid port {port:?}: expected 1 to 65535"),
                )
            };
            (host, parsed.ok_or_else(invalid)?)
        }
        _ => (server, default),
    };
    match host.is_empty() {
        true => Err(SettingError::new(
            "notify.smtp.server",
            "missing; expected host or host:port",
        )),
        false => Ok((host, port)),
    }
}

fn login(config: &SmtpConfig) -> Result<Option<(String, String)>, SettingError> {
    match (&config.user, &config.password_file) {
        (None, None) => Ok(None),
        (Some(user), Some(path)) => {
            let text = std::fs::read_to_string(path).map_err(|e| {
                SettingError::new("notify.smtp.password_file", format!("{}: {e}", path.display()))
            })?;
            Ok(Some((
                user.clone(),
                text.trim_end_matches(['\r', '\n']).to_owned(),
            )))
        }
        (Some(_), None) => Err(SettingError::new(
            "notify.smtp.password_file",
            "missing, although `user` is set",
        )),
        (None, Some(_)) => Err(SettingError::new(
            "notify.smtp.user",
            "missing, although `password_file` is set",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Notifier;
    use super::*;

    fn open(yaml: &str) -> Result<Arc<Notifier>, Box<dyn std::error::Error>> {
        let config: NotifyConfig = serde_saphyr::from_str(yaml)?;
        Ok(Notifier::open(&config, NotifyTiming::default())?)
    }

    #[test]
    fn settings_are_checked_at_the_start() {
        let full = open(
            "public_url: https://d.example.org/\npending: 30m\nlow_gpu_for: 20m\nlow_gpu_percent: 5\n\
                         smtp: {server: 'mail.example.org', from: d@example.org}\n",
        )
        .unwrap();
        assert_eq!(full.public_url, "https://d.example.org");
        assert_eq!(full.limits.pending, Time::from_secs(1_800));
        let smtp = full.delivery.smtp.as_ref().unwrap();
        assert_eq!((smtp.port, smtp.security), (587, Security::StartTls));
        assert!(open("{}").unwrap().delivery.smtp.is_none());
        for (wrong, part) in [
            ("pending: soon", "notify.pending"),
            ("low_gpu_percent: 200", "notify.low_gpu_percent"),
            ("public_url: d", "notify.public_url"),
            ("ca_file: /nowhere", "notify.ca_file"),
            ("smtp: {from: d@example.org}", "notify.smtp.server"),
            ("smtp: {server: h, from: nowhere}", "notify.smtp.from"),
            (
                "smtp: {server: h, from: d@e, security: ssl}",
                "notify.smtp.security",
            ),
            (
                "smtp: {server: h, from: d@e, user: x}",
                "notify.smtp.password_file",
            ),
            ("colour: red", "colour"),
        ] {
            let message = open(wrong).unwrap_err().to_string();
            assert!(message.contains(part), "{wrong}: {message}");
        }
    }
}
