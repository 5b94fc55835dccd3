//! Accounts and tokens, as they are stored.

use std::collections::BTreeMap;

use dovetail_model::Time;
use serde::{Deserialize, Serialize};

use super::notify::Notify;
use super::passwords::{fast_hash, random_hex};
use super::roles::{Role, Scope};

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenInfo {
    /// Id, by which the token is removed.
    pub id: String,
    /// Label that the owner gave it.
    #[serde(default)]
    pub label: String,
    /// What the token may do.
    #[serde(default)]
    pub scope: Scope,
    /// Whether it is the session of a browser.
    #[serde(default)]
    pub session: bool,
    /// SHA-256 of the token, in hex.
    pub(super) sha256: String,
    /// When the token was created.
    #[serde(default)]
    pub created: Time,
    /// When the token expires; none for never.
    #[serde(default)]
    pub expires: Option<Time>,
}

/// The account of a user.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Account {
    /// Whether the user is an administrator.
    pub admin: bool,
    /// Mail address; empty for none.
    pub email: String,
    /// Roles, by virtual cluster.
    pub roles: BTreeMap<String, Role>,
    /// Issuer and subject of a user that an external provider authenticates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Hash of the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) password: Option<String>,
    /// Whether the password was set by another user and must be changed.
    pub must_change_password: bool,
    /// Notification settings.
    pub notify: Notify,
    /// Tokens and sessions.
    pub tokens: Vec<TokenInfo>,
    /// Hash of the only token that a user had in older releases.
    #[serde(skip_serializing)]
    pub(super) token_sha256: Option<String>,
}

impl Account {
    /// Whether the user can sign in with a password.
    pub fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// Adds a token, of which only the hash is stored.
    pub(super) fn add_token(&mut self, token: &str, info: TokenInfo) {
        self.tokens.push(TokenInfo {
            sha256: fast_hash(token),
            ..info
        });
    }
}

/// Returns a new token without expiry. Its hash is set when it is added to an account.
pub(crate) fn new_token(label: &str, scope: Scope) -> TokenInfo {
    TokenInfo {
        id: random_hex::<6>(),
        label: label.to_owned(),
        scope,
        session: false,
        sha256: String::new(),
        created: crate::now(),
        expires: None,
    }
}
