//! Launches: seats for pods, bindings, and how they end.

use std::collections::BTreeSet;

use dovetail_cluster::{Actor, AttemptId, Cause, Cpus, Fact, JobId, JobRequest, JobState, TaskEnd};
use dovetail_model::NodeId;

use super::done::Verdict;
use super::gang::{Gang, Member, Phase, Seat};
use super::gangs::roles;
use super::{Ledger, Reconciler};
use crate::action::{Action, Bind, PodId, Removal};
use crate::identity::GangKey;
use crate::plan::{Plan, gpus_text};
use crate::words;

impl Reconciler {
    /// The book wants this launch to start. Orders for several nodes of one launch say the same.
    pub fn start(&mut self, no: JobId, attempt_id: AttemptId, ledger: &mut impl Ledger) {
        let Some(key) = self.jobs.get(&no).cloned() else {
            return;
        };
        let gang = &self.gangs[&key];
        let Some(attempt) = ledger
            .state()
            .job(no)
            .and_then(|job| job.attempt())
            .filter(|a| a.id == attempt_id)
        else {
            return;
        };
        if gang.attempt == Some(attempt_id) {
            return;
        }
        let members = self.those_who_start(gang, attempt.allocation.gpus());
        let seats = seats(&members, &attempt.allocation);
        let gang = self.gang_entry(&key);
        gang.attempt = Some(attempt_id);
        gang.running_on.clear();
        gang.said.clear();
        gang.seats = seats;
        let all: Vec<usize> = (0..gang.seats.len()).collect();
        self.bind_seats(&key, no, attempt_id, &all);
    }

    /// The pods that go into a launch of so many GPUs.
    fn those_who_start(&self, gang: &Gang, gpus: u32) -> Vec<Member> {
        let mut left = gpus;
        let mut chosen = Vec::new();
        for member in gang.waiting() {
            let needs = member.identity.needs.gpus;
            if needs <= left {
                left -= needs;
                chosen.push(member.clone());
            }
        }
        if let Some(least) = gang.least() {
            chosen.truncate(least);
        }
        chosen
    }

    /// Binds the pods of these seats; a gang's plan is written down before.
    pub(super) fn bind_seats(&mut self, key: &GangKey, no: JobId, attempt_id: AttemptId, which: &[usize]) {
        let gang = &self.gangs[key];
        let name = |seat: &Seat| self.node_name(seat.node);
        let bind = |at: &usize| {
            let seat = &gang.seats[*at];
            let member = gang.members.get(seat.pod.as_ref()?)?;
            let gpus = gpus_text(&seat.gpus);
            let mut annotations = vec![
                (words::JOB, no.to_string()),
                (words::ATTEMPT, attempt_id.to_string()),
                (words::GPUS, gpus.clone()),
            ];
            if member.identity.hived {
                annotations.push((dovetail_hived::ISOLATION, gpus));
            }
            if let Some(beside) = self.beside(gang) {
                annotations.push((words::RIDES_ON, beside.to_string()));
            }
            let node = name(seat);
            let claims = self.claim_devices(&member.id.namespace, &member.claims, &node, seat)?;
            Some(Bind {
                pod: member.id.clone(),
                node,
                annotations,
                claims,
            })
        };
        let binds: Vec<Bind> = which.iter().filter_map(bind).collect();
        let Some(first) = binds.first() else { return };
        let plan = (gang.seats.len() > 1).then(|| {
            let plan = Plan::of(no, attempt_id, gang, &name);
            (first.pod.clone(), plan.to_string())
        });
        let gang = self.gang_entry(key);
        for bind in &binds {
            if let Some(member) = gang.members.get_mut(&bind.pod.uid) {
                member.in_flight = Some(bind.node.clone());
            }
        }
        self.actions.push(Action::Launch {
            job: no,
            attempt: attempt_id,
            gang: key.to_string(),
            plan,
            binds,
        });
    }

    /// Looks after a gang that is up: fills seats that are empty, tells of pods that run, and of the end.
    pub(super) fn tend(&mut self, key: &GangKey, no: JobId, ledger: &mut impl Ledger) {
        let Some(attempt_id) = self.gangs[key].attempt else {
            // Its order has not come yet.
            return;
        };
        if self.bound_elsewhere(key) {
            let why = "another scheduler has bound a pod of its gang";
            return self.give_up(key, no, &not_whole(why, false), ledger);
        }
        if self.is_not_whole(key) || self.gangs[key].seats.iter().any(|s| s.stray) {
            let why = "it is not known any more where all pods of its gang belong";
            return self.give_up(key, no, &not_whole(why, false), ledger);
        }
        let mut spare = self.spare_or_rider(key, ledger);
        if let Some(why) = self.cannot_come_back(key, &spare) {
            return self.give_up(key, no, &not_whole(&why, true), ledger);
        }
        spare.retain(|(at, _)| self.closed_seat(&self.gangs[key].seats[*at]).is_none());
        if !spare.is_empty() {
            let gang = self.gang_entry(key);
            for (at, pod) in &spare {
                gang.seats[*at].pod = Some(pod.uid.clone());
            }
            let which: Vec<usize> = spare.iter().map(|(at, _)| *at).collect();
            self.bind_seats(key, no, attempt_id, &which);
        }
        self.let_ride(key, ledger);
        self.tell_running(key, no, attempt_id, ledger);
        self.end_what_is_done(key);
        if self.is_over(key) {
            self.tell_ends(no, ledger);
            self.look_at(key, ledger);
        }
    }

    /// Why no pod may take this seat, if none may.
    fn closed_seat(&self, seat: &Seat) -> Option<String> {
        let name = self.node_name(seat.node);
        match self.nodes.get(&name) {
            Some(node) => node.closed.as_ref().map(|why| format!("node {name}: {why}")),
            None => Some(format!("node {name} is gone")),
        }
    }

    /// Why a gang whose pods are made anew cannot go on where it was: a pod that was made anew would have to go to a node that
    /// takes none, such as one that is drained.
    fn cannot_come_back(&self, key: &GangKey, spare: &[(usize, PodId)]) -> Option<String> {
        let gang = self.gangs.get(key).filter(|g| g.looked_after)?;
        let closed = spare
            .iter()
            .find_map(|(at, _)| self.closed_seat(&gang.seats[*at]))?;
        Some(format!(
            "a pod of its gang is gone and cannot come back; {closed}"
        ))
    }

    /// Whether a pod is on another node than it was meant for: somebody else has bound it.
    fn bound_elsewhere(&self, key: &GangKey) -> bool {
        let gang = &self.gangs[key];
        gang.seats.iter().any(|seat| {
            let member = seat.pod.as_ref().and_then(|uid| gang.members.get(uid));
            let node = member.and_then(|m| m.node.as_ref());
            node.is_some_and(|node| *node != self.node_name(seat.node))
        })
    }

    /// Whether a launch that was found has fewer seats than the gang has to have.
    fn is_not_whole(&self, key: &GangKey) -> bool {
        let gang = &self.gangs[key];
        gang.least().is_some_and(|least| gang.seats.len() < least)
    }

    /// A launch that cannot be as it was meant: its pods go, and whoever looks after them makes others.
    fn give_up(&mut self, key: &GangKey, no: JobId, why: &Removal, ledger: &mut impl Ledger) {
        let gang = &self.gangs[key];
        let there: Vec<PodId> = gang
            .members
            .values()
            .filter(|m| m.is_there())
            .map(|m| m.id.clone())
            .collect();
        for pod in there {
            self.remove(key, &pod, why);
        }
        ledger.record(Fact::Cancelled {
            job: no,
            by: Actor::kubernetes(&why.message),
        });
        self.look_at(key, ledger);
    }

    fn tell_running(&mut self, key: &GangKey, no: JobId, attempt_id: AttemptId, ledger: &mut impl Ledger) {
        let gang = &self.gangs[key];
        let runs = |seat: &Seat| {
            let member = seat.pod.as_ref().and_then(|uid| gang.members.get(uid));
            member.is_some_and(|m| m.node.is_some() && m.phase != Phase::Pending)
        };
        let mut nodes: Vec<NodeId> = gang.seats.iter().map(|s| s.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.retain(|node| !gang.running_on.contains(node));
        nodes.retain(|node| gang.seats.iter().filter(|s| s.node == *node).all(runs));
        for node in nodes {
            self.gang_entry(key).running_on.insert(node);
            ledger.record(Fact::TaskStarted {
                job: no,
                attempt: attempt_id,
                node,
                sharing: String::new(),
                remarks: Vec::new(),
            });
        }
    }

    /// All pods have ended or are gone, and none waits to take a place.
    fn is_over(&self, key: &GangKey) -> bool {
        let gang = &self.gangs[key];
        let over = |seat: &Seat| {
            let member = seat.pod.as_ref().and_then(|uid| gang.members.get(uid));
            member.is_none_or(|m| m.phase.is_over())
        };
        !gang.seats.is_empty() && gang.seats.iter().all(over)
    }

    /// Tells the book how a launch ended, node by node.
    pub(super) fn tell_ends(&mut self, no: JobId, ledger: &mut impl Ledger) {
        let Some(job) = ledger.state().job(no) else { return };
        let stopped = matches!(job.state, JobState::Stopping(_));
        let Some(attempt) = job.attempt().filter(|a| a.end.is_none()) else {
            return;
        };
        let (attempt_id, nodes): (AttemptId, Vec<NodeId>) = (
            attempt.id,
            attempt.allocation.shares.iter().map(|s| s.node).collect(),
        );
        let mut ends: Vec<(NodeId, TaskEnd)> = nodes
            .iter()
            .map(|node| (*node, self.end_on(no, *node, stopped)))
            .collect();
        // What went wrong by itself is told before what was ended because of it.
        ends.sort_by_key(|(_, end)| end.was_stopped);
        for (node, end) in ends {
            ledger.record(Fact::TaskEnded {
                job: no,
                attempt: attempt_id,
                node,
                end: Box::new(end),
            });
        }
    }

    /// How the pods of a job on a node ended, all together.
    fn end_on(&self, no: JobId, node: NodeId, stopped: bool) -> TaskEnd {
        let stop = TaskEnd {
            was_stopped: true,
            ..TaskEnd::default()
        };
        let Some(gang) = self.gang_of(no).filter(|_| !stopped) else {
            return stop;
        };
        let verdict = gang.verdict();
        if verdict == Some(Verdict::Enough) {
            return TaskEnd::default();
        }
        let seats = gang.seats.iter().filter(|s| s.node == node);
        let members = seats.map(|seat| seat.pod.as_ref().and_then(|uid| gang.members.get(uid)));
        let mut end = TaskEnd::default();
        for member in members {
            match member.map(|m| (m.phase, &m.id)) {
                Some((Phase::Succeeded, _)) => {}
                Some((Phase::Failed(_), id))
                    if verdict.is_some() && gang.members.get(&id.uid).is_some_and(|m| m.deleting) =>
                {
                    end = stop.clone();
                }
                Some((Phase::Failed(code), id)) => {
                    return TaskEnd {
                        exit_code: if code == 0 { 1 } else { code },
                        log_tail: format!("pod {id} failed"),
                        ..TaskEnd::default()
                    };
                }
                // The owner takes away what is left of a gang that has failed.
                Some((Phase::Pending | Phase::Running, _)) | None
                    if verdict == Some(Verdict::TooManyFailed) =>
                {
                    end = stop.clone();
                }
                // A pod that is gone without a word was deleted by somebody.
                Some((Phase::Pending | Phase::Running, _)) | None => {
                    end.platform_error = Some("a pod of it was deleted by somebody else".to_owned());
                    end.refused = true;
                }
            }
        }
        end
    }

    /// Why the pods of a job that was told to stop go.
    pub(super) fn removal(&self, no: JobId, ledger: &impl Ledger) -> Removal {
        let state = ledger.state();
        let cause = state
            .job(no)
            .and_then(|job| job.attempt())
            .and_then(|a| a.cause.clone());
        let warn_s = self
            .gang_of(no)
            .and_then(Gang::first)
            .map_or(0, |m| m.identity.checkpoint_s);
        let policy = &state.policy().policy;
        let (reason, message, may_wait) = match cause {
            Some(Cause::Preempted(Some(by))) => {
                let name = state.job(by).map(|j| j.request.name.clone()).unwrap_or_default();
                (
                    "Preempted",
                    format!("preempted by {name} (job {by}) under policy {policy}"),
                    true,
                )
            }
            Some(Cause::Preempted(None)) => ("Preempted", format!("preempted under policy {policy}"), true),
            Some(Cause::Moved) => (
                "Moved",
                format!("moved to other GPUs under policy {policy}"),
                true,
            ),
            Some(Cause::Resized) => (
                "Resized",
                format!("given another number of GPUs under policy {policy}"),
                true,
            ),
            Some(Cause::NodeLost(node)) => (
                "NodeLost",
                format!("node {} of its gang was lost", self.node_name(node)),
                false,
            ),
            Some(Cause::Cancelled(by)) => ("Cancelled", format!("stopped by {by}"), false),
            Some(Cause::Held(by)) => ("Held", format!("held by {by}"), false),
            Some(Cause::TimeLimit) => ("TimeLimit", "it has run for as long as it may".to_owned(), false),
            Some(Cause::Failed) => ("GangFailed", "another pod of its gang failed".to_owned(), false),
            Some(Cause::Platform(why)) => ("GangFailed", why, false),
            None => ("Stopped", "its job was stopped".to_owned(), false),
        };
        Removal {
            reason,
            message,
            may_wait,
            warn_s: if may_wait { warn_s } else { 0 },
        }
    }

    /// The book wants a launch to stop.
    pub fn stop(&mut self, no: JobId, attempt_id: AttemptId, ledger: &mut impl Ledger) {
        let Some(key) = self.jobs.get(&no).cloned() else {
            return;
        };
        let attempt = ledger.state().job(no).and_then(|job| job.attempt());
        let Some(attempt) = attempt.filter(|a| a.id == attempt_id) else {
            return;
        };
        if let Some(Cause::Cancelled(by) | Cause::Held(by)) = &attempt.cause
            && !by.is_kubernetes()
        {
            self.stop_owner(&key);
        }
        // Pods that were not bound yet are not: whatever is on its way comes too late or is taken away.
        let gang = self.gang_entry(&key);
        gang.attempt = Some(attempt_id);
        self.look_at(&key, ledger);
    }

    /// A person ended the job: its owners are to make no more pods.
    fn stop_owner(&mut self, key: &GangKey) {
        if self.gangs[key].rides_on.is_none() {
            self.stop_owners(key, |_| true);
        }
    }

    /// Owners of such pods are to make no more of them, and take away those that are there.
    pub(super) fn stop_owners(&mut self, key: &GangKey, which: impl Fn(&Member) -> bool) {
        let members = self.gangs[key].members.values().filter(|m| which(m));
        let jobs: BTreeSet<String> = members
            .filter_map(|m| m.identity.controller.clone())
            .filter(|o| o.api_version == "batch/v1" && o.kind == "Job")
            .map(|o| o.name)
            .collect();
        for job in jobs {
            self.actions.push(Action::StopOwner {
                namespace: key.namespace.clone(),
                job,
            });
        }
    }

    /// A pod could not be bound, for good.
    pub fn bind_failed(&mut self, uid: &str, ledger: &mut impl Ledger) {
        let Some(key) = self.pods.get(uid).cloned() else {
            return;
        };
        let gang = self.gang_entry(&key);
        if let Some(member) = gang.members.get_mut(uid) {
            member.in_flight = None;
        }
        for seat in gang.seats.iter_mut().filter(|s| s.pod.as_deref() == Some(uid)) {
            if gang.members.get(uid).is_none_or(|m| m.node.is_none()) {
                seat.pod = None;
            }
        }
        self.look_at(&key, ledger);
        self.let_nodes_return(ledger);
    }
}

/// Why pods of a launch go that cannot be as it was meant; whether budgets for disruptions are asked.
fn not_whole(why: &str, may_wait: bool) -> Removal {
    Removal {
        reason: "NotWhole",
        message: why.to_owned(),
        may_wait,
        warn_s: 0,
    }
}

/// A seat for each pod, as the book's own jobs have it: the widest pods first, each on the first node with room.
pub(super) fn seats(members: &[Member], allocation: &dovetail_model::Allocation) -> Vec<Seat> {
    let all: Vec<&Member> = members.iter().collect();
    let request = JobRequest {
        roles: roles(&all),
        ..JobRequest::default()
    };
    let Some(instances) = request.place_instances(allocation) else {
        return Vec::new();
    };
    let mut left: Vec<&Member> = all;
    let mut seats = Vec::with_capacity(instances.len());
    for instance in instances {
        let role = &request.roles[instance.role];
        let fits = |m: &&Member| {
            let needs = m.identity.needs;
            (needs.gpus, needs.memory_mib) == (role.gpus, role.memory_mib)
                && Cpus::from_milli(i64::from(needs.cpu_milli)) == role.cpus
        };
        let Some(at) = left.iter().position(fits) else {
            continue;
        };
        let member = left.remove(at);
        seats.push(Seat {
            needs: member.identity.needs,
            node: allocation.shares[instance.place].node,
            gpus: instance.gpus,
            pod: Some(member.id.uid.clone()),
            stray: false,
        });
    }
    seats
}
