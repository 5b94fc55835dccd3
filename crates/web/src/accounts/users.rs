//! The store of users: their roles, and hashes of their passwords and tokens. Only the server can read the file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use dovetail_cluster::write_private;
use dovetail_model::Time;

use super::account::{Account, TokenInfo, new_token};
use super::notify::Notify;
use super::passwords::{
    PasswordError, check_length, fast_hash, random_hex, random_password, slow_hash, verify,
};
use super::roles::{Role, Scope};

/// Users that cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file does not contain users.
    #[error("{}: {source}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Message of the parser, with the position.
        source: serde_json::Error,
    },
    /// A user name that is not valid.
    #[error("name: invalid value {0:?}: expected up to 64 letters, digits, `-`, `_` and `.`")]
    InvalidName(String),
    /// A user of that name exists.
    #[error("user {0} already exists")]
    Exists(String),
    /// The name belongs to a user with another identity.
    #[error("user name {0} belongs to another user")]
    NameTaken(String),
    /// There is no user of that name.
    #[error("unknown user {0:?}")]
    Unknown(String),
    /// The user has no such token.
    #[error("{user} has no token {id:?}")]
    UnknownToken {
        /// The user.
        user: String,
        /// Id of the token.
        id: String,
    },
    /// The user has too many tokens.
    #[error("{user} already has {limit} tokens; remove some")]
    TooManyTokens {
        /// The user.
        user: String,
        /// Maximum number of tokens of a user.
        limit: usize,
    },
    /// A password that cannot be used.
    #[error(transparent)]
    Password(#[from] PasswordError),
}

#[derive(Debug, Default)]
struct Accounts {
    accounts: BTreeMap<String, Account>,
    /// Owners, by the hashes of their tokens.
    owners: BTreeMap<String, String>,
}

impl Accounts {
    fn new(accounts: BTreeMap<String, Account>) -> Self {
        let hashes = |(name, account): (&String, &Account)| {
            let hashes: Vec<String> = account.tokens.iter().map(|t| t.sha256.clone()).collect();
            hashes
                .into_iter()
                .map(|hash| (hash, name.clone()))
                .collect::<Vec<_>>()
        };
        let owners = accounts.iter().flat_map(hashes).collect();
        Self { accounts, owners }
    }
}

/// Stores users that are not kept in a file, all at once.
pub type SaveUsers = Box<dyn Fn(&[u8]) -> std::io::Result<()> + Send + Sync>;

enum Storage {
    File(PathBuf),
    External(PathBuf, SaveUsers),
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.path().fmt(f)
    }
}

impl Storage {
    fn path(&self) -> &PathBuf {
        let (Self::File(path) | Self::External(path, _)) = self;
        path
    }

    fn write(&self, bytes: &[u8]) -> Result<(), UsersError> {
        let written = match self {
            Self::File(path) => write_private(path, bytes),
            Self::External(_, save) => save(bytes),
        };
        written.map_err(|source| UsersError::File {
            path: self.path().clone(),
            source,
        })
    }
}

/// The store of users.
#[derive(Debug)]
pub struct Users {
    storage: Storage,
    state: RwLock<Accounts>,
}

/// Maximum number of tokens of a user, including sessions.
const MAX_TOKENS: usize = 200;

impl Users {
    /// Reads the users in a file; none if it does not exist.
    ///
    /// # Errors
    /// When it cannot be read, or does not contain users.
    pub fn open(path: &Path) -> Result<Self, UsersError> {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(source) => {
                let path = path.to_owned();
                return Err(UsersError::File { path, source });
            }
        };
        Self::read(&bytes, Storage::File(path.to_owned()))
    }

    /// Reads users from JSON, none if it is empty, that `save` stores elsewhere. `name` is the name in errors.
    ///
    /// # Errors
    /// When the JSON does not contain users.
    pub fn with_storage(bytes: &[u8], name: &str, save: SaveUsers) -> Result<Self, UsersError> {
        Self::read(bytes, Storage::External(PathBuf::from(name), save))
    }

    fn read(bytes: &[u8], storage: Storage) -> Result<Self, UsersError> {
        let mut accounts: BTreeMap<String, Account> = match bytes {
            [] => BTreeMap::new(),
            _ => serde_json::from_slice(bytes).map_err(|source| UsersError::Content {
                path: storage.path().clone(),
                source,
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
            storage,
            state: RwLock::new(Accounts::new(accounts)),
        })
    }

    /// Adds a user and returns its first token, which is not stored.
    ///
    /// # Errors
    /// When the name is not valid or taken, or the file cannot be written.
    pub fn add(&self, name: &str, admin: bool) -> Result<String, UsersError> {
        if !is_valid_name(name) {
            return Err(UsersError::InvalidName(name.to_owned()));
        }
        let token = format!("dt_{}", random_hex::<32>());
        self.change(|accounts| {
            if accounts.contains_key(name) {
                return Err(UsersError::Exists(name.to_owned()));
            }
            let mut account = Account {
                admin,
                ..Account::default()
            };
            account.add_token(&token, new_token("first", Scope::All));
            accounts.insert(name.to_owned(), account);
            Ok(())
        })?;
        Ok(token)
    }

    /// Removes a user, with all its tokens.
    ///
    /// # Errors
    /// When there is no such user, or the file cannot be written.
    pub fn remove(&self, name: &str) -> Result<(), UsersError> {
        self.change(|accounts| match accounts.remove(name) {
            Some(_) => Ok(()),
            None => Err(unknown(name)),
        })
    }

    /// Changes an account.
    ///
    /// # Errors
    /// When there is no such user, or the file cannot be written.
    pub fn edit(&self, name: &str, edit: impl FnOnce(&mut Account)) -> Result<Account, UsersError> {
        self.change(|accounts| {
            let account = accounts.get_mut(name).ok_or_else(|| unknown(name))?;
            edit(account);
            Ok(account.clone())
        })
    }

    /// Sets the password of a user, ends its sessions, and returns the password. Without one, a random one is generated.
    ///
    /// # Errors
    /// When it is too short or too long, there is no such user, or the file cannot be written.
    pub fn set_password(
        &self,
        name: &str,
        password: Option<&str>,
        must_change: bool,
    ) -> Result<String, UsersError> {
        let password = password.map_or_else(random_password, str::to_owned);
        check_length(&password)?;
        let hash = slow_hash(&password)?;
        self.edit(name, |account| {
            account.password = Some(hash);
            account.must_change_password = must_change;
            account.tokens.retain(|t| !t.session);
        })?;
        Ok(password)
    }

    /// Whether this is the password of the user. Slow on purpose.
    pub fn has_password(&self, name: &str, password: &str) -> bool {
        let hash = self.account(name).and_then(|a| a.password);
        verify(password, hash.as_deref())
    }

    /// Adds a token to a user and returns it; only its hash is stored.
    ///
    /// # Errors
    /// When there is no such user, it has too many tokens, or the file cannot be written.
    pub fn add_token(&self, name: &str, info: TokenInfo, now: Time) -> Result<String, UsersError> {
        let token = format!("dt_{}", random_hex::<32>());
        self.change(|accounts| {
            let account = accounts.get_mut(name).ok_or_else(|| unknown(name))?;
            account.tokens.retain(|t| t.expires.is_none_or(|at| at > now));
            if account.tokens.len() >= MAX_TOKENS {
                let is_session = |t: &TokenInfo| t.session;
                match account
                    .tokens
                    .iter()
                    .position(is_session)
                    .filter(|_| info.session)
                {
                    Some(oldest) => drop(account.tokens.remove(oldest)),
                    None => {
                        return Err(UsersError::TooManyTokens {
                            user: name.to_owned(),
                            limit: MAX_TOKENS,
                        });
                    }
                }
            }
            account.add_token(&token, info);
            Ok(())
        })?;
        Ok(token)
    }

    /// Removes a token.
    ///
    /// # Errors
    /// When there is no such token, or the file cannot be written.
    pub fn remove_token(&self, name: &str, id: &str) -> Result<(), UsersError> {
        self.change(|accounts| {
            let account = accounts.get_mut(name).ok_or_else(|| unknown(name))?;
            let before = account.tokens.len();
            account.tokens.retain(|t| t.id != id);
            match account.tokens.len() < before {
                true => Ok(()),
                false => Err(UsersError::UnknownToken {
                    user: name.to_owned(),
                    id: id.to_owned(),
                }),
            }
        })
    }

    /// Returns all accounts, by name.
    pub fn all(&self) -> Vec<(String, Account)> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state
            .accounts
            .iter()
            .map(|(n, a)| (n.clone(), a.clone()))
            .collect()
    }

    /// Returns an account.
    pub fn account(&self, name: &str) -> Option<Account> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.accounts.get(name).cloned()
    }

    /// Returns whether a user is an administrator, and its roles; none if the user was removed.
    pub(crate) fn rights_of(&self, name: &str) -> Option<(bool, BTreeMap<String, Role>)> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let account = state.accounts.get(name)?;
        Some((account.admin, account.roles.clone()))
    }

    /// Returns the notification settings and the mail address of a user.
    pub(crate) fn notify_of(&self, name: &str) -> Option<(Notify, String)> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let account = state.accounts.get(name)?;
        Some((account.notify.clone(), account.email.clone()))
    }

    /// Returns the owner of a token that has not expired.
    pub fn of_token(&self, token: &str, now: Time) -> Option<(String, Account, TokenInfo)> {
        // Hashes are compared, so the duration reveals nothing about stored tokens.
        let hash = fast_hash(token);
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let name = state.owners.get(&hash)?;
        let account = state.accounts.get(name)?;
        let info = account.tokens.iter().find(|t| t.sha256 == hash)?;
        let is_valid = info.expires.is_none_or(|at| at > now);
        is_valid.then(|| (name.clone(), account.clone(), info.clone()))
    }

    /// Changes accounts and writes the file. If either fails, nothing changes.
    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Account>) -> Result<T, UsersError>,
    ) -> Result<T, UsersError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = state.accounts.clone();
        let result = change(&mut changed)?;
        let bytes = serde_json::to_vec_pretty(&changed).unwrap_or_default();
        self.storage.write(&bytes)?;
        *state = Accounts::new(changed);
        Ok(result)
    }
}

/// Whether the text is a valid user name.
pub(super) fn is_valid_name(name: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= 64 && name.chars().all(is_valid)
}

fn unknown(name: &str) -> UsersError {
    UsersError::Unknown(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> Users {
        Users::open(&dir.join("users.json")).unwrap()
    }

    #[test]
    fn a_token_is_valid_until_its_user_is_removed_and_is_not_stored() {
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
    fn files_of_older_releases_are_read() {
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
        assert!(users.has_password("ann", &password) && !users.has_password("bob", &password));
        assert!(users.of_token(&token, Time::ZERO).is_none());
        assert!(users.set_password("ann", Some("short"), false).is_err());
        assert!(users.account("ann").unwrap().must_change_password);
        assert!(users.remove_token("ann", "none").is_err());
    }
}
