//! Sign-in with an OpenID Connect provider: the authorization code flow with PKCE, in addition to local passwords.
//!
//! Claims of an ID token are used only after its signature, issuer, audience, validity and nonce have been verified.
//! An external user never takes over the account of a local user, unless the configuration links them.

mod config;
mod jwt;
mod provider;
mod seal;
mod sign_in;

pub use config::{Oidc, OidcConfig};
pub(crate) use sign_in::{CallbackQuery, SignInQuery, begin, callback, options};
