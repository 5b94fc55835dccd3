//! A gang, its pods, and their places.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cluster::{AttemptId, JobId};
use dovetail_model::{NodeConstraintId, NodeId};

use super::Claimed;
use super::riders::Beside;
use crate::action::PodId;
use crate::ask::Needs;
use crate::fit::Wants;
use crate::identity::{GangKey, Identity};

/// Where a pod is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It does not run yet.
    Pending,
    /// It runs.
    Running,
    /// It ended well.
    Succeeded,
    /// It ended badly, with this code.
    Failed(i32),
}

impl Phase {
    /// Whether it is over.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed(_))
    }
}

/// A pod of a gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The pod.
    pub id: PodId,
    /// What it says about itself.
    pub identity: Identity,
    /// Where it may be.
    pub wants: Wants,
    /// Devices it claims.
    pub claims: Vec<Claimed>,
    /// The node it is bound to.
    pub node: Option<String>,
    /// What was written on it when it was bound: job, launch and GPUs.
    pub bound_as: Option<(JobId, AttemptId, Vec<u32>)>,
    /// The plan that was written on it.
    pub plan: Option<String>,
    /// Where it is in its life.
    pub phase: Phase,
    /// When its node took it.
    pub started: Option<i64>,
    /// It is going.
    pub deleting: bool,
    /// Somebody does not want it to be bound yet.
    pub gated: bool,
    /// It was bound beside this launch of its gang.
    pub rides_on: Option<Beside>,
    /// Whether we have told it to go.
    pub removed: bool,
    /// A binding to this node is on its way: it may be there any moment.
    pub in_flight: Option<String>,
}

impl Member {
    /// Whether it waits for a place.
    pub fn waits(&self) -> bool {
        self.node.is_none()
            && self.in_flight.is_none()
            && !self.deleting
            && !self.gated
            && self.phase == Phase::Pending
    }

    /// Whether it still uses its node.
    pub fn is_there(&self) -> bool {
        self.node.is_some() && !self.phase.is_over()
    }
}

/// A place for one pod of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// What the pod needs.
    pub needs: Needs,
    /// The node.
    pub node: NodeId,
    /// The GPUs there.
    pub gpus: Vec<u32>,
    /// The pod, by uid.
    pub pod: Option<String>,
    /// The pod is left from another launch: its GPUs are in use until it is gone.
    pub stray: bool,
}

/// A gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gang {
    /// Its name.
    pub key: GangKey,
    /// How many pods it has and with how many it may start, once that is known.
    pub size: Option<(u32, u32)>,
    /// Somebody is finding out.
    pub asked: bool,
    /// Its pods, by uid.
    pub members: BTreeMap<String, Member>,
    /// Its job, while there is one.
    pub job: Option<JobId>,
    /// The nodes it may be on, while there is a job.
    pub constraint: Option<NodeConstraintId>,
    /// The launch its seats belong to.
    pub attempt: Option<AttemptId>,
    /// Places of that launch.
    pub seats: Vec<Seat>,
    /// Nodes on which all its pods run, as far as the book was told.
    pub running_on: BTreeSet<NodeId>,
    /// Why it was not taken in.
    pub refused: Option<String>,
    /// What was last said on its first pod.
    pub said: String,
    /// What was last said on its group, where it is a native one.
    pub said_on_group: String,
    /// Somebody makes its pods anew.
    pub looked_after: bool,
    /// It is done, and the owners of what still runs were told.
    pub is_done: bool,
    /// The gang this pod belongs to, which started without it.
    pub rides_on: Option<GangKey>,
    /// Those that ride on this gang.
    pub riders: BTreeSet<GangKey>,
}

impl Gang {
    pub(super) fn new(key: GangKey) -> Self {
        Self {
            key,
            size: None,
            asked: false,
            members: BTreeMap::new(),
            job: None,
            constraint: None,
            attempt: None,
            seats: Vec::new(),
            running_on: BTreeSet::new(),
            refused: None,
            said: String::new(),
            said_on_group: String::new(),
            looked_after: false,
            is_done: false,
            rides_on: None,
            riders: BTreeSet::new(),
        }
    }

    /// Its launch is over, and with it its seats.
    pub(super) fn leave_seats(&mut self) {
        self.attempt = None;
        self.seats.clear();
        self.running_on.clear();
        self.is_done = false;
    }

    /// Pods that wait for a place, in the order in which they get one.
    pub fn waiting(&self) -> Vec<&Member> {
        let mut waiting: Vec<&Member> = self.members.values().filter(|m| m.waits()).collect();
        waiting.sort_by(|a, b| rank(a).cmp(&rank(b)));
        waiting
    }

    /// The first pod, for what is said about all of them.
    pub fn first(&self) -> Option<&Member> {
        self.members
            .values()
            .filter(|m| !m.deleting)
            .min_by(|a, b| rank(a).cmp(&rank(b)))
    }

    /// With how many pods it starts: those that are done are not made anew.
    pub fn least(&self) -> Option<usize> {
        let (_, least) = self.size?;
        Some((least as usize).saturating_sub(self.done().count()).max(1))
    }

    /// Pods that ended well and belong to somebody who counts them.
    pub(super) fn done(&self) -> impl Iterator<Item = &Member> {
        let is_done = |m: &&Member| m.phase == Phase::Succeeded && m.identity.controller.is_some();
        self.members.values().filter(is_done)
    }

    /// The pods that go into its next launch; none while they are too few.
    pub(super) fn those_who_go(&self) -> Option<Vec<Member>> {
        let least = self.least()?;
        let waiting = self.waiting();
        (waiting.len() >= least).then(|| waiting.into_iter().take(least).cloned().collect())
    }

    /// Whether nobody sits there who has not ended.
    pub(super) fn is_empty_seat(&self, at: usize) -> bool {
        let over = |uid: &String| self.members.get(uid).is_none_or(|m| m.phase.is_over());
        self.seats[at].pod.as_ref().is_none_or(over)
    }

    pub(super) fn seated(&self, uid: &str) -> bool {
        self.seats.iter().any(|seat| seat.pod.as_deref() == Some(uid))
    }
}

/// Pods with a place of their own first, by that; the others by age and name, counting numbers in names as numbers.
fn rank(member: &Member) -> (u32, i64, usize, &str) {
    let name = member.id.name.as_str();
    (
        member.identity.index.unwrap_or(u32::MAX),
        member.identity.created,
        name.len(),
        name,
    )
}
