//! Gangs: pods that start together or not at all.

use std::collections::BTreeMap;

use dovetail_cluster::{Actor, Cpus, Fact, Hold, JobId, JobRequest, JobState, Retries, Role};
use dovetail_model::{NodeConstraintId, Time};

use super::gang::{Gang, Member};
use super::{Ledger, Reconciler};
use crate::action::{Action, PodId, Removal};
use crate::ask::Needs;
use crate::identity::{GangKey, Size, starts_with};

impl Reconciler {
    /// The gang of a pod, made if need be.
    pub(super) fn gang_entry(&mut self, key: &GangKey) -> &mut Gang {
        self.gangs
            .entry(key.clone())
            .or_insert_with(|| Gang::new(key.clone()))
    }

    /// Jobs whose pods nobody has made anew for too long are over.
    pub fn give_up_waiting(&mut self, before: dovetail_model::Time, ledger: &mut impl Ledger) {
        let forgotten = |gang: &&Gang| gang.members.is_empty();
        let jobs: Vec<(GangKey, JobId)> = self
            .gangs
            .values()
            .filter(forgotten)
            .filter_map(|g| Some((g.key.clone(), g.job?)))
            .collect();
        for (key, no) in jobs {
            let held = |job: &dovetail_cluster::state::JobRecord| {
                job.state == JobState::Held(Hold::Workload) && job.since < before
            };
            if ledger.state().job(no).is_some_and(held) {
                ledger.record(Fact::Cancelled {
                    job: no,
                    by: Actor::kubernetes("its pods are gone, and nobody has made them anew"),
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
            .map(|no| (no, ledger.state().job(no).map(|job| job.state.clone())));
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
            Some((no, Some(JobState::Held(Hold::Workload)))) => self.gather_again(key, no, ledger),
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
        if let Some(no) = number.filter(|no| ledger.state().job(*no).is_some()) {
            return self.join(key, no, ledger);
        }
        let asked = self.asks(key, &members, ledger);
        let constraint = asked.as_ref().ok().and_then(|(_, request)| request.constraint);
        let asked =
            asked.and_then(
                |(user, request)| match number.filter(|no| *no >= ledger.state().next_job()) {
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
                gang.constraint = constraint;
                self.jobs.insert(no, key.clone());
            }
            Err(why) => gang.refused = Some(why),
        }
    }

    /// The same as [`Reconciler::request`], on the nodes that may take the pods.
    fn asks(
        &mut self,
        key: &GangKey,
        members: &[Member],
        ledger: &mut impl Ledger,
    ) -> Result<(String, JobRequest), String> {
        let constraint = self.constraint_with_nodes(members, ledger)?;
        let members: Vec<&Member> = members.iter().collect();
        self.request(&self.gangs[key], &members, Some(constraint), ledger)
    }

    /// The job a gang is, and who sent it.
    pub(super) fn request(
        &self,
        gang: &Gang,
        members: &[&Member],
        constraint: Option<NodeConstraintId>,
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
            None if ledger
                .state()
                .virtual_clusters()
                .names()
                .contains(&gang.key.namespace) =>
            {
                gang.key.namespace.clone()
            }
            None => dovetail_cluster::DEFAULT_VIRTUAL_CLUSTER.to_owned(),
        };
        let mut request = JobRequest {
            name: gang.job_name(identity),
            command: vec!["pods".to_owned()],
            tenant,
            gpu_type: identity.gpu_type.clone(),
            constraint,
            best_effort: gang.rides_on.is_some(),
            priority: identity.priority,
            expected: identity.expected_s.map(|s| Time::from_secs(i64::from(s))),
            retries: Retries {
                user: 0,
                platform: 0,
                node: u32::MAX,
            },
            roles: roles(members),
            ..JobRequest::default()
        };
        request.size_by_roles().map_err(|e| e.to_string())?;
        request.roles.clear();
        Ok((identity.user.clone(), request))
    }

    /// A job in line is withdrawn when its pods are gone.
    fn stay_whole(&mut self, key: &GangKey, no: JobId, ledger: &mut impl Ledger) {
        self.gang_entry(key).leave_seats();
        let gang = &self.gangs[key];
        let waiting = gang.waiting().len();
        if waiting >= gang.least().unwrap_or(1) {
            return;
        }
        match waiting {
            0 => ledger.record(Fact::Cancelled {
                job: no,
                by: Actor::kubernetes("its pods were deleted"),
            }),
            _ => ledger.record(Fact::WorkloadLost { job: no }),
        }
        self.look_at(key, ledger);
    }

    /// A job whose pods were gone stands in line again when they are there.
    fn gather_again(&mut self, key: &GangKey, no: JobId, ledger: &mut impl Ledger) {
        self.gang_entry(key).leave_seats();
        self.clear_strays(key);
        let gang = &self.gangs[key];
        if gang.members.is_empty() && !gang.looked_after {
            ledger.record(Fact::Cancelled {
                job: no,
                by: Actor::kubernetes("its pods are gone, and nobody makes them anew"),
            });
            return self.look_at(key, ledger);
        }
        let Some(members) = gang.those_who_go() else {
            return;
        };
        match self.asks(key, &members, ledger) {
            Ok((_, request)) => {
                let gang = self.gang_entry(key);
                (gang.constraint, gang.refused) = (request.constraint, None);
                ledger.record(Fact::WorkloadReady {
                    job: no,
                    request: Some(Box::new(request)),
                });
            }
            Err(why) => self.gang_entry(key).refused = Some(why),
        }
    }

    /// The job is over: what is left of its pods may be another one.
    fn part_from(&mut self, key: &GangKey, no: JobId, ledger: &mut impl Ledger) {
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
    pub(super) fn wind_up(&mut self, key: &GangKey, no: JobId, ledger: &mut impl Ledger) {
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
            true => ledger.record(Fact::WorkloadLost { job: no }),
            false => ledger.record(Fact::Cancelled {
                job: no,
                by: Actor::kubernetes(format!("{}; nobody makes its pods anew", why.message)),
            }),
        }
        self.tell_ends(no, ledger);
        self.gang_entry(key).leave_seats();
        self.look_at(key, ledger);
    }

    fn is_lost(&self, node: &str, ledger: &impl Ledger) -> bool {
        let id = self.nodes.get(node).and_then(|n| n.id);
        let state = id.and_then(|id| ledger.state().node(id)).map(|n| &n.state);
        state.is_none_or(|state| *state == dovetail_cluster::NodeState::Lost)
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
        cpus: Cpus::from_milli(i64::from(needs.cpu_milli)),
        memory_mib: needs.memory_mib,
        command: vec!["pod".to_owned()],
        ..Role::default()
    };
    kinds.into_iter().rev().enumerate().map(role).collect()
}
