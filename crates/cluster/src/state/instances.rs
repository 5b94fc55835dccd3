//! Instances of roles: what each is told, and when the completion rules of a job are met.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::NodeShare;
use dovetail_openpai::environment::{self, InstanceInfo, JobInfo, Ports, Variables};

use super::orders::StartInstance;
use super::{Attempt, Cause, ClusterState, End, JobRecord, JobState, Verdict};
use crate::actor::{Actor, SystemRule};
use crate::fact::{InstanceEnd, TaskEnd};
use crate::request::JobRequest;
use crate::roles::{Instance, Role};
use crate::{AttemptId, JobId};

/// Ports of instances: below those that systems give out by default on Linux.
const PORTS: std::ops::Range<u64> = 20_000..32_000;

/// How a launch ended whose tasks are all over: whether it is complete, and what failed it.
pub(super) fn outcome(attempt: &Attempt, ends: &[TaskEnd]) -> (bool, Option<TaskEnd>) {
    let lost = ends
        .iter()
        .find(|end| end.platform_error.is_some() && !end.was_stopped);
    match (&attempt.verdict, &attempt.cause, lost) {
        (Some(Verdict::Succeeded(_)), _, _) => (true, None),
        (Some(Verdict::Failed(_, end)), _, _) => {
            let words = ends
                .iter()
                .find(|e| (e.exit_code, e.signal) == (end.exit_code, end.signal));
            let failed = TaskEnd {
                exit_code: end.exit_code,
                signal: end.signal,
                last_words: words.map(|w| w.last_words.clone()).unwrap_or_default(),
                out_of_memory: ends.iter().any(|e| e.out_of_memory),
                ..TaskEnd::default()
            };
            (false, Some(failed))
        }
        (None, _, Some(lost)) => (false, Some(lost.clone())),
        (None, Some(_), None) => (false, None),
        // No rule was met, and everything is over: that is a success.
        (None, None, None) => (!ends.iter().any(|end| end.was_stopped), None),
    }
}

/// What the rules of a role say, given how often its instances failed and succeeded.
fn rule(role: &Role, failed: u32, succeeded: u32) -> Option<bool> {
    let reached = |needed: Option<u32>, count: u32| needed.is_some_and(|n| n > 0 && count >= n);
    if reached(role.failures_allowed(), failed) {
        return Some(false);
    }
    reached(role.successes_needed(), succeeded).then_some(true)
}

impl ClusterState {
    /// An instance of a role has ended: the launch may be over by that.
    pub(super) fn instance_ended(&mut self, no: JobId, attempt_id: AttemptId, end: &InstanceEnd) {
        let Some(record) = self.jobs.get_mut(&no) else {
            return;
        };
        let Some(role) = record.request.roles.iter().find(|r| r.name == end.role).cloned() else {
            return;
        };
        let Some(attempt) = record.attempt_of(attempt_id) else {
            return;
        };
        let same = |known: &InstanceEnd| (&known.role, known.index) == (&end.role, end.index);
        if attempt.ends.iter().any(same) {
            return;
        }
        attempt.ends.push(end.clone());
        // One that was told to stop has no say any more.
        if attempt.cause.is_some() || attempt.verdict.is_some() {
            return;
        }
        let good = |e: &&InstanceEnd| e.exit_code == 0 && e.signal == 0;
        let of_role: Vec<&InstanceEnd> = attempt.ends.iter().filter(|e| e.role == role.name).collect();
        let succeeded = of_role.iter().filter(|e| good(e)).count() as u32;
        let failed = of_role.len() as u32 - succeeded;
        // One that starts on its own is all of its launch.
        let verdict = match record.request.gang {
            true => rule(&role, failed, succeeded),
            false => Some(failed == 0),
        };
        let attempt = record.attempt_of(attempt_id).expect("looked at above");
        match verdict {
            None => {}
            Some(true) => {
                attempt.verdict = Some(Verdict::Succeeded(role.name));
                for node in self.lives_on(no, attempt_id) {
                    self.order(node, Self::stop_order(no, attempt_id, "done", false));
                }
            }
            Some(false) => {
                attempt.verdict = Some(Verdict::Failed(role.name, end.clone()));
                self.stop_attempt(no, attempt_id, Cause::Failed);
            }
        }
    }

    /// A job that is one instance of a role is over: those that belong to it may be over by that.
    pub(super) fn instance_job_ended(&mut self, no: JobId) {
        let request = &self.jobs[&no].request;
        let (Some(part), false, false) = (request.array, request.gang, request.roles.is_empty()) else {
            return;
        };
        let Some((role, _)) = request.instance(part.index) else {
            return;
        };
        let role = request.roles[role].clone();
        let (mut failed, mut succeeded, mut open) = (0, 0, Vec::new());
        let of_array = self.jobs.range(part.array..).map(|(_, job)| job);
        for job in of_array.take_while(|job| job.request.array.is_some_and(|p| p.array == part.array)) {
            let same_role = |p: crate::request::ArrayPart| {
                let found = job.request.instance(p.index);
                found.is_some_and(|(i, _)| job.request.roles[i].name == role.name)
            };
            match &job.state {
                JobState::Ended(end) if job.request.array.is_some_and(same_role) => match end {
                    End::Completed => succeeded += 1,
                    End::Failed { .. } | End::TimeLimit | End::Rejected(_) => failed += 1,
                    End::Cancelled(_) | End::DependencyFailed(_) => {}
                },
                JobState::Ended(_) => {}
                _ => open.push(job.id),
            }
        }
        let Some(good) = rule(&role, failed, succeeded) else {
            return;
        };
        let why = match good {
            true => format!("{succeeded} of {} have succeeded", role.name),
            false => format!("{failed} of {} have failed", role.name),
        };
        let by = Actor::System(SystemRule::Completion(why));
        for other in open {
            self.cancelled(other, &by);
        }
    }

    /// What the instances on one node of a launch are started with.
    pub(super) fn instances_on(
        &self,
        record: &JobRecord,
        attempt: &Attempt,
        place: usize,
    ) -> Vec<StartInstance> {
        let request = &record.request;
        if request.roles.is_empty() {
            return Vec::new();
        }
        let Some(all) = request.seat(&attempt.allocation) else {
            return Vec::new();
        };
        let at = |share: &NodeShare| self.nodes[share.node].address.clone();
        let addresses: Vec<String> = attempt.allocation.shares.iter().map(at).collect();
        let ports = ports(record.id, attempt.id, request, &all, &addresses);
        let info = |instance: &Instance| InstanceInfo {
            role: &request.roles[instance.role].name,
            index: instance.index,
            address: addresses[instance.place].clone(),
            ports: &ports[&(instance.role, instance.index)],
        };
        let infos: Vec<InstanceInfo<'_>> = all.iter().map(info).collect();
        let common = common_env(record, &infos);
        let here = all.iter().enumerate().filter(|(_, i)| i.place == place);
        here.map(|(rank, instance)| {
            let role = &request.roles[instance.role];
            let mut env = common.clone();
            let own = &infos[rank];
            let first = infos.iter().find(|i| i.role == own.role).unwrap_or(own);
            env.extend(own_env(record, own, first));
            for (name, value) in request.env.iter().chain(&role.env) {
                env.insert(name.clone(), request.with_secrets(value));
            }
            StartInstance {
                role: role.name.clone(),
                index: instance.index,
                rank: rank as u32,
                command: role
                    .command
                    .iter()
                    .map(|word| request.with_secrets(word))
                    .collect(),
                env,
                gpus: instance.gpus.clone(),
                ports: ports[&(instance.role, instance.index)]
                    .values()
                    .flatten()
                    .copied()
                    .collect(),
                cpu_milli: role.cpus.milli(),
                memory_mib: role.memory_mib,
                image: role.image.clone(),
                shm_mib: role.shm_mib,
            }
        })
        .collect()
    }
}

/// Ports of all instances of a launch, by role and index.
type InstancePorts = BTreeMap<(usize, u32), Ports>;

/// Ports for all instances of a launch, drawn by hash; two of one machine are never the same.
fn ports(
    no: JobId,
    attempt_id: AttemptId,
    request: &JobRequest,
    all: &[Instance],
    addresses: &[String],
) -> InstancePorts {
    let mut used: BTreeSet<(&str, u16)> = BTreeSet::new();
    let mut given = InstancePorts::new();
    for instance in all {
        let role = &request.roles[instance.role];
        let mine = given.entry((instance.role, instance.index)).or_default();
        for (label, count) in environment::port_counts(&role.ports) {
            for n in 0..count {
                let words = format!("{no} {attempt_id} {} {} {label} {n}", role.name, instance.index);
                let span = PORTS.end - PORTS.start;
                let first = hash(&words) % span;
                let address = addresses[instance.place].as_str();
                let candidates = (0..span).map(|step| (PORTS.start + (first + step) % span) as u16);
                for port in candidates {
                    if used.insert((address, port)) {
                        mine.entry(label.clone()).or_default().push(port);
                        break;
                    }
                }
            }
        }
    }
    given
}

/// FNV-1a, the same everywhere.
fn hash(words: &str) -> u64 {
    words.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What all instances of a launch are told, by OpenPAI's names.
fn common_env(record: &JobRecord, instances: &[InstanceInfo<'_>]) -> Variables {
    let request = &record.request;
    let job = JobInfo {
        name: &request.name,
        user: &record.user,
        virtual_cluster: &request.tenant,
        roles: request.roles.iter().map(Role::info).collect(),
    };
    let mut env = environment::job_variables(&job);
    env.extend([environment::instance_list(&job.roles)]);
    env.extend(environment::host_variables(&job.roles, instances));
    env
}

/// What an instance is told of itself.
fn own_env(record: &JobRecord, instance: &InstanceInfo<'_>, first: &InstanceInfo<'_>) -> Variables {
    let index = instance.index;
    let attempt_id = record.attempts.last().map_or(0, |a| a.id);
    let mut env = environment::instance_variables(instance);
    let mut put = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    put(
        environment::POD_UID,
        format!("{}-{attempt_id}-{}-{index}", record.id, instance.role),
    );
    put("RANK", index.to_string());
    // Instances of one role meet at the first of them, as `torch.distributed` would have it.
    put("MASTER_ADDR", first.address.clone());
    put("MASTER_PORT", first.ports["master"][0].to_string());
    let role = record.request.roles.iter().find(|r| r.name == instance.role);
    put("WORLD_SIZE", role.map_or(0, |r| r.instances).to_string());
    env
}
