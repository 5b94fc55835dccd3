//! Who may speak: users and the hashes of their tokens, in a file that only the scheduler can read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use dovetail_control::write_private;
use rand::Rng;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// What is wrong with the file of users, or with what is to be done to it.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// It cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is not what it should be.
    #[error("{}: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A name that is none, or is there already, or is not there.
    #[error("{0}")]
    Name(String),
}

/// Somebody who may speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Whether it may do everything.
    pub admin: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    admin: bool,
    /// SHA-256 of the token, in hex. A token has 256 random bits, so a fast hash is enough.
    token_sha256: String,
}

/// All users.
#[derive(Debug)]
pub struct Users {
    path: PathBuf,
    entries: RwLock<BTreeMap<String, Entry>>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn hash(token: &str) -> String {
    hex(digest(&SHA256, token.as_bytes()).as_ref())
}

impl Users {
    /// The users in this file; nobody if it is not there.
    ///
    /// # Errors
    /// When it cannot be read, or is not what it should be.
    pub fn open(path: &Path) -> Result<Self, UsersError> {
        let entries = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| UsersError::Content {
                path: path.to_owned(),
                why: e.to_string(),
            })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(source) => {
                let path = path.to_owned();
                return Err(UsersError::File { path, source });
            }
        };
        Ok(Self {
            path: path.to_owned(),
            entries: RwLock::new(entries),
        })
    }

    /// Adds a user and returns its token, which is not kept.
    ///
    /// # Errors
    /// When the name is none or taken, or the file cannot be written.
    pub fn add(&self, name: &str, admin: bool) -> Result<String, UsersError> {
        let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_fine) {
            return Err(UsersError::Name(format!(
                "name: {name:?} is none; expected up to 64 letters, digits, `-`, `_` and `.`"
            )));
        }
        let mut bytes = [0u8; 32];
        rand::rng().fill_bytes(&mut bytes);
        let token = format!("dt_{}", hex(&bytes));
        self.change(|entries| {
            if entries.contains_key(name) {
                return Err(UsersError::Name(format!("user {name} is there already")));
            }
            let entry = Entry {
                admin,
                token_sha256: hash(&token),
            };
            entries.insert(name.to_owned(), entry);
            Ok(())
        })?;
        Ok(token)
    }

    /// Removes a user; its token opens nothing any more.
    ///
    /// # Errors
    /// When there is no such user, or the file cannot be written.
    pub fn remove(&self, name: &str) -> Result<(), UsersError> {
        self.change(|entries| match entries.remove(name) {
            Some(_) => Ok(()),
            None => Err(UsersError::Name(format!("there is no user {name}"))),
        })
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<User> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let user = |(name, entry): (&String, &Entry)| User {
            name: name.clone(),
            admin: entry.admin,
        };
        entries.iter().map(user).collect()
    }

    /// Whose token this is.
    pub fn of_token(&self, token: &str) -> Option<User> {
        let shown = hash(token);
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        // Hashes are compared, so the time it takes tells nothing of any token.
        let (name, entry) = entries.iter().find(|(_, entry)| entry.token_sha256 == shown)?;
        Some(User {
            name: name.clone(),
            admin: entry.admin,
        })
    }

    /// Changes the file whole or not at all.
    fn change(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Entry>) -> Result<(), UsersError>,
    ) -> Result<(), UsersError> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = entries.clone();
        change(&mut changed)?;
        let bytes = serde_json::to_vec_pretty(&changed).unwrap_or_default();
        write_private(&self.path, &bytes).map_err(|source| UsersError::File {
            path: self.path.clone(),
            source,
        })?;
        *entries = changed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_until_its_user_is_removed_and_is_in_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.json");
        let users = Users::open(&path).unwrap();
        let (ann, bob) = (users.add("ann", true).unwrap(), users.add("bob", false).unwrap());
        assert!(users.add("ann", false).is_err() && users.add("a b", false).is_err());
        let again = Users::open(&path).unwrap();
        let name = |token: &str| again.of_token(token).map(|u| (u.name, u.admin));
        assert_eq!(name(&ann), Some(("ann".to_owned(), true)));
        assert_eq!(name(&bob), Some(("bob".to_owned(), false)));
        assert_eq!(name("dt_"), None);
        assert!(!fs::read_to_string(&path).unwrap().contains(&ann[3..]));
        again.remove("ann").unwrap();
        assert!(again.of_token(&ann).is_none() && again.remove("ann").is_err());
        fs::write(&path, "{\"x\": 1}").unwrap();
        assert!(Users::open(&path).unwrap_err().to_string().contains("users.json"));
    }
}
