//! Users: their roles, and what is kept of their passwords and tokens, in a file that only the scheduler can read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use dovetail_control::write_private;
use dovetail_model::Time;
use serde::{Deserialize, Serialize};

use super::notify::Notify;
use super::passwords::{fast_hash, fits, random_hex, random_password, slow_hash, will_do};
use super::roles::{Role, Scope};

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
    /// A password that will not do.
    #[error("{0}")]
    Password(String),
}

/// A token, without what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenInfo {
    /// By which it can be taken back.
    pub id: String,
    /// What its owner calls it.
    #[serde(default)]
    pub label: String,
    /// What it may do.
    #[serde(default)]
    pub scope: Scope,
    /// Whether it belongs to a browser that has signed in.
    #[serde(default)]
    pub session: bool,
    /// SHA-256, in hex.
    pub(super) sha256: String,
    /// Since when.
    #[serde(default)]
    pub created: Time,
    /// Until when; none for ever.
    #[serde(default)]
    pub expires: Option<Time>,
}

/// Somebody who may speak.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Account {
    /// Whether it may do everything.
    pub admin: bool,
    /// Where mail reaches it; empty if nowhere.
    pub email: String,
    /// What it may do in virtual clusters.
    pub roles: BTreeMap<String, Role>,
    /// Who it is for whoever vouches for it: the issuer and its number there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What is kept of its password.
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    /// The password was given by somebody else.
    pub must_change_password: bool,
    /// How it wants to be told.
    pub notify: Notify,
    /// Its tokens.
    pub tokens: Vec<TokenInfo>,
    /// Of the one token that older releases knew.
    #[serde(skip_serializing)]
    token_sha256: Option<String>,
}

impl Account {
    /// Whether it can sign in with a password.
    pub fn has_password(&self) -> bool {
        self.password.is_some()
    }

    fn keep(&mut self, token: &str, info: TokenInfo) {
        self.tokens.push(TokenInfo {
            sha256: fast_hash(token),
            ..info
        });
    }
}

#[derive(Debug, Default)]
struct Book {
    accounts: BTreeMap<String, Account>,
    /// Owners by the hashes of their tokens.
    owners: BTreeMap<String, String>,
}

impl Book {
    fn of(accounts: BTreeMap<String, Account>) -> Self {
        let each = |(name, account): (&String, &Account)| {
            let hashes: Vec<String> = account.tokens.iter().map(|t| t.sha256.clone()).collect();
            hashes
                .into_iter()
                .map(|hash| (hash, name.clone()))
                .collect::<Vec<_>>()
        };
        let owners = accounts.iter().flat_map(each).collect();
        Self { accounts, owners }
    }
}

/// Where users are kept that are in no file: writes all of them down, or says why it cannot.
pub type Keep = Box<dyn Fn(&[u8]) -> Result<(), String> + Send + Sync>;

enum Kept {
    InFile(PathBuf),
    Elsewhere(PathBuf, Keep),
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::InFile(path) | Self::Elsewhere(path, _)) = self;
        path.fmt(f)
    }
}

impl Kept {
    fn write(&self, bytes: &[u8]) -> Result<(), UsersError> {
        let (path, done) = match self {
            Self::InFile(path) => (path, write_private(path, bytes)),
            Self::Elsewhere(path, keep) => (path, keep(bytes).map_err(std::io::Error::other)),
        };
        done.map_err(|source| UsersError::File {
            path: path.clone(),
            source,
        })
    }
}

/// All users.
#[derive(Debug)]
pub struct Users {
    kept: Kept,
    book: RwLock<Book>,
}

/// Tokens a user may have, sessions too.
const MOST_TOKENS: usize = 200;

impl Users {
    /// The users in this file; nobody if it is not there.
    ///
    /// # Errors
    /// When it cannot be read, or is not what it should be.
    pub fn open(path: &Path) -> Result<Self, UsersError> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(source) => {
                let path = path.to_owned();
                return Err(UsersError::File { path, source });
            }
        };
        Self::read(&bytes, Kept::InFile(path.to_owned()))
    }

    /// The users in this text, nobody if it is empty, which are kept elsewhere by this name.
    ///
    /// # Errors
    /// When the text is not what it should be.
    pub fn kept_by(bytes: &[u8], name: &str, keep: Keep) -> Result<Self, UsersError> {
        Self::read(bytes, Kept::Elsewhere(PathBuf::from(name), keep))
    }

    fn read(bytes: &[u8], kept: Kept) -> Result<Self, UsersError> {
        let (Kept::InFile(path) | Kept::Elsewhere(path, _)) = &kept;
        let mut accounts: BTreeMap<String, Account> = match bytes {
            [] => BTreeMap::new(),
            _ => serde_json::from_slice(bytes).map_err(|e| UsersError::Content {
                path: path.clone(),
                why: e.to_string(),
            })?,
        };
        for account in accounts.values_mut() {
            if let Some(sha256) = account.token_sha256.take() {
                account.tokens.push(TokenInfo {
                    sha256,
                    ..new_token("first", Scope::All)
                });
            }
        }
        Ok(Self {
            kept,
            book: RwLock::new(Book::of(accounts)),
        })
    }

    /// Adds a user and returns its first token, which is not kept.
    ///
    /// # Errors
    /// When the name is none or taken, or the file cannot be written.
    pub fn add(&self, name: &str, admin: bool) -> Result<String, UsersError> {
        if !is_name(name) {
            return Err(UsersError::Name(format!(
                "name: {name:?} is none; expected up to 64 letters, digits, `-`, `_` and `.`"
            )));
        }
        let token = format!("dt_{}", random_hex::<32>());
        self.change(|accounts| {
            if accounts.contains_key(name) {
                return Err(UsersError::Name(format!("user {name} is there already")));
            }
            let mut account = Account {
                admin,
                ..Account::default()
            };
            account.keep(&token, new_token("first", Scope::All));
            accounts.insert(name.to_owned(), account);
            Ok(())
        })?;
        Ok(token)
    }

    /// Removes a user; its tokens open nothing any more.
    ///
    /// # Errors
    /// When there is no such user, or the file cannot be written.
    pub fn remove(&self, name: &str) -> Result<(), UsersError> {
        self.change(|accounts| match accounts.remove(name) {
            Some(_) => Ok(()),
            None => Err(nobody(name)),
        })
    }

    /// Changes an account.
    ///
    /// # Errors
    /// When there is no such user, or the file cannot be written.
    pub fn edit(&self, name: &str, edit: impl FnOnce(&mut Account)) -> Result<Account, UsersError> {
        self.change(|accounts| {
            let account = accounts.get_mut(name).ok_or_else(|| nobody(name))?;
            edit(account);
            Ok(account.clone())
        })
    }

    /// Gives a user a password, and ends its sessions; a random one if none is given, which is returned.
    ///
    /// # Errors
    /// When it will not do, there is no such user, or the file cannot be written.
    pub fn set_password(
        &self,
        name: &str,
        password: Option<&str>,
        must_change: bool,
    ) -> Result<String, UsersError> {
        let password = password.map_or_else(random_password, str::to_owned);
        will_do(&password).map_err(UsersError::Password)?;
        let kept = slow_hash(&password).map_err(UsersError::Password)?;
        self.edit(name, |account| {
            account.password = Some(kept);
            account.must_change_password = must_change;
            account.tokens.retain(|t| !t.session);
        })?;
        Ok(password)
    }

    /// Whether this is the password of the user. Takes a while, on purpose.
    pub fn knows_password(&self, name: &str, password: &str) -> bool {
        let kept = self.account(name).and_then(|a| a.password);
        fits(password, kept.as_deref())
    }

    /// Gives a user another token, which is returned and not kept.
    ///
    /// # Errors
    /// When there is no such user, it has too many, or the file cannot be written.
    pub fn add_token(&self, name: &str, info: TokenInfo, now: Time) -> Result<String, UsersError> {
        let token = format!("dt_{}", random_hex::<32>());
        self.change(|accounts| {
            let account = accounts.get_mut(name).ok_or_else(|| nobody(name))?;
            account.tokens.retain(|t| t.expires.is_none_or(|at| at > now));
            if account.tokens.len() >= MOST_TOKENS {
                let sessions = |t: &TokenInfo| t.session;
                match account.tokens.iter().position(sessions).filter(|_| info.session) {
                    Some(oldest) => drop(account.tokens.remove(oldest)),
                    None => {
                        return Err(UsersError::Name(format!(
                            "{name} has {MOST_TOKENS} tokens already; remove some"
                        )));
                    }
                }
            }
            account.keep(&token, info);
            Ok(())
        })?;
        Ok(token)
    }

    /// Takes a token back.
    ///
    /// # Errors
    /// When there is no such token, or the file cannot be written.
    pub fn remove_token(&self, name: &str, id: &str) -> Result<(), UsersError> {
        self.change(|accounts| {
            let account = accounts.get_mut(name).ok_or_else(|| nobody(name))?;
            let before = account.tokens.len();
            account.tokens.retain(|t| t.id != id);
            match account.tokens.len() < before {
                true => Ok(()),
                false => Err(UsersError::Name(format!("{name} has no token {id:?}"))),
            }
        })
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<(String, Account)> {
        let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
        book.accounts
            .iter()
            .map(|(n, a)| (n.clone(), a.clone()))
            .collect()
    }

    /// One of them.
    pub fn account(&self, name: &str) -> Option<Account> {
        let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
        book.accounts.get(name).cloned()
    }

    /// What somebody may do now: everything, and in virtual clusters; none if there is nobody of that name any more.
    pub(crate) fn rights_of(&self, name: &str) -> Option<(bool, BTreeMap<String, Role>)> {
        let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
        let account = book.accounts.get(name)?;
        Some((account.admin, account.roles.clone()))
    }

    /// How somebody is told of its jobs, and where mail reaches it.
    pub(crate) fn notify_of(&self, name: &str) -> Option<(Notify, String)> {
        let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
        let account = book.accounts.get(name)?;
        Some((account.notify.clone(), account.email.clone()))
    }

    /// Whose token this is, if it is still good.
    pub fn of_token(&self, token: &str, now: Time) -> Option<(String, Account, TokenInfo)> {
        // Hashes are compared, so the time it takes tells nothing of any token.
        let shown = fast_hash(token);
        let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
        let name = book.owners.get(&shown)?;
        let account = book.accounts.get(name)?;
        let info = account.tokens.iter().find(|t| t.sha256 == shown)?;
        let is_good = info.expires.is_none_or(|at| at > now);
        is_good.then(|| (name.clone(), account.clone(), info.clone()))
    }

    /// Changes the file whole or not at all.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Account>) -> Result<T, UsersError>,
    ) -> Result<T, UsersError> {
        let mut book = self.book.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = book.accounts.clone();
        let result = change(&mut changed)?;
        let bytes = serde_json::to_vec_pretty(&changed).unwrap_or_default();
        self.kept.write(&bytes)?;
        *book = Book::of(changed);
        Ok(result)
    }
}

/// Whether somebody may be called so.
pub(super) fn is_name(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= 64 && name.chars().all(is_fine)
}

fn nobody(name: &str) -> UsersError {
    UsersError::Name(format!("there is no user {name}"))
}

/// A token to be.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> Users {
        Users::open(&dir.join("users.json")).unwrap()
    }

    #[test]
    fn a_token_opens_until_its_user_is_removed_and_is_in_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.json");
        let users = open(dir.path());
        let (ann, bob) = (users.add("ann", true).unwrap(), users.add("bob", false).unwrap());
        assert!(users.add("ann", false).is_err() && users.add("a b", false).is_err());
        let again = open(dir.path());
        let name = |token: &str| again.of_token(token, Time::ZERO).map(|(n, a, _)| (n, a.admin));
        assert_eq!(name(&ann), Some(("ann".to_owned(), true)));
        assert_eq!(name(&bob), Some(("bob".to_owned(), false)));
        assert_eq!(name("dt_"), None);
        assert!(!fs::read_to_string(&path).unwrap().contains(&ann[3..]));
        again.remove("ann").unwrap();
        assert!(again.of_token(&ann, Time::ZERO).is_none() && again.remove("ann").is_err());
        fs::write(&path, "{\"x\": 1}").unwrap();
        assert!(Users::open(&path).unwrap_err().to_string().contains("users.json"));
    }

    #[test]
    fn a_file_of_an_older_release_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let old = format!(
            r#"{{"ann": {{"admin": true, "token_sha256": "{}"}}}}"#,
            fast_hash("dt_x")
        );
        fs::write(dir.path().join("users.json"), old).unwrap();
        let users = open(dir.path());
        assert!(
            users
                .of_token("dt_x", Time::ZERO)
                .is_some_and(|(_, a, _)| a.admin)
        );
        users.add("bob", false).unwrap();
        assert!(open(dir.path()).of_token("dt_x", Time::ZERO).is_some());
    }

    #[test]
    fn tokens_expire_and_a_new_password_ends_sessions() {
        let dir = tempfile::tempdir().unwrap();
        let users = open(dir.path());
        users.add("ann", false).unwrap();
        let short = TokenInfo {
            expires: Some(Time::from_secs(10)),
            session: true,
            ..new_token("browser", Scope::All)
        };
        let token = users.add_token("ann", short, Time::ZERO).unwrap();
        assert!(users.of_token(&token, Time::from_secs(9)).is_some());
        assert!(users.of_token(&token, Time::from_secs(10)).is_none());
        let password = users.set_password("ann", None, true).unwrap();
        assert!(users.knows_password("ann", &password) && !users.knows_password("bob", &password));
        assert!(users.of_token(&token, Time::ZERO).is_none());
        assert!(users.set_password("ann", Some("short"), false).is_err());
        assert!(users.account("ann").unwrap().must_change_password);
        assert!(users.remove_token("ann", "none").is_err());
    }
}
