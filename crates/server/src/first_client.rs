//! The client file of the user who starts the server.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use dovetail_client::ClientFile;
use dovetail_cluster::write_private;
use dovetail_hub::Authority;
use dovetail_model::Time;
use dovetail_web::Users;

use crate::{ServerConfig, ServerError, user_name};

/// A user who was created at the first start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstUser {
    /// The name.
    pub name: String,
    /// The password, which is stored nowhere.
    pub password: String,
}

/// Writes `client.yaml` for the user who starts the server. If the file has no valid token, an administrator is created
/// and returned.
pub(crate) fn write_first_client(
    config: &ServerConfig,
    url: &str,
    authority: &Authority,
    users: &Users,
) -> Result<Option<FirstUser>, ServerError> {
    let path = config.data.join("client.yaml");
    let known = fs::read_to_string(&path)
        .ok()
        .and_then(|text| serde_saphyr::from_str::<ClientFile>(&text).ok())
        .filter(|file| users.of_token(&file.token, now()).is_some());
    let (token, first) = match known {
        Some(file) => (file.token, None),
        None => create_first_user(users).map(|(token, user)| (token, Some(user)))?,
    };
    let file = ClientFile {
        server: url.to_owned(),
        ca: match config.tls {
            true => authority.certificate().to_owned(),
            false => String::new(),
        },
        token,
    };
    let text = serde_saphyr::to_string(&file)?;
    write_private(&path, text.as_bytes()).map_err(|source| ServerError::ClientFile { path, source })?;
    Ok(first)
}

/// Creates an administrator with the name of the current user, and returns a token as well.
fn create_first_user(users: &Users) -> Result<(String, FirstUser), ServerError> {
    let mut name = user_name();
    if users.account(&name).is_some() {
        name = format!("{name}-{:x}", now().0);
    }
    let token = users.add(&name, true)?;
    let password = users.set_password(&name, None, true)?;
    Ok((token, FirstUser { name, password }))
}

/// Returns the current time, in microseconds since 1970.
fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
