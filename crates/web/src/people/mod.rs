//! Who may speak, and what each may do.

mod accounts;
mod audit;
mod auth;
mod foreign;
mod limits;
mod notify;
mod passwords;
mod roles;
mod tokens;
mod users;

pub(crate) use accounts::{add, change, list, me, must_be_address, remove, set_password};
pub use audit::{Audit, AuditError};
pub(crate) use audit::{AuditPage, Wanted as AuditWanted, show as show_audit};
pub use auth::User;
pub(crate) use auth::{Asker, open_session, sign_in, sign_out};
pub(crate) use foreign::{Foreign, ForeignError};
pub(crate) use limits::Limits;
pub use notify::Notify;
pub(crate) use notify::{set as set_notify, show as show_notify, test as test_notify};
pub use roles::{Role, Scope};
pub(crate) use tokens::{add as add_token, list as list_tokens, remove as remove_token};
pub(crate) use users::new_token;
pub use users::{Account, Keep, TokenInfo, Users, UsersError};
