//! Answers to the request of a pod.

use std::collections::BTreeSet;

use dovetail_cells::{Refusal, WaitReason};
use serde::{Deserialize, Serialize};

/// Whether Kubernetes only asks, or is ready to delete victims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Kubernetes only asks: no cell is claimed.
    Filtering,
    /// Victims will be deleted: their cells are claimed.
    Preempting,
}

/// The decision about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The pod starts.
    Bind {
        /// Its machine.
        node: String,
        /// Indices of its leaf cells on that machine.
        leaves: Vec<i32>,
        /// Cell chain of its group.
        chain: String,
        /// Types of the virtual cluster's cells that its group uses; an empty name for borrowers.
        preassigned: BTreeSet<String>,
    },
    /// Other pods must be deleted first.
    Preempt {
        /// Names of those pods.
        victims: BTreeSet<String>,
    },
    /// The pod must wait.
    Wait {
        /// The reason; `None` if its own group is being preempted.
        reason: Option<WaitReason>,
    },
}

/// A request that cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// The virtual cluster does not exist.
    #[error("virtual cluster {found:?} does not exist; expected one of {known}")]
    UnknownVc {
        /// The requested name.
        found: String,
        /// Existing virtual clusters.
        known: String,
    },
    /// The virtual cluster has no such pinned cell.
    #[error("virtual cluster {vc} has no pinned cell {found:?}; expected one of {known}")]
    UnknownPinnedCell {
        /// The virtual cluster.
        vc: String,
        /// The requested name.
        found: String,
        /// Its pinned cells.
        known: String,
    },
    /// The leaf cell type does not exist.
    #[error("leaf cell type {found:?} does not exist; expected one of {known}")]
    UnknownLeafType {
        /// The requested name.
        found: String,
        /// Existing leaf cell types.
        known: String,
    },
    /// The group has no pod of this size.
    #[error("affinityGroup.members has no pod with {size} leaf cells, but this pod asks for {size}")]
    NotAMember {
        /// Leaf cells of the pod.
        size: u32,
    },
    /// The group has all its pods of this size.
    #[error("all pods with {size} leaf cells of group {group} exist already; expected no further one")]
    TooManyPods {
        /// The group.
        group: String,
        /// Leaf cells of the pod.
        size: u32,
    },
    /// The cells refuse the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
}
