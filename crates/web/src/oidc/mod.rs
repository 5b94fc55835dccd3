//! Signing in elsewhere (OpenID Connect): the authorization code flow with PKCE, beside local passwords.
//!
//! Whoever is believed is whoever holds the keys of the issuer; what an ID token says is used only after its signature,
//! issuer, audience, time and nonce have been looked at. Names that belong to local users are not taken over.

mod config;
mod jwt;
mod provider;
mod seal;
mod sign_in;

pub use config::{Oidc, OidcConfig};
pub(crate) use sign_in::{Back, Begin, begin, callback, options};
