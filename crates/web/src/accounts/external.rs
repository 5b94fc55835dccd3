//! Users that an external provider authenticates: their account here, and their roles.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::account::Account;
use super::roles::Role;
use super::users::{Users, UsersError, is_valid_name};

/// A user as an external provider describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExternalIdentity {
    /// Requested user name.
    pub(crate) name: String,
    /// Issuer and subject, which identify the user whatever its name is.
    pub(crate) subject: String,
    /// Mail address; empty if unknown.
    pub(crate) email: String,
    /// Whether the user is an administrator; none if the provider does not decide that.
    pub(crate) admin: Option<bool>,
    /// Roles in the virtual clusters that the provider decides about; none removes a role.
    pub(crate) roles: BTreeMap<String, Option<Role>>,
    /// Whether a local user of that name may be linked to this identity.
    pub(crate) may_link: bool,
}

/// An external user that cannot sign in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExternalSignInError {
    /// The name is not valid, or belongs to another user.
    #[error("{0}")]
    Name(String),
    /// The file of users cannot be written.
    #[error("{0}")]
    File(String),
}

/// The account of an external user, before and after its sign-in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExternalSignIn {
    pub(crate) name: String,
    pub(crate) before: Option<Value>,
    pub(crate) after: Value,
}

fn view(account: &Account) -> Value {
    json!({"admin": account.admin, "email": account.email, "roles": account.roles, "subject": account.subject})
}

impl Users {
    /// Finds or creates the account of an external user, and applies what the provider decides about.
    pub(crate) fn sign_in_external(
        &self,
        identity: &ExternalIdentity,
    ) -> Result<ExternalSignIn, ExternalSignInError> {
        let done = self.change(|accounts| {
            let known = accounts
                .iter()
                .find(|(_, account)| account.subject.as_ref() == Some(&identity.subject))
                .map(|(name, _)| name.clone());
            let name = known.unwrap_or_else(|| identity.name.clone());
            if !is_valid_name(&name) {
                return Err(UsersError::InvalidName(name));
            }
            let existing = accounts.get(&name);
            if let Some(other) = existing.filter(|a| a.subject.as_ref() != Some(&identity.subject))
                && (other.subject.is_some() || !identity.may_link)
            {
                return Err(UsersError::NameTaken(name));
            }
            let before = existing.map(view);
            let account = accounts.entry(name.clone()).or_default();
            account.subject = Some(identity.subject.clone());
            account.admin = identity.admin.unwrap_or(account.admin);
            if !identity.email.is_empty() {
                account.email.clone_from(&identity.email);
            }
            for (vc, role) in &identity.roles {
                match role {
                    Some(role) => drop(account.roles.insert(vc.clone(), *role)),
                    None => drop(account.roles.remove(vc)),
                }
            }
            let after = view(account);
            Ok(ExternalSignIn { name, before, after })
        });
        done.map_err(|error| match error {
            UsersError::File { .. } | UsersError::Content { .. } => {
                ExternalSignInError::File(error.to_string())
            }
            _ => ExternalSignInError::Name(error.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_one_user_and_cannot_take_the_name_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let users = Users::open(&dir.path().join("users.json")).unwrap();
        users.add("root", true).unwrap();
        let identity = |name: &str, subject: &str| ExternalIdentity {
            name: name.to_owned(),
            subject: subject.to_owned(),
            email: "ann@example.org".to_owned(),
            admin: None,
            roles: [
                ("lab".to_owned(), Some(Role::Operator)),
                ("other".to_owned(), None),
            ]
            .into(),
            may_link: false,
        };
        let ann = users.sign_in_external(&identity("ann", "i#1")).unwrap();
        assert_eq!((ann.name.as_str(), ann.before), ("ann", None));
        let account = users.account("ann").unwrap();
        assert_eq!(account.roles, [("lab".to_owned(), Role::Operator)].into());
        assert!(!account.has_password() && account.tokens.is_empty() && !account.admin);
        // Neither the name of a local user nor that of another external one.
        for (name, subject) in [("root", "i#2"), ("ann", "i#2"), ("a b", "i#3"), ("", "i#3")] {
            assert!(
                matches!(
                    users.sign_in_external(&identity(name, subject)),
                    Err(ExternalSignInError::Name(_))
                ),
                "{name}"
            );
        }
        assert!(users.account("root").unwrap().roles.is_empty());
        // Renamed at the provider: the same user here. Roles that the provider does not decide about stay.
        users
            .edit("ann", |a| {
                a.roles.insert("mine".to_owned(), Role::Member);
            })
            .unwrap();
        let mut moved = identity("annette", "i#1");
        moved.roles = [("lab".to_owned(), None)].into();
        moved.admin = Some(true);
        assert_eq!(users.sign_in_external(&moved).unwrap().name, "ann");
        let account = users.account("ann").unwrap();
        assert_eq!(
            (account.admin, account.roles),
            (true, [("mine".to_owned(), Role::Member)].into())
        );
        let mut linked = identity("root", "i#4");
        linked.may_link = true;
        assert_eq!(users.sign_in_external(&linked).unwrap().name, "root");
        let again = Users::open(&dir.path().join("users.json")).unwrap();
        assert_eq!(again.account("root").unwrap().subject.as_deref(), Some("i#4"));
    }
}
