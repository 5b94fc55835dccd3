//! Gangs: pods that start together or not at all.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_control::{Fact, Hold, JobNo, JobRequest, JobState, Launch, Retries, Role};
use dovetail_model::{FenceId, NodeId};

use super::riders::Beside;
use super::{Claimed, Ledger, Mirror};
use crate::action::{Action, PodId, Removal};
use crate::ask::Needs;
use crate::fit::Wants;
use crate::identity::{GangKey, Identity, Size, starts_with};

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
    pub bound_as: Option<(JobNo, Launch, Vec<u32>)>,
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
    pub job: Option<JobNo>,
    /// The nodes it may be on, while there is a job.
    pub fence: Option<FenceId>,
    /// The launch its seats belong to.
    pub launch: Option<Launch>,
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
    fn new(key: GangKey) -> Self {
        Self {
            key,
            size: None,
            asked: false,
            members: BTreeMap::new(),
            job: None,
            fence: None,
            launch: None,
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
        self.launch = None;
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

impl Mirror {
    /// The gang of a pod, made if need be.
    pub(super) fn gang_entry(&mut self, key: &GangKey) -> &mut Gang {
        self.gangs
            .entry(key.clone())
            .or_insert_with(|| Gang::new(key.clone()))
    }

    /// Jobs whose pods nobody has made anew for too long are over.
    pub fn give_up_waiting(&mut self, before: dovetail_model::Time, ledger: &mut impl Ledger) {
        let forgotten = |gang: &&Gang| gang.members.is_empty();
        let jobs: Vec<(GangKey, JobNo)> = self
            .gangs
            .values()
            .filter(forgotten)
            .filter_map(|g| Some((g.key.clone(), g.job?)))
            .collect();
        for (key, no) in jobs {
            let held = |job: &dovetail_control::book::JobRecord| {
                job.state == JobState::Held(Hold::Parts) && job.since < before
            };
            if ledger.book().job(no).is_some_and(held) {
                ledger.record(Fact::Cancelled {
                    job: no,
                    by: "kubernetes: its pods are gone, and nobody has made them anew".to_owned(),
                });
                self.look_at(&key, ledger);
            }
        }
    }

    /// Whatever has to happen to a gang now, and to those it has to do with.
    pub(crate) fn look_at(&mut self, key: &GangKey, ledger: &mut impl Ledger) {
        self.to_look_at.push_back(key.clone());
        // What is found on the way is looked at afterwards.
        if self.to_look_at.len() > 1 {
            return;
        }
        while let Some(next) = self.to_look_at.front().cloned() {
            self.look_at_one(&next, ledger);
            self.to_look_at.pop_front();
        }
    }

    fn look_at_one(&mut self, key: &GangKey, ledger: &mut impl Ledger) {
        let Some(gang) = self.gangs.get_mut(key) else {
            return;
        };
        if gang.members.is_empty() && gang.job.is_none() && gang.riders.is_empty() {
            let gone = self.gangs.remove(key);
            if let Some(below) = gone.and_then(|g| g.rides_on) {
                self.step_down(&below, key, ledger);
            }
            return;
        }
        if gang.size.is_none() {
            let ask = gang.members.values().next().map(|m| m.identity.size.clone());
            match ask {
                Some(Size::Known(size, least)) => gang.size = Some((size, least)),
                Some(Size::Ask(at)) if !gang.asked => {
                    gang.asked = true;
                    self.actions.push(Action::LookUp {
                        gang: key.clone(),
                        at,
                    });
                    return;
                }
                Some(Size::Ask(_)) | None => {}
            }
        }
        if !self.settled {
            return;
        }
        if self.gets_off(key, ledger) {
            return;
        }
        self.clear_strays(key);
        let state = self.gangs[key]
            .job
            .map(|no| (no, ledger.book().job(no).map(|job| job.state.clone())));
        if !matches!(&state, Some((_, Some(JobState::Starting | JobState::Running)))) {
            self.look_at_riders(key, ledger);
        }
        let goes_on = |state: &JobState| !matches!(state, JobState::Ended(_) | JobState::Stopping(_));
        if matches!(&state, Some((_, Some(state))) if goes_on(state)) && self.goes_with_its_gang(key, ledger)
        {
            return;
        }
        match state {
            None => self.gather(key, ledger),
            Some((no, None | Some(JobState::Ended(_)))) => self.part_from(key, no, ledger),
            Some((no, Some(JobState::Held(Hold::Parts)))) => self.gather_again(key, no, ledger),
            Some((no, Some(JobState::Queued | JobState::Held(_)))) => self.stay_whole(key, no, ledger),
            Some((no, Some(JobState::Starting | JobState::Running))) => self.tend(key, no, ledger),
            Some((no, Some(JobState::Stopping(_)))) => self.wind_up(key, no, ledger),
        }
    }

    /// The size of a gang became known.
    pub fn size_is(&mut self, key: &GangKey, size: Result<u32, String>, ledger: &mut impl Ledger) {
        let Some(gang) = self.gangs.get_mut(key) else {
            return;
        };
        gang.asked = false;
        let least = gang.members.values().find_map(|m| m.identity.least);
        match size.and_then(|size| starts_with(size.max(1), least)) {
            Ok(size) => gang.size = Some(size),
            Err(why) => {
                gang.refused = Some(why);
                return;
            }
        }
        gang.refused = None;
        self.look_at(key, ledger);
    }

    /// Tries again what was refused, now that something has changed.
    pub fn retry_refused(&mut self, ledger: &mut impl Ledger) {
        let refused: Vec<GangKey> = self
            .gangs
            .values()
            .filter(|g| g.refused.is_some())
            .map(|g| g.key.clone())
            .collect();
        for key in refused {
            if let Some(gang) = self.gangs.get_mut(&key) {
                gang.refused = None;
            }
            self.look_at(&key, ledger);
        }
    }

    /// A gang without a job becomes one when it is whole.
    pub(super) fn gather(&mut self, key: &GangKey, ledger: &mut impl Ledger) {
        let gang = &self.gangs[key];
        let Some(members) = gang.those_who_go().filter(|_| gang.refused.is_none()) else {
            return;
        };
        // The number that was given is that of the gang.
        let number = members.first().and_then(|m| m.identity.number);
        let number = number.filter(|_| gang.rides_on.is_none());
        if let Some(no) = number.filter(|no| ledger.book().job(*no).is_some()) {
            return self.join(key, no, ledger);
        }
        let asked = self.asks(key, &members, ledger);
        let fence = asked.as_ref().ok().and_then(|(_, request)| request.fence);
        let asked =
            asked.and_then(
                |(user, request)| match number.filter(|no| *no >= ledger.book().next_job()) {
                    None => ledger
                        .submit(&user, request)
                        .map_err(|refusal| refusal.to_string()),
                    // It was sent under this number to a scheduler that is gone.
                    Some(job) => {
                        let request = Box::new(request);
                        ledger.record(Fact::Submitted {
                            job,
                            user,
                            request,
                            key: None,
                        });
                        Ok(job)
                    }
                },
            );
        let gang = self.gang_entry(key);
        match asked {
            Ok(no) => {
                gang.job = Some(no);
                gang.fence = fence;
                self.jobs.insert(no, key.clone());
            }
            Err(why) => gang.refused = Some(why),
        }
    }

    /// The same as [`Mirror::request`], on the nodes that may take the pods.
    fn asks(
        &mut self,
        key: &GangKey,
        members: &[Member],
        ledger: &mut impl Ledger,
    ) -> Result<(String, JobRequest), String> {
        let fence = self.fence_with_nodes(members, ledger)?;
        let members: Vec<&Member> = members.iter().collect();
        self.request(&self.gangs[key], &members, Some(fence), ledger)
    }

    /// The job a gang is, and who sent it.
    pub(super) fn request(
        &self,
        gang: &Gang,
        members: &[&Member],
        fence: Option<FenceId>,
        ledger: &impl Ledger,
    ) -> Result<(String, JobRequest), String> {
        let Some(first) = members.first() else {
            return Err("it has no pods".to_owned());
        };
        let identity = &first.identity;
        if gang.rides_on.is_some() && identity.needs.gpus == 0 {
            return Err("it asks for no GPU and was not there when its gang started".to_owned());
        }
        let tenant = match &identity.virtual_cluster {
            Some(named) => named.clone(),
            // A namespace that has a virtual cluster of its name uses that.
            None if ledger.book().clusters().names().contains(&gang.key.namespace) => {
                gang.key.namespace.clone()
            }
            None => dovetail_control::DEFAULT_CLUSTER.to_owned(),
        };
        let mut request = JobRequest {
            name: gang.job_name(identity),
            command: vec!["pods".to_owned()],
            tenant,
            gpu_type: identity.gpu_type.clone(),
            fence,
            spare: gang.rides_on.is_some(),
            priority: identity.priority,
            expected_s: identity.expected_s.map(f64::from),
            retries: Retries {
                user: 0,
                platform: 0,
                node: u32::MAX,
            },
            roles: roles(members),
            ..JobRequest::default()
        };
        request.size_by_roles()?;
        request.roles.clear();
        Ok((identity.user.clone(), request))
    }

    /// A job in line is withdrawn when its pods are gone.
    fn stay_whole(&mut self, key: &GangKey, no: JobNo, ledger: &mut impl Ledger) {
        self.gang_entry(key).leave_seats();
        let gang = &self.gangs[key];
        let waiting = gang.waiting().len();
        if waiting >= gang.least().unwrap_or(1) {
            return;
        }
        match waiting {
            0 => ledger.record(Fact::Cancelled {
                job: no,
                by: "kubernetes: its pods were deleted".to_owned(),
            }),
            _ => ledger.record(Fact::Scattered { job: no }),
        }
        self.look_at(key, ledger);
    }

    /// A job whose pods were gone stands in line again when they are there.
    fn gather_again(&mut self, key: &GangKey, no: JobNo, ledger: &mut impl Ledger) {
        self.gang_entry(key).leave_seats();
        self.clear_strays(key);
        let gang = &self.gangs[key];
        if gang.members.is_empty() && !gang.looked_after {
            ledger.record(Fact::Cancelled {
                job: no,
                by: "kubernetes: its pods are gone, and nobody makes them anew".to_owned(),
            });
            return self.look_at(key, ledger);
        }
        let Some(members) = gang.those_who_go() else {
            return;
        };
        match self.asks(key, &members, ledger) {
            Ok((_, request)) => {
                let gang = self.gang_entry(key);
                (gang.fence, gang.refused) = (request.fence, None);
                ledger.record(Fact::Gathered {
                    job: no,
                    now: Some(Box::new(request)),
                });
            }
            Err(why) => self.gang_entry(key).refused = Some(why),
        }
    }

    /// The job is over: what is left of its pods may be another one.
    fn part_from(&mut self, key: &GangKey, no: JobNo, ledger: &mut impl Ledger) {
        self.jobs.remove(&no);
        let gang = self.gang_entry(key);
        gang.job = None;
        gang.leave_seats();
        let left: Vec<PodId> = gang
            .members
            .values()
            .filter(|m| m.is_there() && !m.deleting)
            .map(|m| m.id.clone())
            .collect();
        for pod in left {
            self.remove(
                key,
                &pod,
                &Removal {
                    reason: "JobIsOver",
                    message: "its gang is over".to_owned(),
                    may_wait: false,
                    warn_s: 0,
                },
            );
        }
        self.look_at(key, ledger);
    }

    /// Pods that we have bound and that have no seat: an older launch has left them behind.
    fn clear_strays(&mut self, key: &GangKey) {
        let gang = &self.gangs[key];
        let stray =
            |m: &&Member| m.is_there() && !m.removed && m.bound_as.is_some() && !gang.seated(&m.id.uid);
        let strays: Vec<PodId> = gang
            .members
            .values()
            .filter(stray)
            .map(|m| m.id.clone())
            .collect();
        for pod in strays {
            let why = Removal {
                reason: "LaunchIsOver",
                message: "the launch it was bound for is over".to_owned(),
                may_wait: false,
                warn_s: 0,
            };
            self.remove(key, &pod, &why);
        }
    }

    pub(super) fn remove(&mut self, key: &GangKey, pod: &PodId, why: &Removal) {
        let gang = self.gang_entry(key);
        let Some(member) = gang.members.get_mut(&pod.uid) else {
            return;
        };
        if !std::mem::replace(&mut member.removed, true) {
            self.actions.push(Action::Remove {
                pod: pod.clone(),
                why: why.clone(),
            });
        }
    }

    /// Pods of a job that was told to stop are taken away; when they are gone the book is told.
    pub(super) fn wind_up(&mut self, key: &GangKey, no: JobNo, ledger: &mut impl Ledger) {
        let why = self.removal(no, ledger);
        let gang = &self.gangs[key];
        let there: Vec<PodId> = gang
            .members
            .values()
            .filter(|m| m.is_there())
            .map(|m| m.id.clone())
            .collect();
        let lost = |m: &Member| m.node.as_ref().is_some_and(|n| self.is_lost(n, ledger));
        let settled = gang.members.values().all(|m| m.in_flight.is_none());
        let gone = settled && gang.members.values().filter(|m| m.is_there()).all(lost);
        let looked_after = gang.looked_after;
        for pod in there {
            self.remove(key, &pod, &why);
        }
        if !gone {
            return;
        }
        match looked_after {
            true => ledger.record(Fact::Scattered { job: no }),
            false => ledger.record(Fact::Cancelled {
                job: no,
                by: format!("kubernetes: {}; nobody makes its pods anew", why.message),
            }),
        }
        self.tell_ends(no, ledger);
        self.gang_entry(key).leave_seats();
        self.look_at(key, ledger);
    }

    fn is_lost(&self, node: &str, ledger: &impl Ledger) -> bool {
        let id = self.nodes.get(node).and_then(|n| n.id);
        let state = id.and_then(|id| ledger.book().node(id)).map(|n| &n.state);
        state.is_none_or(|state| *state == dovetail_control::NodeState::Lost)
    }

    /// Pods that fill the seats that are empty, or whose pod has ended.
    pub(super) fn spare(&self, gang: &Gang) -> Vec<(usize, PodId)> {
        let mut free: Vec<&Member> = gang.waiting();
        free.retain(|m| !gang.seated(&m.id.uid));
        let mut pairs = Vec::new();
        for (at, seat) in gang.seats.iter().enumerate() {
            let fits = |m: &&Member| m.identity.needs == seat.needs;
            if let (true, Some(next)) = (gang.is_empty_seat(at), free.iter().position(fits)) {
                pairs.push((at, free.remove(next).id.clone()));
            }
        }
        pairs
    }
}

/// One role for each kind of pod, the widest first.
pub(super) fn roles(members: &[&Member]) -> Vec<Role> {
    let mut kinds: BTreeMap<Needs, u32> = BTreeMap::new();
    for member in members {
        *kinds.entry(member.identity.needs).or_insert(0) += 1;
    }
    let role = |(i, (needs, count)): (usize, (Needs, u32))| Role {
        name: format!("r{i}"),
        instances: count,
        gpus: needs.gpus,
        cpus: f64::from(needs.cpu_milli) / 1000.0,
        memory_mib: needs.memory_mib,
        command: vec!["pod".to_owned()],
        ..Role::default()
    };
    kinds.into_iter().rev().enumerate().map(role).collect()
}
