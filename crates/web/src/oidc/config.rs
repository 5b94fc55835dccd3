//! How signing in elsewhere is set up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use dovetail_control::parse_span;
use dovetail_courier::{Client, Guard, Trust, Url};
use dovetail_model::Time;
use serde::Deserialize;
use serde_json::Value;

use super::provider::Provider;
use super::seal::Seal;
use crate::people::{Foreign, Role};

/// `oidc` in `server.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OidcConfig {
    /// The issuer, as its own documents name it.
    pub issuer: String,
    /// As what this server is known there.
    pub client_id: String,
    /// A file with the secret; none for a client without one.
    pub client_secret_file: Option<PathBuf>,
    /// Where people reach this server: `https://scheduler.cluster:7878`.
    pub public_url: String,
    /// What the button says.
    pub label: Option<String>,
    /// What is asked for beside `openid`.
    pub scopes: Option<Vec<String>>,
    /// The claim that becomes the name; its part before an `@` counts.
    pub name_claim: Option<String>,
    /// The claim that has the groups.
    pub groups_claim: Option<String>,
    /// Only people of these groups may come; empty for all.
    pub allowed_groups: Vec<String>,
    /// People of these groups may do everything.
    pub admin_groups: Vec<String>,
    /// What groups may do, by virtual cluster.
    pub roles: BTreeMap<String, BTreeMap<String, Role>>,
    /// Let local users of the same name be signed in elsewhere too.
    pub link_users: bool,
    /// So long people stay signed in, such as `12h`.
    pub session: Option<String>,
    /// A file with the authorities that vouch for the issuer (PEM), if the system does not know them.
    pub ca_file: Option<PathBuf>,
}

/// Signing in elsewhere, ready to be used.
#[derive(Debug)]
pub struct Oidc {
    pub(super) config: OidcConfig,
    pub(super) provider: Provider,
    pub(super) seal: Seal,
    pub(super) redirect: String,
    pub(super) session: Time,
}

/// How long the issuer may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

impl Oidc {
    /// Checks the settings; the issuer itself is asked when somebody signs in.
    ///
    /// # Errors
    /// Names the key and what would be accepted.
    pub fn open(config: OidcConfig) -> Result<Self, String> {
        let url = |key: &str, text: &str| -> Result<Url, String> {
            let url: Url = text.parse().map_err(|e| format!("oidc.{key}: {e}"))?;
            match url.tls || url.is_loopback() {
                true => Ok(url),
                false => Err(format!(
                    "oidc.{key}: http:// only for this machine itself; expected https://"
                )),
            }
        };
        url("issuer", &config.issuer)?;
        url("public_url", &config.public_url)?;
        if config.client_id.is_empty() {
            return Err("oidc.client_id: is missing".to_owned());
        }
        let session = match &config.session {
            None => Time::from_secs(12 * 3_600),
            Some(text) => parse_span(text)
                .filter(|span| (Time::from_secs(60)..=Time::from_secs(30 * 86_400)).contains(span))
                .ok_or_else(|| {
                    format!("oidc.session: {text:?} is none; expected one such as 12h, up to 30d")
                })?,
        };
        let secret = match &config.client_secret_file {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|e| format!("oidc.client_secret_file: {}: {e}", path.display()))?;
                Some(text.trim().to_owned())
            }
        };
        let trust = Trust::open(config.ca_file.as_deref()).map_err(|e| format!("oidc.ca_file: {e}"))?;
        let client = Client::new(trust, Guard::Any, PATIENCE);
        let provider = Provider::new(client, &config.issuer, &config.client_id, secret);
        let redirect = format!(
            "{}/api/v1/session/oidc/callback",
            config.public_url.trim_end_matches('/')
        );
        Ok(Self {
            provider,
            seal: Seal::new()?,
            redirect,
            session,
            config,
        })
    }

    /// What the button says.
    pub(crate) fn label(&self) -> &str {
        self.config
            .label
            .as_deref()
            .unwrap_or("Sign in with your organisation")
    }

    pub(super) fn scope(&self) -> String {
        let usual = || vec!["profile".to_owned(), "email".to_owned()];
        let mut scopes = self.config.scopes.clone().unwrap_or_else(usual);
        scopes.retain(|scope| scope != "openid");
        scopes.insert(0, "openid".to_owned());
        scopes.join(" ")
    }

    pub(super) fn name_claim(&self) -> &str {
        self.config.name_claim.as_deref().unwrap_or("preferred_username")
    }

    pub(super) fn groups_claim(&self) -> &str {
        self.config.groups_claim.as_deref().unwrap_or("groups")
    }

    /// Who that is here, by what the issuer says.
    pub(super) fn person(&self, claims: &Value) -> Result<Foreign, NotHere> {
        let text = |key: &str| claims[key].as_str().unwrap_or_default();
        let groups: Vec<&str> = match &claims[self.groups_claim()] {
            Value::Array(groups) => groups.iter().filter_map(Value::as_str).collect(),
            Value::String(group) => vec![group],
            _ => Vec::new(),
        };
        let is_in = |wanted: &[String]| wanted.iter().any(|g| groups.contains(&g.as_str()));
        if !self.config.allowed_groups.is_empty() && !is_in(&self.config.allowed_groups) {
            return Err(NotHere::Group);
        }
        let name = text(self.name_claim()).split('@').next().unwrap_or_default();
        let subject = text("sub");
        if name.is_empty() || subject.is_empty() {
            return Err(NotHere::Name);
        }
        let of_vc = |of: &BTreeMap<String, Role>| {
            let own = of.iter().filter(|(group, _)| groups.contains(&group.as_str()));
            own.map(|(_, role)| *role).max()
        };
        let roles = self.config.roles.iter().map(|(vc, of)| (vc.clone(), of_vc(of)));
        let mail = text("email");
        let vouched = claims["email_verified"].as_bool().unwrap_or(true);
        Ok(Foreign {
            name: name.to_owned(),
            subject: format!("{}#{subject}", self.config.issuer),
            email: match vouched && dovetail_courier::is_address(mail) {
                true => mail.to_owned(),
                false => String::new(),
            },
            admin: (!self.config.admin_groups.is_empty()).then(|| is_in(&self.config.admin_groups)),
            roles: roles.collect(),
            may_link: self.config.link_users,
        })
    }
}

/// Why somebody whom the issuer knows may not come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotHere {
    /// Not of a group that may.
    Group,
    /// Without a name that could be used.
    Name,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn open(yaml: &str) -> Result<Oidc, String> {
        let config: OidcConfig = serde_saphyr::from_str(yaml).map_err(|e| e.to_string())?;
        Oidc::open(config)
    }

    const GOOD: &str = "issuer: https://login.example.org\nclient_id: dovetail\npublic_url: https://d.example.org\n\
                        admin_groups: [root]\nallowed_groups: [staff]\nroles: {lab: {staff: viewer, leads: operator}}\n";

    #[test]
    fn groups_become_roles_and_strangers_stay_out() {
        let oidc = open(GOOD).unwrap();
        let person = |groups: Value| {
            oidc.person(&json!({
                "sub": "7", "preferred_username": "ann@example.org", "email": "ann@example.org", "groups": groups
            }))
        };
        let ann = person(json!(["staff", "leads"])).unwrap();
        assert_eq!((ann.name.as_str(), ann.admin), ("ann", Some(false)));
        assert_eq!(ann.roles["lab"], Some(Role::Operator));
        assert_eq!(ann.subject, "https://login.example.org#7");
        assert_eq!(person(json!(["staff", "root"])).unwrap().admin, Some(true));
        assert_eq!(person(json!("staff")).unwrap().roles["lab"], Some(Role::Viewer));
        assert_eq!(person(json!(["leads"])).unwrap_err(), NotHere::Group);
        assert_eq!(person(json!(null)).unwrap_err(), NotHere::Group);
        let nameless = oidc.person(&json!({"sub": "7", "groups": ["staff"]}));
        assert_eq!(nameless.unwrap_err(), NotHere::Name);
    }

    #[test]
    fn settings_that_would_not_be_safe_are_refused() {
        for (change, part) in [
            ("issuer: http://login.example.org", "oidc.issuer: http:// only"),
            ("issuer: login", "oidc.issuer"),
            ("public_url: http://d.example.org", "oidc.public_url"),
            ("client_id: ''", "oidc.client_id"),
            ("session: 90d", "oidc.session"),
            ("client_secret_file: /nowhere/secret", "oidc.client_secret_file"),
            ("ca_file: /nowhere/ca", "oidc.ca_file"),
        ] {
            let key = change.split(':').next().unwrap();
            let rest: String = GOOD
                .lines()
                .filter(|line| !line.starts_with(key))
                .map(|line| format!("{line}\n"))
                .collect();
            let said = open(&format!("{rest}{change}\n")).unwrap_err();
            assert!(said.contains(part), "{change}: {said}");
        }
        assert!(open(&format!("{GOOD}colour: red\n")).is_err());
    }
}
