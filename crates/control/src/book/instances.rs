//! Instances of roles: what each is told, and when the completion rules of a job are met.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::NodeShare;

use super::orders::StartInstance;
use super::{Attempt, Book, Cause, End, JobRecord, JobState, Verdict};
use crate::fact::{InstanceEnd, TaskEnd};
use crate::request::JobRequest;
use crate::roles::{Instance, Role};
use crate::{JobNo, Launch};

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

impl Book {
    /// An instance of a role has ended: the launch may be over by that.
    pub(super) fn instance_ended(&mut self, no: JobNo, launch: Launch, end: &InstanceEnd) {
        let Some(record) = self.jobs.get_mut(&no) else {
            return;
        };
        let Some(role) = record.request.roles.iter().find(|r| r.name == end.role).cloned() else {
            return;
        };
        let Some(attempt) = record.attempt_of(launch) else {
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
        let attempt = record.attempt_of(launch).expect("looked at above");
        match verdict {
            None => {}
            Some(true) => {
                attempt.verdict = Some(Verdict::Succeeded(role.name));
                for node in self.lives_on(no, launch) {
                    self.order(node, Self::stop_order(no, launch, "done", false));
                }
            }
            Some(false) => {
                attempt.verdict = Some(Verdict::Failed(role.name, end.clone()));
                self.stop_attempt(no, launch, Cause::Failed);
            }
        }
    }

    /// A job that is one instance of a role is over: those that belong to it may be over by that.
    pub(super) fn instance_job_ended(&mut self, no: JobNo) {
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
                _ => open.push(job.no),
            }
        }
        let Some(good) = rule(&role, failed, succeeded) else {
            return;
        };
        let why = match good {
            true => format!("the completion rule: {succeeded} of {} have succeeded", role.name),
            false => format!("the completion rule: {failed} of {} have failed", role.name),
        };
        for other in open {
            self.cancelled(other, &why);
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
        let ports = ports(record.no, attempt.launch, request, &all, &addresses);
        let common = common_env(record, &all, &addresses, &ports);
        let here = all.iter().enumerate().filter(|(_, i)| i.place == place);
        here.map(|(rank, instance)| {
            let role = &request.roles[instance.role];
            let mut env = common.clone();
            env.extend(own_env(record, instance, &all, &addresses, &ports));
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
                cpu_milli: (role.cpus * 1000.0) as u32,
                memory_mib: role.memory_mib,
                image: role.image.clone(),
                shm_mib: role.shm_mib,
            }
        })
        .collect()
    }
}

/// Ports of an instance by label.
type Ports = BTreeMap<(usize, u32), BTreeMap<String, Vec<u16>>>;

/// Ports for all instances of a launch, drawn by hash; two of one machine are never the same.
fn ports(no: JobNo, launch: Launch, request: &JobRequest, all: &[Instance], addresses: &[String]) -> Ports {
    let mut used: BTreeSet<(&str, u16)> = BTreeSet::new();
    let mut given = Ports::new();
    for instance in all {
        let role = &request.roles[instance.role];
        let always = [("ssh", 1), ("http", 1), ("master", 1)];
        let asked = role.ports.iter().map(|(label, count)| (label.as_str(), *count));
        let mut labels: BTreeMap<&str, u32> = always.into();
        labels.extend(asked);
        let mine = given.entry((instance.role, instance.index)).or_default();
        for (label, count) in labels {
            for n in 0..count {
                let words = format!("{no} {launch} {} {} {label} {n}", role.name, instance.index);
                let span = PORTS.end - PORTS.start;
                let first = hash(&words) % span;
                let address = addresses[instance.place].as_str();
                let candidates = (0..span).map(|step| (PORTS.start + (first + step) % span) as u16);
                for port in candidates {
                    if used.insert((address, port)) {
                        mine.entry(label.to_owned()).or_default().push(port);
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

fn joined(items: impl Iterator<Item = impl ToString>) -> String {
    items.map(|i| i.to_string()).collect::<Vec<_>>().join(",")
}

/// What all instances of a launch are told, by OpenPAI's names.
fn common_env(
    record: &JobRecord,
    all: &[Instance],
    addresses: &[String],
    ports: &Ports,
) -> BTreeMap<String, String> {
    let request = &record.request;
    let mut env = BTreeMap::new();
    let mut put = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    let full = format!("{}~{}", record.user, request.name);
    let roles = joined(request.roles.iter().map(|r| &r.name));
    let count: u64 = request.roles.iter().map(|r| u64::from(r.instances)).sum();
    let every = request
        .roles
        .iter()
        .flat_map(|r| (0..r.instances).map(|i| format!("{}:{i}", r.name)));
    put("PAI_TASK_ROLE_INSTANCES", joined(every));
    for name in ["PAI_JOB_NAME", "PAI_FRAMEWORK_NAME"] {
        put(name, full.clone());
    }
    for name in ["PAI_USER_NAME", "PAI_USERNAME"] {
        put(name, record.user.clone());
    }
    put("PAI_VIRTUAL_CLUSTER", request.tenant.clone());
    put("PAI_DEFAULT_FS_URI", String::new());
    for name in [
        "PAI_TASK_ROLE_COUNT",
        "PAI_TASK_ROLES_NUM",
        "PAI_JOB_TASK_ROLE_COUNT",
    ] {
        put(name, request.roles.len().to_string());
    }
    for name in ["PAI_TASK_ROLE_LIST", "PAI_JOB_TASK_ROLE_LIST"] {
        put(name, roles.clone());
    }
    for name in ["PAI_TASKS_NUM", "PAI_JOB_TASK_COUNT"] {
        put(name, count.to_string());
    }
    for (i, role) in request.roles.iter().enumerate() {
        let name = &role.name;
        put(
            &format!("PAI_TASK_ROLE_TASK_COUNT_{name}"),
            role.instances.to_string(),
        );
        let resource = format!(
            "{},{},{},{}",
            role.gpus,
            role.cpus.ceil(),
            role.memory_mib,
            role.shm_mib
        );
        put(&format!("PAI_RESOURCE_{name}"), resource);
        let or_never = |n: Option<u32>| n.map_or("-1".to_owned(), |n| n.to_string());
        put(
            &format!("PAI_MIN_FAILED_TASK_COUNT_{name}"),
            or_never(role.failures_allowed()),
        );
        put(
            &format!("PAI_MIN_SUCCEEDED_TASK_COUNT_{name}"),
            or_never(role.successes_needed()),
        );
        let hosts = all.iter().filter(|instance| instance.role == i).map(|instance| {
            let http = &ports[&(i, instance.index)]["http"];
            format!("{}:{}", addresses[instance.place], http[0])
        });
        put(&format!("PAI_TASK_ROLE_{name}_HOST_LIST"), joined(hosts));
    }
    for instance in all {
        let (name, index) = (&request.roles[instance.role].name, instance.index);
        put(
            &format!("PAI_HOST_IP_{name}_{index}"),
            addresses[instance.place].clone(),
        );
        for (label, list) in &ports[&(instance.role, index)] {
            put(
                &format!("PAI_PORT_LIST_{name}_{index}_{label}"),
                joined(list.iter()),
            );
            put(&format!("PAI_{name}_{index}_{label}_PORT"), joined(list.iter()));
        }
    }
    env
}

/// What an instance is told of itself.
fn own_env(
    record: &JobRecord,
    instance: &Instance,
    all: &[Instance],
    addresses: &[String],
    ports: &Ports,
) -> BTreeMap<String, String> {
    let role = &record.request.roles[instance.role];
    let mine = &ports[&(instance.role, instance.index)];
    let address = &addresses[instance.place];
    let index = instance.index.to_string();
    let mut env = BTreeMap::new();
    let mut put = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    put("PAI_CURRENT_TASK_ROLE_NAME", role.name.clone());
    put("FC_TASKROLE_NAME", role.name.clone());
    for name in [
        "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX",
        "PAI_TASK_INDEX",
        "FC_TASK_INDEX",
        "RANK",
    ] {
        put(name, index.clone());
    }
    let launch = record.attempts.last().map_or(0, |a| a.launch);
    put(
        "FC_POD_UID",
        format!("{}-{launch}-{}-{index}", record.no, role.name),
    );
    for name in ["PAI_CURRENT_CONTAINER_IP", "PAI_CONTAINER_HOST_IP"] {
        put(name, address.clone());
    }
    for name in ["PAI_CURRENT_CONTAINER_PORT", "PAI_CONTAINER_HOST_PORT"] {
        put(name, mine["http"][0].to_string());
    }
    put("PAI_CONTAINER_SSH_PORT", mine["ssh"][0].to_string());
    for (label, list) in mine {
        put(
            &format!("PAI_CONTAINER_HOST_{label}_PORT_LIST"),
            joined(list.iter()),
        );
    }
    let labelled = mine
        .iter()
        .map(|(label, list)| format!("{label}:{}", joined(list.iter())));
    put(
        "PAI_CONTAINER_HOST_PORT_LIST",
        labelled.collect::<Vec<_>>().join(";"),
    );
    // Instances of one role meet at the first of them, as `torch.distributed` would have it.
    let first = all.iter().find(|i| i.role == instance.role).unwrap_or(instance);
    put("MASTER_ADDR", addresses[first.place].clone());
    put(
        "MASTER_PORT",
        ports[&(first.role, first.index)]["master"][0].to_string(),
    );
    put("WORLD_SIZE", role.instances.to_string());
    env
}
