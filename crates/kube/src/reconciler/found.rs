//! What is there when the scheduler starts, and after changes were missed.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_cluster::{AttemptId, Fact, JobId, JobState};
use dovetail_kubeapi::{Node, Pod};
use dovetail_model::{Allocation, GpuSet, NodeId, NodeShare, Time};

use super::gang::{Gang, Member, Phase, Seat};
use super::{Ledger, Reconciler};
use crate::identity::{GangKey, Size};
use crate::plan::{Plan, parse_gpus};

impl Reconciler {
    /// All nodes there are.
    pub fn all_nodes(&mut self, nodes: &[Node], ledger: &mut impl Ledger) {
        let there: BTreeSet<&str> = nodes.iter().map(|n| n.metadata.name.as_str()).collect();
        let gone: Vec<String> = self
            .nodes
            .keys()
            .filter(|n| !there.contains(n.as_str()))
            .cloned()
            .collect();
        for name in gone {
            self.node_gone(&name, ledger);
        }
        for node in nodes {
            self.node_put(node, ledger);
        }
    }

    /// All pods there are. The first time, gangs that run are taken up where they are, in the order of their numbers, before
    /// anybody else stands in line.
    pub fn all_pods(&mut self, pods: &[Pod], ledger: &mut impl Ledger) {
        let there: BTreeSet<&str> = pods.iter().map(|p| p.metadata.uid.as_str()).collect();
        let known = self
            .pods
            .keys()
            .chain(self.others.uids())
            .chain(self.strange.keys());
        let gone: BTreeSet<String> = known
            .filter(|uid| !there.contains(uid.as_str()))
            .cloned()
            .collect();
        for uid in gone {
            self.forget_pod(&uid, ledger);
        }
        let mut keys = BTreeSet::new();
        for pod in pods {
            keys.extend(self.take_note(pod));
        }
        self.withhold_changed(ledger);
        if !self.settled {
            self.take_up(ledger);
            self.settled = true;
            self.call_back_the_left(ledger);
        }
        // In the order they came, so that numbers of jobs tell who was first.
        let mut keys: Vec<GangKey> = keys.into_iter().collect();
        keys.sort_by_key(|key| self.gangs.get(key).and_then(came));
        for key in keys {
            self.look_at(&key, ledger);
        }
    }

    /// Takes up every gang of which a pod is bound, or was and others are still to be.
    fn take_up(&mut self, ledger: &mut impl Ledger) {
        let mut running = Vec::new();
        for gang in self.gangs.values() {
            let counts = |m: &&Member| m.is_there() || is_ahead_of_others(gang, m);
            let bound = gang.members.values().filter(counts);
            let bound = bound.filter_map(|m| m.bound_as.as_ref());
            if let Some((job, attempt_id, _)) = bound.max_by_key(|(_, attempt_id, _)| *attempt_id) {
                running.push((*job, *attempt_id, gang.key.clone()));
            }
        }
        running.sort();
        self.date_past();
        let held = self.held_gpus();
        let mut waiting = self.numbered();
        for (written, attempt_id, key) in running {
            self.announce_before(&mut waiting, written, ledger);
            // A number that was given twice counts once.
            let job = written.max(ledger.state().next_job());
            let mut seats = self.seats_found(&self.gangs[&key], (written, attempt_id));
            // A plan gives way to pods that are really there, and to plans that were taken up before.
            seats.retain(|seat| {
                let gpu = |gpu: &u32| held.get(&(seat.node, *gpu)).is_none_or(|holder| *holder == key);
                seat.gpus.iter().all(gpu)
            });
            if !are_free(&allocation(&seats), ledger) {
                let members = &self.gangs[&key].members;
                seats.retain(|seat| {
                    let member = seat.pod.as_ref().and_then(|uid| members.get(uid));
                    member.is_some_and(Member::is_there)
                });
            }
            self.take_up_one(&key, job, attempt_id, seats, ledger);
        }
        self.announce_before(&mut waiting, JobId::MAX, ledger);
    }

    /// GPUs with a pod of ours on them, and its gang.
    fn held_gpus(&self) -> BTreeMap<(NodeId, u32), GangKey> {
        let mut held = BTreeMap::new();
        for gang in self.gangs.values() {
            for member in gang.members.values().filter(|m| m.is_there()) {
                let node = member.node.as_ref().and_then(|name| self.node_id(name));
                if let (Some(node), Some((_, _, gpus))) = (node, &member.bound_as) {
                    held.extend(gpus.iter().map(|gpu| ((node, *gpu), gang.key.clone())));
                }
            }
        }
        held
    }

    fn take_up_one(
        &mut self,
        key: &GangKey,
        job: JobId,
        attempt_id: AttemptId,
        seats: Vec<Seat>,
        ledger: &mut impl Ledger,
    ) {
        let gang = &self.gangs[key];
        let members: Vec<Member> = seats
            .iter()
            .filter_map(|s| gang.members.get(s.pod.as_ref()?).cloned())
            .collect();
        // Pods that run stay where they are, whatever their nodes have become.
        let constraint = self.constraint_for(&members, ledger).ok();
        let (gang, members) = (&self.gangs[key], members.iter().collect::<Vec<_>>());
        let Ok((user, mut request)) = self.request(gang, &members, constraint, ledger) else {
            // Its nodes are not known any more; its pods have no seat, and go.
            return;
        };
        // Pods that are gone have seats all the same.
        request.gpus = seats.iter().map(|s| s.needs.gpus).sum::<u32>().max(1);
        let first = came(gang).unwrap_or(0);
        ledger.record(Fact::Found {
            job,
            user,
            request: Box::new(request),
            submitted: Time(first),
            attempt: attempt_id,
            since: Time(first),
            allocation: allocation(&seats),
        });
        self.jobs.insert(job, key.clone());
        let taken_up = ledger
            .state()
            .job(job)
            .is_some_and(|j| j.state == JobState::Starting);
        let gang = self.gang_entry(key);
        gang.job = Some(job);
        gang.constraint = constraint;
        let said = gang.members.values().next().map(|m| m.identity.size.clone());
        if let (Some(Size::Known(size, least)), None) = (said, &gang.rides_on) {
            gang.size = Some((size, least));
        }
        if !taken_up {
            // Somebody else is on its GPUs: its pods have no seat, and go; others take their place.
            return ledger.record(Fact::WorkloadLost { job });
        }
        gang.attempt = Some(attempt_id);
        gang.seats = seats;
        let waits = |at: &usize| {
            let member = gang.seats[*at].pod.as_ref().and_then(|uid| gang.members.get(uid));
            member.is_some_and(Member::waits)
        };
        let open: Vec<usize> = (0..gang.seats.len()).filter(waits).collect();
        self.bind_seats(key, job, attempt_id, &open);
    }

    /// The places of a launch, as a plan has them or as they are written on each pod; and in each the pod that is there, or
    /// that was meant to be and still waits.
    fn seats_found(&self, gang: &Gang, of: (JobId, AttemptId)) -> Vec<Seat> {
        let mut seats = self.seats_of_launch(gang, of);
        let seated: BTreeSet<&String> = seats.iter().filter_map(|s| s.pod.as_ref()).collect();
        let there = gang.members.values().filter(|m| m.is_there());
        let strays: Vec<Seat> = there
            .filter(|m| !seated.contains(&m.id.uid))
            .filter_map(|m| self.seat_of(m, true))
            .collect();
        seats.retain(|seat| !strays.iter().any(|stray| overlap(seat, stray)));
        seats.extend(strays);
        seats
    }

    /// Where a pod is, as it is written on it.
    fn seat_of(&self, member: &Member, stray: bool) -> Option<Seat> {
        let (_, _, gpus) = member.bound_as.as_ref()?;
        Some(Seat {
            needs: member.identity.needs,
            node: self.node_id(member.node.as_ref()?)?,
            gpus: gpus.clone(),
            pod: Some(member.id.uid.clone()),
            stray,
        })
    }

    fn seats_of_launch(&self, gang: &Gang, (job, attempt_id): (JobId, AttemptId)) -> Vec<Seat> {
        let of_launch = |m: &&Member| {
            m.bound_as
                .as_ref()
                .is_some_and(|(j, l, _)| (*j, *l) == (job, attempt_id))
        };
        let plans = gang
            .members
            .values()
            .filter_map(|m| Plan::parse(m.plan.as_ref()?).ok());
        let plan = plans
            .into_iter()
            .find(|p| (p.job, p.attempt) == (job, attempt_id));
        let Some(plan) = plan else {
            let mut members: Vec<&Member> = gang.members.values().filter(of_launch).collect();
            members.sort_by_key(|m| m.phase.is_over());
            let mut seats: Vec<Seat> = Vec::new();
            for seat in members.into_iter().filter_map(|m| self.seat_of(m, false)) {
                // A pod that took the place of one that ended sits on the same GPUs: that is one seat.
                if !seats.iter().any(|other| overlap(other, &seat)) {
                    seats.push(seat);
                }
            }
            return seats;
        };
        let widest = gang
            .members
            .values()
            .map(|m| m.identity.needs)
            .max()
            .unwrap_or_default();
        let seat = |(pod, node, gpus): &(String, String, String)| {
            let slots = parse_gpus(gpus)?;
            let is_here = |m: &&Member| {
                m.node.as_ref() == Some(node) && m.bound_as.as_ref().is_some_and(|(_, _, own)| *own == slots)
            };
            let mut there: Vec<&Member> = gang.members.values().filter(of_launch).filter(is_here).collect();
            there.sort_by_key(|m| m.phase.is_over());
            let meant = || gang.members.values().find(|m| m.id.name == *pod && m.waits());
            let member = there.first().copied().or_else(meant);
            let needs = member.map_or(widest, |m| m.identity.needs);
            Some(Seat {
                needs: crate::ask::Needs {
                    gpus: slots.len() as u32,
                    ..needs
                },
                node: self.node_id(node)?,
                gpus: slots,
                pod: member.map(|m| m.id.uid.clone()),
                stray: false,
            })
        };
        plan.seats.iter().filter_map(seat).collect()
    }

    fn node_id(&self, name: &str) -> Option<NodeId> {
        self.nodes.get(name)?.id
    }
}

/// Whether two seats have a GPU in common.
fn overlap(a: &Seat, b: &Seat) -> bool {
    a.node == b.node && a.gpus.iter().any(|gpu| b.gpus.contains(gpu))
}

/// Whether the pod has ended well before others of its launch were bound: whoever led before us died in between.
fn is_ahead_of_others(gang: &Gang, member: &Member) -> bool {
    let Some((job, attempt_id, _)) = &member.bound_as else {
        return false;
    };
    let plans = gang
        .members
        .values()
        .filter_map(|m| Plan::parse(m.plan.as_ref()?).ok());
    let mut plans = plans.filter(|p| (p.job, p.attempt) == (*job, *attempt_id));
    let is_meant = |plan: &Plan, m: &Member| plan.seats.iter().any(|(pod, ..)| *pod == m.id.name);
    member.phase == Phase::Succeeded && plans.any(|plan| gang.waiting().iter().any(|m| is_meant(&plan, m)))
}

/// Whether nobody holds these GPUs.
fn are_free(allocation: &Allocation, ledger: &impl Ledger) -> bool {
    let cluster = ledger.state().engine().cluster();
    let mut shares = allocation.shares.iter();
    shares.all(|share| {
        cluster
            .node(share.node)
            .is_some_and(|n| n.up && n.free.covers(&share.gpus))
    })
}

/// When the first pod of a gang was made.
fn came(gang: &Gang) -> Option<i64> {
    gang.members.values().map(|m| m.identity.created).min()
}

/// What seats hold together, node by node.
fn allocation(seats: &[Seat]) -> Allocation {
    let mut nodes: BTreeMap<NodeId, (Vec<u32>, u32, u64)> = BTreeMap::new();
    for seat in seats {
        let (gpus, cpu, memory) = nodes.entry(seat.node).or_default();
        gpus.extend(&seat.gpus);
        *cpu += seat.needs.cpu_milli;
        *memory += seat.needs.memory_mib;
    }
    let share = |(node, (gpus, cpu_milli, memory_mib)): (NodeId, (Vec<u32>, u32, u64))| {
        let slots = gpus.iter().max().map_or(0, |most| most + 1);
        let mut set = GpuSet::empty(slots);
        for slot in gpus {
            set.insert(slot);
        }
        NodeShare {
            node,
            gpus: set,
            cpu_milli,
            memory_mib,
        }
    };
    Allocation {
        shares: nodes.into_iter().map(share).collect(),
    }
}
