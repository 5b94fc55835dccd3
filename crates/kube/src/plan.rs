//! Where each pod of a gang goes, as it is written on the first of them before any is bound. Its size grows with the gang,
//! and it stands in one place: the gang costs as much as its pods, not their square.

use dovetail_cluster::{AttemptId, JobId};
use serde::{Deserialize, Serialize};

use crate::reconciler::{Gang, Seat};

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The job.
    pub job: JobId,
    /// The launch.
    #[serde(alias = "launch")]
    pub attempt: AttemptId,
    /// For each pod its name, its node, and its GPUs.
    pub seats: Vec<(String, String, String)>,
}

impl Plan {
    /// Of the seats of a gang.
    pub(crate) fn of(
        job: JobId,
        attempt: AttemptId,
        gang: &Gang,
        node_name: &dyn Fn(&Seat) -> String,
    ) -> Self {
        let one = |seat: &Seat| {
            let member = seat.pod.as_ref().and_then(|uid| gang.members.get(uid));
            let pod = member.map(|m| m.id.name.clone()).unwrap_or_default();
            (pod, node_name(seat), gpus_text(&seat.gpus))
        };
        Self {
            job,
            attempt,
            seats: gang.seats.iter().map(one).collect(),
        }
    }

    /// As it was written.
    ///
    /// # Errors
    /// When it was not written by us.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| std::fmt::Error)?;
        f.write_str(&text)
    }
}

/// GPUs as they are written on a pod: `0,1,2`.
pub(crate) fn gpus_text(gpus: &[u32]) -> String {
    let all: Vec<String> = gpus.iter().map(ToString::to_string).collect();
    all.join(",")
}

/// GPUs as they were written on a pod; none if that was not us.
pub(crate) fn parse_gpus(text: &str) -> Option<Vec<u32>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    /// No node has more; a number from elsewhere must not make room for itself.
    const MOST: u32 = 4096;
    let one = |one: &str| one.trim().parse().ok().filter(|gpu| *gpu < MOST);
    text.split(',').map(one).collect()
}
