//! Instances of roles: their commands, environment variables and ports.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::NodeShare;
use dovetail_openpai::environment::{self, InstanceInfo, JobInfo, Ports, Variables};

use crate::request::{Instance, JobRequest, Role};
use crate::state::commands::StartInstance;
use crate::state::jobs::{Attempt, JobRecord};
use crate::state::nodes::NodeTable;
use crate::{AttemptId, JobId};

/// Range of the ports of instances, below the default ephemeral ports of Linux.
const PORTS: std::ops::Range<u64> = 20_000..32_000;

/// Returns the instances of an attempt on one of its nodes, ready to be started.
pub(in crate::state) fn instances_on(
    nodes: &NodeTable,
    record: &JobRecord,
    attempt: &Attempt,
    place: usize,
) -> Vec<StartInstance> {
    let request = &record.request;
    if request.roles.is_empty() {
        return Vec::new();
    }
    let Some(all) = request.place_instances(&attempt.allocation) else {
        return Vec::new();
    };
    let address = |share: &NodeShare| nodes.known(share.node).address.clone();
    let addresses: Vec<String> = attempt.allocation.shares.iter().map(address).collect();
    let ports = assign_ports(record.id, attempt.id, request, &all, &addresses);
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
        let command = role.command.iter().map(|word| request.with_secrets(word));
        StartInstance {
            role: role.name.clone(),
            index: instance.index,
            rank: rank as u32,
            command: command.collect(),
            env,
            gpus: instance.gpus.clone(),
            ports: own.ports.values().flatten().copied().collect(),
            cpu_milli: role.cpus.milli(),
            memory_mib: role.memory_mib,
            image: role.image.clone(),
            shm_mib: role.shm_mib,
        }
    })
    .collect()
}

/// Ports of all instances of an attempt, by role and index.
type InstancePorts = BTreeMap<(usize, u32), Ports>;

/// Assigns ports to all instances of an attempt by hash; no two instances on one machine share a port.
fn assign_ports(
    id: JobId,
    attempt_id: AttemptId,
    request: &JobRequest,
    all: &[Instance],
    addresses: &[String],
) -> InstancePorts {
    let mut used: BTreeSet<(&str, u16)> = BTreeSet::new();
    let mut assigned = InstancePorts::new();
    for instance in all {
        let role = &request.roles[instance.role];
        let own = assigned.entry((instance.role, instance.index)).or_default();
        for (label, count) in environment::port_counts(&role.ports) {
            for n in 0..count {
                let seed = format!("{id} {attempt_id} {} {} {label} {n}", role.name, instance.index);
                let span = PORTS.end - PORTS.start;
                let first = hash(&seed) % span;
                let address = addresses[instance.place].as_str();
                let candidates = (0..span).map(|step| (PORTS.start + (first + step) % span) as u16);
                for port in candidates {
                    if used.insert((address, port)) {
                        own.entry(label.clone()).or_default().push(port);
                        break;
                    }
                }
            }
        }
    }
    assigned
}

/// Returns the FNV-1a hash, which is the same on every machine.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns the variables that all instances of an attempt share, with OpenPAI's names.
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

/// Returns the variables of one instance.
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
    // Instances of one role rendezvous at the first of them, as `torch.distributed` expects.
    put("MASTER_ADDR", first.address.clone());
    put("MASTER_PORT", first.ports["master"][0].to_string());
    let role = record.request.roles.iter().find(|r| r.name == instance.role);
    put("WORLD_SIZE", role.map_or(0, |r| r.instances).to_string());
    env
}
