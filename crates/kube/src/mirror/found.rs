//! What is there when the scheduler starts, and after changes were missed.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_control::{Fact, JobNo, JobState, Launch};
use dovetail_kubeapi::{Node, Pod};
use dovetail_model::{Allocation, GpuSet, NodeId, NodeShare, Time};

use super::gangs::{Gang, Member, Seat};
use super::{Ledger, Mirror};
use crate::identity::{GangKey, Size};
use crate::plan::{Plan, parse_gpus};

impl Mirror {
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
            .chain(self.others.keys())
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
        }
        // In the order they came, so that numbers of jobs tell who was first.
        let mut keys: Vec<GangKey> = keys.into_iter().collect();
        keys.sort_by_key(|key| self.gangs.get(key).and_then(came));
        for key in keys {
            self.look_at(&key, ledger);
        }
    }

    /// Takes up every gang of which a pod is bound.
    fn take_up(&mut self, ledger: &mut impl Ledger) {
        let mut running: BTreeMap<(JobNo, Launch), GangKey> = BTreeMap::new();
        for gang in self.gangs.values() {
            let bound = gang
                .members
                .values()
                .filter(|m| m.is_there())
                .filter_map(|m| m.bound_as.as_ref());
            if let Some((job, launch, _)) = bound.max_by_key(|(_, launch, _)| *launch) {
                running.insert((*job, *launch), gang.key.clone());
            }
        }
        for ((job, launch), key) in running {
            self.take_up_one(&key, job, launch, ledger);
        }
    }

    fn take_up_one(&mut self, key: &GangKey, job: JobNo, launch: Launch, ledger: &mut impl Ledger) {
        let gang = &self.gangs[key];
        let seats = self.seats_found(gang, job, launch);
        let members: Vec<&Member> = seats
            .iter()
            .filter_map(|s| gang.members.get(s.pod.as_ref()?))
            .collect();
        let Ok((user, request)) = self.request_found(gang, &members, &seats, ledger) else {
            return;
        };
        let first = gang
            .members
            .values()
            .map(|m| m.identity.created)
            .min()
            .unwrap_or(0);
        let fact = Fact::Found {
            job,
            user,
            request: Box::new(request),
            submitted: Time(first),
            launch,
            since: Time(first),
            allocation: allocation(&seats),
        };
        ledger.record(fact);
        let taken_up = ledger
            .book()
            .job(job)
            .is_some_and(|j| j.state == JobState::Starting);
        self.jobs.insert(job, key.clone());
        let gang = self.gang_entry(key);
        gang.job = Some(job);
        if let Some(Size::Known(size, least)) = gang.members.values().next().map(|m| m.identity.size.clone())
        {
            gang.size = Some((size, least));
        } else {
            gang.size.get_or_insert((seats.len() as u32, seats.len() as u32));
        }
        if taken_up {
            gang.launch = Some(launch);
            gang.seats = seats;
            let open: Vec<usize> = (0..gang.seats.len())
                .filter(|at| {
                    let member = gang.seats[*at].pod.as_ref().and_then(|uid| gang.members.get(uid));
                    member.is_some_and(Member::waits)
                })
                .collect();
            self.bind_seats(key, job, launch, &open);
        } else {
            // Somebody else is on its GPUs, or its node is not there: it goes, and comes again.
            ledger.record(Fact::Scattered { job });
            let there: Vec<_> = self.gangs[key]
                .members
                .values()
                .filter(|m| m.is_there())
                .map(|m| m.id.clone())
                .collect();
            for pod in there {
                self.remove(
                    key,
                    &pod,
                    &crate::action::Removal {
                        reason: "GpusTaken",
                        message: "its GPUs are somebody else's".to_owned(),
                        may_wait: false,
                        warn_s: 0,
                    },
                );
            }
        }
    }

    fn request_found(
        &self,
        gang: &Gang,
        members: &[&Member],
        seats: &[Seat],
        ledger: &impl Ledger,
    ) -> Result<(String, dovetail_control::JobRequest), String> {
        let (user, mut request) = self.request(gang, members, ledger)?;
        // Pods that are gone have seats all the same.
        let gpus: u32 = seats.iter().map(|s| s.needs.gpus).sum();
        request.gpus = request.gpus.max(gpus);
        Ok((user, request))
    }

    /// The seats of a launch: as the plan has it, or as it is written on each pod.
    fn seats_found(&self, gang: &Gang, job: JobNo, launch: Launch) -> Vec<Seat> {
        let plans = gang
            .members
            .values()
            .filter_map(|m| Plan::parse(m.plan.as_ref()?).ok());
        let plan = plans.into_iter().find(|p| (p.job, p.launch) == (job, launch));
        let named = |name: &str| gang.members.values().find(|m| m.id.name == name);
        let Some(plan) = plan else {
            let of_launch = |m: &&Member| {
                m.bound_as
                    .as_ref()
                    .is_some_and(|(j, l, _)| (*j, *l) == (job, launch))
            };
            let seat = |m: &Member| {
                let (_, _, gpus) = m.bound_as.as_ref()?;
                Some(Seat {
                    needs: m.identity.needs,
                    node: self.node_id(m.node.as_ref()?)?,
                    gpus: gpus.clone(),
                    pod: Some(m.id.uid.clone()),
                })
            };
            return gang.members.values().filter(of_launch).filter_map(seat).collect();
        };
        let common = gang
            .members
            .values()
            .map(|m| m.identity.needs)
            .max()
            .unwrap_or_default();
        let seat = |(pod, node, gpus): &(String, String, String)| {
            let member = named(pod);
            Some(Seat {
                needs: member.map_or(common, |m| m.identity.needs),
                node: self.node_id(node)?,
                gpus: parse_gpus(gpus)?,
                pod: member.map(|m| m.id.uid.clone()),
            })
        };
        plan.seats.iter().filter_map(seat).collect()
    }

    fn node_id(&self, name: &str) -> Option<NodeId> {
        self.nodes.get(name)?.id
    }
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
