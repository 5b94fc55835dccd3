//! Environment variables by which OpenPAI describes a job to its instances.
//!
//! Most variables are known when a job is submitted. Index and address of an instance are not known then on Kubernetes,
//! which fills them in when it creates the pod; [`INDEX`], [`ADDRESS`] and [`POD_UID`] are their names.

use std::collections::BTreeMap;

/// Environment variables by name.
pub type Variables = BTreeMap<String, String>;

/// Ports of an instance by label.
pub type Ports = BTreeMap<String, Vec<u16>>;

/// Variables that hold the index of an instance in its role.
pub const INDEX: [&str; 3] = [
    "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX",
    "PAI_TASK_INDEX",
    "FC_TASK_INDEX",
];

/// Variables that hold the address of an instance.
pub const ADDRESS: [&str; 2] = ["PAI_CURRENT_CONTAINER_IP", "PAI_CONTAINER_HOST_IP"];

/// Variable that holds an identifier of the running instance.
pub const POD_UID: &str = "FC_POD_UID";

/// Variable that holds the folder an instance may write to.
pub const WORK_DIR: &str = "PAI_WORK_DIR";

/// A job, as its environment describes it.
#[derive(Debug, Clone)]
pub struct JobInfo<'a> {
    /// Name of the job.
    pub name: &'a str,
    /// User that submitted it.
    pub user: &'a str,
    /// Virtual cluster it runs in.
    pub virtual_cluster: &'a str,
    /// Its roles, in the order of the job file.
    pub roles: Vec<RoleInfo<'a>>,
}

/// A role of a job. Amounts are per instance.
#[derive(Debug, Clone, Copy)]
pub struct RoleInfo<'a> {
    /// Name of the role.
    pub name: &'a str,
    /// Number of instances.
    pub instances: u32,
    /// Number of GPUs.
    pub gpus: u32,
    /// Number of CPUs, rounded up.
    pub cpus: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Size of `/dev/shm` in MiB.
    pub shm_mib: u64,
    /// Number of failed instances that fails the job; `None` for no limit.
    pub min_failed: Option<u32>,
    /// Number of succeeded instances that completes the job; `None` for no such rule.
    pub min_succeeded: Option<u32>,
}

/// An instance of a role and where other instances reach it.
#[derive(Debug, Clone)]
pub struct InstanceInfo<'a> {
    /// Name of its role.
    pub role: &'a str,
    /// Index in its role.
    pub index: u32,
    /// Address or host name.
    pub address: String,
    /// Ports reserved for it.
    pub ports: &'a Ports,
}

/// Returns the number of ports per label: the requested ones, and one each for the labels that every instance gets.
///
/// OpenPAI reserves `http` and `ssh`; `master` is the rendezvous port of the role.
pub fn port_counts(requested: &BTreeMap<String, u32>) -> BTreeMap<String, u32> {
    let mut counts = requested.clone();
    for label in ["http", "ssh", "master"] {
        let count = counts.entry(label.to_owned()).or_default();
        *count = (*count).max(1);
    }
    counts
}

/// Returns the variables that describe the job and its roles. They are the same for all instances.
pub fn job_variables(job: &JobInfo<'_>) -> Variables {
    let mut env = Variables::new();
    let full_name = format!("{}~{}", job.user, job.name);
    let roles = joined(job.roles.iter().map(|role| role.name));
    let instances: u64 = job.roles.iter().map(|role| u64::from(role.instances)).sum();
    put(&mut env, &["PAI_JOB_NAME", "PAI_FRAMEWORK_NAME"], &full_name);
    put(&mut env, &["PAI_USER_NAME", "PAI_USERNAME"], job.user);
    put(&mut env, &["PAI_VIRTUAL_CLUSTER"], job.virtual_cluster);
    put(&mut env, &["PAI_DEFAULT_FS_URI"], "");
    let names = [
        "PAI_TASK_ROLE_COUNT",
        "PAI_TASK_ROLES_NUM",
        "PAI_JOB_TASK_ROLE_COUNT",
    ];
    put(&mut env, &names, job.roles.len());
    put(&mut env, &["PAI_TASK_ROLE_LIST", "PAI_JOB_TASK_ROLE_LIST"], roles);
    put(&mut env, &["PAI_TASKS_NUM", "PAI_JOB_TASK_COUNT"], instances);
    for role in &job.roles {
        let name = role.name;
        let resources = format!("{},{},{},{}", role.gpus, role.cpus, role.memory_mib, role.shm_mib);
        let or_never = |count: Option<u32>| count.map_or(-1, i64::from);
        env.extend([
            (
                format!("PAI_TASK_ROLE_TASK_COUNT_{name}"),
                role.instances.to_string(),
            ),
            (format!("PAI_RESOURCE_{name}"), resources),
            (
                format!("PAI_MIN_FAILED_TASK_COUNT_{name}"),
                or_never(role.min_failed).to_string(),
            ),
            (
                format!("PAI_MIN_SUCCEEDED_TASK_COUNT_{name}"),
                or_never(role.min_succeeded).to_string(),
            ),
        ]);
    }
    env
}

/// Returns the variable that lists all instances as `role:index`.
pub fn instance_list(roles: &[RoleInfo<'_>]) -> (String, String) {
    let instances = roles
        .iter()
        .flat_map(|role| (0..role.instances).map(|index| format!("{}:{index}", role.name)));
    ("PAI_TASK_ROLE_INSTANCES".to_owned(), joined(instances))
}

/// Returns the variables that tell where each instance of the job is. They are the same for all instances.
///
/// The list of a role without instances is empty: an instance that is scheduled on its own knows no others.
pub fn host_variables(roles: &[RoleInfo<'_>], instances: &[InstanceInfo<'_>]) -> Variables {
    let mut env = Variables::new();
    let mut hosts: BTreeMap<&str, Vec<String>> = roles.iter().map(|role| (role.name, Vec::new())).collect();
    for instance in instances {
        let (role, index, address) = (instance.role, instance.index, &instance.address);
        let port = first(instance.ports, "http").unwrap_or_default();
        hosts.entry(role).or_default().push(format!("{address}:{port}"));
        env.insert(format!("PAI_HOST_IP_{role}_{index}"), address.clone());
        for (label, ports) in instance.ports {
            let ports = joined(ports);
            env.insert(format!("PAI_PORT_LIST_{role}_{index}_{label}"), ports.clone());
            env.insert(format!("PAI_{role}_{index}_{label}_PORT"), ports);
        }
    }
    let lists = hosts
        .into_iter()
        .map(|(role, hosts)| (format!("PAI_TASK_ROLE_{role}_HOST_LIST"), joined(hosts)));
    env.extend(lists);
    env
}

/// Returns the variables that tell an instance its role and its ports.
pub fn role_variables(role: &str, ports: &Ports) -> Variables {
    let mut env = Variables::new();
    put(
        &mut env,
        &["PAI_CURRENT_TASK_ROLE_NAME", "FC_TASKROLE_NAME"],
        role,
    );
    if let Some(port) = first(ports, "http") {
        let names = ["PAI_CURRENT_CONTAINER_PORT", "PAI_CONTAINER_HOST_PORT"];
        put(&mut env, &names, port);
    }
    if let Some(port) = first(ports, "ssh") {
        put(&mut env, &["PAI_CONTAINER_SSH_PORT"], port);
    }
    let mut all = Vec::new();
    for (label, ports) in ports {
        let ports = joined(ports);
        all.push(format!("{label}:{ports}"));
        env.insert(format!("PAI_CONTAINER_HOST_{label}_PORT_LIST"), ports);
    }
    put(&mut env, &["PAI_CONTAINER_HOST_PORT_LIST"], all.join(";"));
    env
}

/// Returns the variables that tell an instance its role, index, address and ports.
pub fn instance_variables(instance: &InstanceInfo<'_>) -> Variables {
    let mut env = role_variables(instance.role, instance.ports);
    put(&mut env, &INDEX, instance.index);
    put(&mut env, &ADDRESS, &instance.address);
    env
}

fn put(env: &mut Variables, names: &[&str], value: impl ToString) {
    for name in names {
        env.insert((*name).to_owned(), value.to_string());
    }
}

fn first(ports: &Ports, label: &str) -> Option<u16> {
    ports.get(label)?.first().copied()
}

fn joined(items: impl IntoIterator<Item = impl ToString>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, instances: u32) -> RoleInfo<'_> {
        RoleInfo {
            name,
            instances,
            gpus: 2,
            cpus: 3,
            memory_mib: 4096,
            shm_mib: 512,
            min_failed: Some(1),
            min_succeeded: None,
        }
    }

    #[track_caller]
    fn check(env: &Variables, expected: &[(&str, &str)]) {
        for (name, value) in expected {
            assert_eq!(env.get(*name).map(String::as_str), Some(*value), "{name}");
        }
    }

    #[test]
    fn a_job_is_described_by_current_and_legacy_names() {
        let roles = vec![role("worker", 2), role("ps", 1)];
        let job = JobInfo {
            name: "train",
            user: "ann",
            virtual_cluster: "vision",
            roles: roles.clone(),
        };
        let mut env = job_variables(&job);
        env.extend([instance_list(&roles)]);
        check(
            &env,
            &[
                ("PAI_JOB_NAME", "ann~train"),
                ("PAI_FRAMEWORK_NAME", "ann~train"),
                ("PAI_USERNAME", "ann"),
                ("PAI_VIRTUAL_CLUSTER", "vision"),
                ("PAI_DEFAULT_FS_URI", ""),
                ("PAI_TASK_ROLES_NUM", "2"),
                ("PAI_TASK_ROLE_LIST", "worker,ps"),
                ("PAI_JOB_TASK_COUNT", "3"),
                ("PAI_TASK_ROLE_INSTANCES", "worker:0,worker:1,ps:0"),
                ("PAI_TASK_ROLE_TASK_COUNT_worker", "2"),
                ("PAI_RESOURCE_ps", "2,3,4096,512"),
                ("PAI_MIN_FAILED_TASK_COUNT_ps", "1"),
                ("PAI_MIN_SUCCEEDED_TASK_COUNT_ps", "-1"),
            ],
        );
    }

    #[test]
    fn instances_find_each_other_and_their_own_ports() {
        let counts = port_counts(&[("sync".to_owned(), 2)].into());
        let mut next = 20_000..;
        let ports: Ports = counts
            .into_iter()
            .map(|(label, count)| (label, next.by_ref().take(count as usize).collect()))
            .collect();
        let instance = |index: u32| InstanceInfo {
            role: "worker",
            index,
            address: format!("10.0.0.{index}"),
            ports: &ports,
        };
        let roles = [role("worker", 2), role("ps", 1)];
        let hosts = host_variables(&roles, &[instance(0), instance(1)]);
        check(
            &hosts,
            &[
                ("PAI_TASK_ROLE_worker_HOST_LIST", "10.0.0.0:20000,10.0.0.1:20000"),
                ("PAI_TASK_ROLE_ps_HOST_LIST", ""),
                ("PAI_HOST_IP_worker_1", "10.0.0.1"),
                ("PAI_PORT_LIST_worker_0_sync", "20003,20004"),
                ("PAI_worker_1_ssh_PORT", "20002"),
            ],
        );
        check(
            &instance_variables(&instance(1)),
            &[
                ("PAI_CURRENT_TASK_ROLE_NAME", "worker"),
                ("PAI_TASK_INDEX", "1"),
                ("FC_TASK_INDEX", "1"),
                ("PAI_CONTAINER_HOST_IP", "10.0.0.1"),
                ("PAI_CURRENT_CONTAINER_PORT", "20000"),
                ("PAI_CONTAINER_SSH_PORT", "20002"),
                ("PAI_CONTAINER_HOST_sync_PORT_LIST", "20003,20004"),
                (
                    "PAI_CONTAINER_HOST_PORT_LIST",
                    "http:20000;master:20001;ssh:20002;sync:20003,20004",
                ),
            ],
        );
    }
}
