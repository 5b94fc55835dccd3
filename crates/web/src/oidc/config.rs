//! Configuration of an OpenID Connect provider.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use dovetail_model::{Time, parse_span};
use dovetail_outbound::{AddressPolicy, Client, Trust, Url};
use serde::Deserialize;
use serde_json::Value;

use super::provider::Provider;
use super::seal::Seal;
use crate::SettingError;
use crate::accounts::{ExternalIdentity, Role};

/// The section `oidc` of `server.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OidcConfig {
    /// Issuer, exactly as its discovery document names it.
    pub issuer: String,
    /// Client id of this server at the issuer.
    pub client_id: String,
    /// File with the client secret; none for a public client.
    pub client_secret_file: Option<PathBuf>,
    /// Address at which users reach this server, such as `https://scheduler.cluster:7878`.
    pub public_url: String,
    /// Label of the button.
    pub label: Option<String>,
    /// Scopes to request in addition to `openid`.
    pub scopes: Option<Vec<String>>,
    /// Claim with the user name; the part before an `@` is used.
    pub name_claim: Option<String>,
    /// Claim with the groups.
    pub groups_claim: Option<String>,
    /// Groups whose members may sign in; empty for all users.
    pub allowed_groups: Vec<String>,
    /// Groups whose members are administrators.
    pub admin_groups: Vec<String>,
    /// Roles of groups, by virtual cluster and group.
    pub roles: BTreeMap<String, BTreeMap<String, Role>>,
    /// Whether local users may also sign in as the external user of the same name.
    pub link_users: bool,
    /// Length of a session, such as `12h`.
    pub session: Option<String>,
    /// File with the certificate authorities of the issuer (PEM), if the system does not have them.
    pub ca_file: Option<PathBuf>,
}

/// A provider, ready for sign-ins.
#[derive(Debug)]
pub struct Oidc {
    pub(super) config: OidcConfig,
    pub(super) provider: Provider,
    pub(super) seal: Seal,
    pub(super) redirect: String,
    pub(super) session: Time,
}

/// Time to wait for an answer of the issuer.
const TIMEOUT: Duration = Duration::from_secs(10);

impl Oidc {
    /// Checks the configuration. The issuer is contacted at the first sign-in.
    ///
    /// # Errors
    /// When a setting is invalid. The error names the key and what is expected.
    pub fn open(config: OidcConfig) -> Result<Self, SettingError> {
        require_https("oidc.issuer", &config.issuer)?;
        require_https("oidc.public_url", &config.public_url)?;
        if config.client_id.is_empty() {
            return Err(SettingError::new("oidc.client_id", "missing"));
        }
        let session = match &config.session {
            None => Time::from_secs(12 * 3_600),
            Some(text) => parse_span(text)
                .filter(|span| (Time::from_secs(60)..=Time::from_secs(30 * 86_400)).contains(span))
                .ok_or_else(|| {
                    SettingError::new(
                        "oidc.session",
                        format!("invalid value {text:?}: expected a duration from 1m to 30d, such as 12h"),
                    )
                })?,
        };
        let secret = match &config.client_secret_file {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|e| {
                    SettingError::new("oidc.client_secret_file", format!("{}: {e}", path.display()))
                })?;
                Some(text.trim().to_owned())
            }
        };
        let trust =
            Trust::open(config.ca_file.as_deref()).map_err(|e| SettingError::new("oidc.ca_file", e))?;
        let client = Client::new(trust, AddressPolicy::Any, TIMEOUT);
        let provider = Provider::new(client, &config.issuer, &config.client_id, secret);
        let redirect = format!(
            "{}/api/v1/session/oidc/callback",
            config.public_url.trim_end_matches('/')
        );
        Ok(Self {
            provider,
            seal: Seal::new(),
            redirect,
            session,
            config,
        })
    }

    /// Returns the label of the button.
    pub(crate) fn label(&self) -> &str {
        self.config
            .label
            .as_deref()
            .unwrap_or("Sign in with your organisation")
    }

    pub(super) fn scope(&self) -> String {
        let default = || vec!["profile".to_owned(), "email".to_owned()];
        let mut scopes = self.config.scopes.clone().unwrap_or_else(default);
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

    /// Returns the identity that the claims of an ID token describe.
    pub(super) fn identity(&self, claims: &Value) -> Result<ExternalIdentity, IdentityError> {
        let text = |key: &str| claims[key].as_str().unwrap_or_default();
        let groups: Vec<&str> = match &claims[self.groups_claim()] {
            Value::Array(groups) => groups.iter().filter_map(Value::as_str).collect(),
            Value::String(group) => vec![group],
            _ => Vec::new(),
        };
        let is_in = |listed: &[String]| listed.iter().any(|g| groups.contains(&g.as_str()));
        if !self.config.allowed_groups.is_empty() && !is_in(&self.config.allowed_groups) {
            return Err(IdentityError::Group);
        }
        let name = text(self.name_claim()).split('@').next().unwrap_or_default();
        let subject = text("sub");
        if name.is_empty() || subject.is_empty() {
            return Err(IdentityError::Name);
        }
        let highest_role = |roles: &BTreeMap<String, Role>| {
            let own = roles.iter().filter(|(group, _)| groups.contains(&group.as_str()));
            own.map(|(_, role)| *role).max()
        };
        let roles = self.config.roles.iter();
        let roles = roles.map(|(vc, roles)| (vc.clone(), highest_role(roles)));
        let email = text("email");
        let is_verified = claims["email_verified"].as_bool().unwrap_or(true);
        Ok(ExternalIdentity {
            name: name.to_owned(),
            subject: format!("{}#{subject}", self.config.issuer),
            email: match is_verified && dovetail_outbound::is_address(email) {
                true => email.to_owned(),
                false => String::new(),
            },
            admin: (!self.config.admin_groups.is_empty()).then(|| is_in(&self.config.admin_groups)),
            roles: roles.collect(),
            may_link: self.config.link_users,
        })
    }
}

/// Returns an error unless the text is a URL with TLS, or of this machine.
fn require_https(key: &'static str, text: &str) -> Result<(), SettingError> {
    let url: Url = text.parse().map_err(|e| SettingError::new(key, e))?;
    match url.tls || url.is_loopback() {
        true => Ok(()),
        false => Err(SettingError::new(
            key,
            format!("invalid value {text:?}: expected https://; http:// is accepted only for this machine"),
        )),
    }
}

/// A user of the issuer that may not sign in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum IdentityError {
    /// Not a member of an allowed group.
    #[error("not a member of an allowed group")]
    Group,
    /// The claims have no user name or no subject.
    #[error("the claims have no user name or no subject")]
    Name,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn open(yaml: &str) -> Result<Oidc, Box<dyn std::error::Error>> {
        let config: OidcConfig = serde_saphyr::from_str(yaml)?;
        Ok(Oidc::open(config)?)
    }

    const GOOD: &str = "issuer: https://login.example.org\nclient_id: dovetail\npublic_url: https://d.example.org\n\
                        admin_groups: [root]\nallowed_groups: [staff]\nroles: {lab: {staff: viewer, leads: operator}}\n";

    #[test]
    fn groups_become_roles_and_other_users_are_refused() {
        let oidc = open(GOOD).unwrap();
        let identity = |groups: Value| {
            oidc.identity(&json!({
                "sub": "7", "preferred_username": "ann@example.org", "email": "ann@example.org", "groups": groups
            }))
        };
        let ann = identity(json!(["staff", "leads"])).unwrap();
        assert_eq!((ann.name.as_str(), ann.admin), ("ann", Some(false)));
        assert_eq!(ann.roles["lab"], Some(Role::Operator));
        assert_eq!(ann.subject, "https://login.example.org#7");
        assert_eq!(identity(json!(["staff", "root"])).unwrap().admin, Some(true));
        assert_eq!(identity(json!("staff")).unwrap().roles["lab"], Some(Role::Viewer));
        assert_eq!(identity(json!(["leads"])).unwrap_err(), IdentityError::Group);
        assert_eq!(identity(json!(null)).unwrap_err(), IdentityError::Group);
        let nameless = oidc.identity(&json!({"sub": "7", "groups": ["staff"]}));
        assert_eq!(nameless.unwrap_err(), IdentityError::Name);
    }

    #[test]
    fn unsafe_or_invalid_settings_are_refused() {
        for (change, part) in [
            ("issuer: http://login.example.org", "expected https://"),
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
            let message = open(&format!("{rest}{change}\n")).unwrap_err().to_string();
            assert!(message.contains(part), "{change}: {message}");
        }
        assert!(open(&format!("{GOOD}colour: red\n")).is_err());
    }
}
