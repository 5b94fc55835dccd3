//! Bodies of users, sessions, tokens and notifications.

use std::collections::BTreeMap;

use dovetail_model::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accounts::{Role, Scope};

/// The calling user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurrentUser {
    /// User name.
    pub name: String,
    /// Whether the user is an administrator.
    pub admin: bool,
    /// Mail address; empty for none.
    #[serde(default)]
    pub email: String,
    /// Roles, by virtual cluster.
    #[serde(default)]
    pub roles: BTreeMap<String, Role>,
    /// How the caller authenticated: `session` or `token`.
    #[serde(default)]
    pub via: String,
    /// The value that a page sends as `X-Csrf-Token` with every change.
    #[serde(default)]
    pub csrf: Option<String>,
    /// Whether the password was set by another user and must be changed.
    #[serde(default)]
    pub must_change_password: bool,
}

/// A user name and its password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// User name.
    pub name: String,
    /// Password.
    pub password: String,
}

/// A new session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionView {
    /// The user that has signed in.
    pub user: CurrentUser,
}

/// A change of one's own password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    /// Current password; empty if there is none.
    #[serde(default)]
    pub old: String,
    /// New password.
    pub new: String,
}

/// A user, as administrators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountView {
    /// User name.
    pub name: String,
    /// Whether the user is an administrator.
    pub admin: bool,
    /// Mail address; empty for none.
    pub email: String,
    /// Roles, by virtual cluster.
    pub roles: BTreeMap<String, Role>,
    /// Whether the user can sign in with a password.
    pub has_password: bool,
    /// Number of tokens, without sessions.
    pub tokens: u64,
}

/// A user to add.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// User name.
    pub name: String,
    /// Whether the user is an administrator.
    #[serde(default)]
    pub admin: bool,
    /// Mail address.
    #[serde(default)]
    pub email: String,
    /// Roles, by virtual cluster.
    #[serde(default)]
    pub roles: BTreeMap<String, Role>,
    /// First password; a random one is generated if it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
}

/// The secrets of a new user, which are shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewUserSecrets {
    /// Token.
    pub token: String,
    /// Password, if it was generated.
    #[serde(default)]
    pub password: Option<String>,
}

/// A change of a user; fields that are missing stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccountChange {
    /// Whether the user is an administrator.
    pub admin: Option<bool>,
    /// Mail address.
    pub email: Option<String>,
    /// Roles, by virtual cluster.
    pub roles: Option<BTreeMap<String, Role>>,
    /// New password, which the user has to change.
    pub password: Option<String>,
}

/// A token to create.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewToken {
    /// Label to recognize it by.
    pub label: String,
    /// What the token may do.
    pub scope: Scope,
    /// Validity in seconds; none for unlimited.
    pub expires_s: Option<f64>,
}

/// A new token, which is shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedToken {
    /// Id, by which the token is removed.
    pub id: String,
    /// The token.
    pub token: String,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenView {
    /// Id, by which the token is removed.
    pub id: String,
    /// Label that the owner gave it.
    pub label: String,
    /// What the token may do.
    pub scope: Scope,
    /// Whether it is the session of a browser.
    pub session: bool,
    /// When the token was created.
    #[schemars(with = "i64")]
    pub created: Time,
    /// When the token expires; none for never.
    #[schemars(with = "Option<i64>")]
    pub expires: Option<Time>,
}

/// The server, as shown before sign-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerInfo {
    /// `dovetail`.
    pub name: String,
    /// Release of the server.
    pub version: String,
    /// Version of the API.
    pub api: String,
    /// Ways to sign in: `password`, `oidc`.
    pub sign_in: Vec<String>,
    /// Path that starts a sign-in with the OpenID Connect provider.
    pub oidc_url: Option<String>,
}

/// Ways to sign in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignInOptions {
    /// Whether users can sign in with a password (`POST /session`).
    pub password: bool,
    /// The OpenID Connect provider, if one is configured.
    pub oidc: Option<OidcOption>,
}

/// Sign-in with an OpenID Connect provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OidcOption {
    /// Label of the button.
    pub label: String,
    /// Address to open in the browser; `?to=/path` is the page to open afterwards.
    pub url: String,
}

/// Results of a test notification, by channel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotifyTest {
    /// Webhook; none if it is not configured.
    pub webhook: Option<DeliveryResult>,
    /// Mail; none if it is not enabled.
    pub email: Option<DeliveryResult>,
}

/// The result of one delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryResult {
    /// Whether it was delivered.
    pub ok: bool,
    /// Reason why it was not delivered.
    pub detail: String,
}
