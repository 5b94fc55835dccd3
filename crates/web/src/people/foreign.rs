//! People whom somebody else vouches for: who they are here, and what they may do.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::roles::Role;
use super::users::{Account, Users, UsersError, is_name};

/// Somebody as an issuer describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// The name it would like to have here.
    pub(crate) name: String,
    /// Who it is, whatever its name: the issuer and its number there.
    pub(crate) subject: String,
    /// Where mail reaches it; empty if nobody says.
    pub(crate) email: String,
    /// Whether it may do everything; none where that is not the issuer's to say.
    pub(crate) admin: Option<bool>,
    /// What it may do in the virtual clusters of which the issuer has a say.
    pub(crate) roles: BTreeMap<String, Option<Role>>,
    /// Whether it may be a local user of that name.
    pub(crate) may_link: bool,
}

/// Why somebody cannot be let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ForeignError {
    /// Its name cannot be used.
    Name(String),
    /// The file of users cannot be written.
    File(String),
}

/// Who came, and what changed about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Welcome {
    pub(crate) name: String,
    pub(crate) before: Option<Value>,
    pub(crate) after: Value,
}

fn view(account: &Account) -> Value {
    json!({"admin": account.admin, "email": account.email, "roles": account.roles, "subject": account.subject})
}

impl Users {
    /// Lets somebody in: the account of that subject, or a new one; what the issuer has a say in is as it says.
    pub(crate) fn welcome(&self, who: &Foreign) -> Result<Welcome, ForeignError> {
        let done = self.change(|accounts| {
            let known = accounts
                .iter()
                .find(|(_, account)| account.subject.as_ref() == Some(&who.subject))
                .map(|(name, _)| name.clone());
            let name = known.unwrap_or_else(|| who.name.clone());
            if !is_name(&name) {
                return Err(UsersError::Name(format!("{name:?} cannot be a name here")));
            }
            let there = accounts.get(&name);
            if let Some(other) = there.filter(|a| a.subject.as_ref() != Some(&who.subject))
                && (other.subject.is_some() || !who.may_link)
            {
                return Err(UsersError::Name(format!("{name} is somebody else here")));
            }
            let before = there.map(view);
            let account = accounts.entry(name.clone()).or_default();
            account.subject = Some(who.subject.clone());
            account.admin = who.admin.unwrap_or(account.admin);
            if !who.email.is_empty() {
                account.email.clone_from(&who.email);
            }
            for (vc, role) in &who.roles {
                match role {
                    Some(role) => drop(account.roles.insert(vc.clone(), *role)),
                    None => drop(account.roles.remove(vc)),
                }
            }
            let after = view(account);
            Ok(Welcome { name, before, after })
        });
        done.map_err(|error| match error {
            UsersError::Name(why) | UsersError::Password(why) => ForeignError::Name(why),
            error @ (UsersError::File { .. } | UsersError::Content { .. }) => {
                ForeignError::File(error.to_string())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_one_person_and_a_name_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let users = Users::open(&dir.path().join("users.json")).unwrap();
        users.add("root", true).unwrap();
        let who = |name: &str, subject: &str| Foreign {
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
        let ann = users.welcome(&who("ann", "i#1")).unwrap();
        assert_eq!((ann.name.as_str(), ann.before), ("ann", None));
        let account = users.account("ann").unwrap();
        assert_eq!(account.roles, [("lab".to_owned(), Role::Operator)].into());
        assert!(!account.has_password() && account.tokens.is_empty() && !account.admin);
        // Neither a local user nor another person of the same name.
        for (name, subject) in [("root", "i#2"), ("ann", "i#2"), ("a b", "i#3"), ("", "i#3")] {
            assert!(
                matches!(users.welcome(&who(name, subject)), Err(ForeignError::Name(_))),
                "{name}"
            );
        }
        assert!(users.account("root").unwrap().roles.is_empty());
        // Another name at the issuer, the same person here; roles of which the issuer has no say stay.
        users
            .edit("ann", |a| {
                a.roles.insert("mine".to_owned(), Role::Member);
            })
            .unwrap();
        let mut moved = who("annette", "i#1");
        moved.roles = [("lab".to_owned(), None)].into();
        moved.admin = Some(true);
        assert_eq!(users.welcome(&moved).unwrap().name, "ann");
        let account = users.account("ann").unwrap();
        assert_eq!(
            (account.admin, account.roles),
            (true, [("mine".to_owned(), Role::Member)].into())
        );
        let mut linked = who("root", "i#4");
        linked.may_link = true;
        assert_eq!(users.welcome(&linked).unwrap().name, "root");
        let again = Users::open(&dir.path().join("users.json")).unwrap();
        assert_eq!(again.account("root").unwrap().subject.as_deref(), Some("i#4"));
    }
}
