//! Users, their tokens and sessions, and what each may do.

mod account;
mod audit;
mod auth;
mod external;
mod limits;
mod notify;
mod passwords;
mod roles;
mod routes;
mod tokens;
mod users;

pub(crate) use account::new_token;
pub use account::{Account, TokenInfo};
pub use audit::{Audit, AuditError};
pub(crate) use audit::{AuditPage, AuditQuery, show as show_audit};
pub use auth::User;
pub(crate) use auth::{Caller, open_session, sign_in, sign_out};
pub(crate) use external::{ExternalIdentity, ExternalSignInError};
pub(crate) use limits::Limits;
pub use notify::Notify;
pub(crate) use notify::{set as set_notify, show as show_notify, test as test_notify};
pub use passwords::PasswordError;
pub use roles::{Role, Scope};
pub(crate) use routes::{add, change, list, me, remove, require_address, set_password};
pub(crate) use tokens::{add as add_token, list as list_tokens, remove as remove_token};
pub use users::{SaveUsers, Users, UsersError};
