//! The plan of a gang: the slot of each pod. It is written on one pod before any pod is bound, so that another leader can complete
//! the bindings. On one pod only, its total size grows with the gang, not with its square.

use dovetail_cluster::{AttemptId, JobId};
use serde::{Deserialize, Serialize};

use crate::reconciler::{Gang, TaskSlot};

/// The plan of a gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Job of the gang.
    pub job: JobId,
    /// Attempt of the job. Earlier versions wrote it as `launch`.
    #[serde(alias = "launch")]
    pub attempt: AttemptId,
    /// The slots.
    #[serde(rename = "seats", alias = "slots")]
    pub slots: Vec<PlannedPod>,
}

/// Name of a pod, its node, and its GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedPod(pub String, pub String, pub String);

impl Plan {
    /// Returns the plan of the slots of a gang.
    pub(crate) fn of(
        job: JobId,
        attempt: AttemptId,
        gang: &Gang,
        node_name: &dyn Fn(&TaskSlot) -> String,
    ) -> Self {
        let planned = |slot: &TaskSlot| {
            let pod = gang.pod_in(slot).map(|m| m.id.name.clone());
            PlannedPod(pod.unwrap_or_default(), node_name(slot), gpus_text(&slot.gpus))
        };
        Self {
            job,
            attempt,
            slots: gang.slots.iter().map(planned).collect(),
        }
    }

    /// Parses a plan.
    ///
    /// # Errors
    /// If the text is not a plan.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = serde_json::to_string(self).map_err(|_| std::fmt::Error)?;
        f.write_str(&text)
    }
}

/// Formats GPUs as on a pod: `0,1,2`.
pub(crate) fn gpus_text(gpus: &[u32]) -> String {
    let all: Vec<String> = gpus.iter().map(ToString::to_string).collect();
    all.join(",")
}

/// Parses the GPUs on a pod; `None` if another program wrote them.
pub(crate) fn parse_gpus(text: &str) -> Option<Vec<u32>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    /// No node has more GPUs; a larger number must not allocate memory.
    const MAX_GPUS: u32 = 4096;
    let parse = |gpu: &str| gpu.trim().parse().ok().filter(|gpu| *gpu < MAX_GPUS);
    text.split(',').map(parse).collect()
}
