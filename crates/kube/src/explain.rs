//! What is said on pods that wait: why, and when they may start.

use dovetail_control::{Book, JobState};

use crate::action::Action;
use crate::mirror::{Gang, Mirror};

/// Gangs about which something is said at once, at most.
const AT_ONCE: usize = 32;
/// Pods of a gang on which it is said, at most.
const PODS: usize = 16;

impl Mirror {
    /// What is to be said now, about gangs that wait and about which something else was said before. `since` is when a pod
    /// must have been made before anything is said about it.
    pub(crate) fn explanations(&mut self, book: &Book, since: i64) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut said = Vec::new();
        for gang in self.gangs.values() {
            if said.len() >= AT_ONCE {
                break;
            }
            let waiting = gang.waiting();
            let old = waiting.first().is_some_and(|m| m.identity.created <= since);
            let Some((reason, message)) = explanation(gang, book).filter(|_| old) else {
                continue;
            };
            if gang.said == message {
                continue;
            }
            for member in waiting.iter().take(PODS) {
                actions.push(Action::Explain {
                    pod: member.id.clone(),
                    reason,
                    message: message.clone(),
                });
            }
            said.push((gang.key.clone(), message));
        }
        for (key, message) in said {
            if let Some(gang) = self.gangs.get_mut(&key) {
                gang.said = message;
            }
        }
        actions
    }
}

/// Why a gang waits; none if it does not.
fn explanation(gang: &Gang, book: &Book) -> Option<(&'static str, String)> {
    if let Some(why) = &gang.refused {
        return Some(("Unschedulable", why.clone()));
    }
    let Some(no) = gang.job else {
        let (size, _) = gang.size?;
        let there = gang.waiting().len();
        return Some((
            "GangIncomplete",
            format!("gang {} has {there} of {size} pods", gang.key),
        ));
    };
    let job = book.job(no)?;
    if !matches!(job.state, JobState::Queued | JobState::Held(_)) {
        return None;
    }
    let why = book.explain(no)?;
    let mut text = format!("job {no}: {}", why.sentence);
    for reason in &why.reasons {
        text.push_str("; ");
        text.push_str(reason);
    }
    Some(("Unschedulable", text))
}
