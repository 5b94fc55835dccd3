//! Who or what caused a change: a user, a rule of the scheduler, or Kubernetes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The originator of a change, as recorded in the journal and shown to users.
///
/// Older journals hold a plain string instead, which `Actor::from_legacy` reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "StoredActor")]
pub enum Actor {
    /// A user, by name.
    User(String),
    /// A rule of the scheduler.
    System(SystemRule),
    /// Kubernetes, with what happened there, where that is known.
    Kubernetes(Option<String>),
}

/// A rule of the scheduler that changes jobs or nodes by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SystemRule {
    /// The node health check.
    Health,
    /// The completion rule of a job with roles: the text names the role and the count that met it.
    Completion(String),
}

/// How older versions began the text of [`SystemRule::Completion`].
const LEGACY_COMPLETION: &str = "the completion rule: ";

impl Actor {
    /// Returns a user.
    pub fn user(name: impl Into<String>) -> Self {
        Self::User(name.into())
    }

    /// Returns Kubernetes, with what happened there.
    pub fn kubernetes(event: impl Into<String>) -> Self {
        Self::Kubernetes(Some(event.into()))
    }

    /// Reads an actor of a journal from before actors had a type. Kubernetes never wrote such journals, so every name but
    /// those of the scheduler's own rules is a user.
    fn from_legacy(name: String) -> Self {
        match name.strip_prefix(LEGACY_COMPLETION) {
            Some(rule) => Self::System(SystemRule::Completion(rule.to_owned())),
            None if name == "health" => Self::System(SystemRule::Health),
            None => Self::User(name),
        }
    }

    /// Returns whether this is the user with that name.
    pub fn is_user(&self, name: &str) -> bool {
        matches!(self, Self::User(user) if user == name)
    }

    /// Returns whether this is Kubernetes.
    pub fn is_kubernetes(&self) -> bool {
        matches!(self, Self::Kubernetes(_))
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => f.write_str(name),
            Self::System(SystemRule::Health) => f.write_str("health"),
            Self::System(SystemRule::Completion(rule)) => write!(f, "the completion rule: {rule}"),
            Self::Kubernetes(None) => f.write_str("kubernetes"),
            Self::Kubernetes(Some(event)) => write!(f, "kubernetes: {event}"),
        }
    }
}

/// An actor as found in a journal: a plain string in older ones.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredActor {
    Legacy(String),
    Tagged(TaggedActor),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum TaggedActor {
    User(String),
    System(SystemRule),
    Kubernetes(Option<String>),
}

impl From<StoredActor> for Actor {
    fn from(stored: StoredActor) -> Self {
        match stored {
            StoredActor::Legacy(name) => Self::from_legacy(name),
            StoredActor::Tagged(TaggedActor::User(name)) => Self::User(name),
            StoredActor::Tagged(TaggedActor::System(rule)) => Self::System(rule),
            StoredActor::Tagged(TaggedActor::Kubernetes(event)) => Self::Kubernetes(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Actor {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn actors_of_older_journals_are_read() {
        assert_eq!(read("\"ann\""), Actor::user("ann"));
        assert_eq!(read("\"health\""), Actor::System(SystemRule::Health));
        assert_eq!(
            read("\"the completion rule: 2 of worker have failed\""),
            Actor::System(SystemRule::Completion("2 of worker have failed".to_owned()))
        );
    }

    #[test]
    fn a_user_named_like_kubernetes_stays_a_user() {
        for name in ["kubernetes", "kubernetes-admin", "kubernetes: x", "health"] {
            let actor = Actor::user(name);
            let written = serde_json::to_string(&actor).unwrap();
            assert_eq!(read(&written), actor);
            assert!(!actor.is_kubernetes());
        }
        assert_eq!(read("\"kubernetes-admin\""), Actor::user("kubernetes-admin"));
    }

    #[test]
    fn every_actor_is_read_as_it_was_written() {
        for actor in [
            Actor::System(SystemRule::Health),
            Actor::System(SystemRule::Completion("1 of ps has succeeded".to_owned())),
            Actor::Kubernetes(None),
            Actor::kubernetes("its pods were deleted"),
        ] {
            assert_eq!(read(&serde_json::to_string(&actor).unwrap()), actor);
        }
    }
}
