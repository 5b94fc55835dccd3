//! The processes of a task and their environment: Dovetail's own variables, and those of `torch.distributed`, Blox and
//! OpenPAI.

use std::collections::BTreeMap;
use std::path::Path;

use dovetail_openpai::environment::{self as openpai, InstanceInfo, JobInfo, Ports, RoleInfo, Variables};
use dovetail_proto::v1::{Peer, Processes, StartTask};

use crate::task::error::StartError;
use crate::task::folder::TaskFolder;
use crate::task::record::ProcessSpec;

/// Name of the only role of a job without roles, in OpenPAI's variables.
const ROLE: &str = "worker";

/// What the node contributes to the environment of a task.
pub(crate) struct NodeContext<'a> {
    pub(crate) node: &'a str,
    pub(crate) address: &'a str,
    /// UUIDs of the node's GPU slots.
    pub(crate) gpus: &'a [String],
    /// Socket that trainers connect to.
    pub(crate) socket: &'a Path,
    pub(crate) secret: &'a str,
    pub(crate) folder: &'a TaskFolder,
    /// Folder of the MPS daemon, if the task shares its GPUs through MPS.
    pub(crate) mps: Option<&'a str>,
    /// Folder of the Python package.
    pub(crate) sdk: &'a Path,
}

impl NodeContext<'_> {
    /// Returns the UUIDs of GPU slots.
    pub(crate) fn uuids(&self, slots: &[u32]) -> Result<Vec<String>, StartError> {
        let uuid = |slot: &u32| {
            let found = self.gpus.get(*slot as usize).cloned();
            found.ok_or(StartError::UnknownSlot {
                slot: *slot,
                count: self.gpus.len(),
            })
        };
        slots.iter().map(uuid).collect()
    }
}

/// Returns the processes of a job without roles that a command starts on this node.
pub(crate) fn processes(
    command: &StartTask,
    context: &NodeContext<'_>,
) -> Result<Vec<ProcessSpec>, StartError> {
    if command.command.is_empty() {
        return Err(StartError::NoCommand);
    }
    let unknown = |_| StartError::UnknownProcesses(command.processes);
    let kind = Processes::try_from(command.processes).map_err(unknown)?;
    let common = task_variables(command, context)?;
    let count = match kind {
        Processes::PerNode => 1,
        Processes::PerGpu => command.gpus.len().max(1),
        Processes::FirstNode => usize::from(command.node_rank == 0),
    };
    let process = |local: usize| {
        let (rank, world_size) = match kind {
            Processes::PerNode => (command.node_rank, peers(command, context).len() as u32),
            Processes::PerGpu => (command.first_rank + local as u32, gang_slots(command, context)),
            Processes::FirstNode => (0, gang_slots(command, context)),
        };
        let gpu = command.gpus.get(local).map_or(-1, |slot| i64::from(*slot));
        let mut env = common.clone();
        for (name, value) in [
            ("RANK", rank.to_string()),
            ("LOCAL_RANK", local.to_string()),
            ("WORLD_SIZE", world_size.to_string()),
            ("LOCAL_WORLD_SIZE", count.to_string()),
            ("DOVETAIL_RANK", rank.to_string()),
            ("DOVETAIL_LOCAL_RANK", local.to_string()),
            ("DOVETAIL_WORLD_SIZE", world_size.to_string()),
            ("dist_rank", rank.to_string()),
            ("world_size", world_size.to_string()),
            ("local_gpu_id", gpu.to_string()),
        ] {
            env.insert(name.to_owned(), value);
        }
        // Variables of the job take precedence, except over those that identify the process.
        for (name, value) in &command.env {
            if !name.starts_with("DOVETAIL_") {
                env.insert(name.clone(), value.clone());
            }
        }
        add_sdk(&mut env, context);
        ProcessSpec {
            rank,
            command: command.command.clone(),
            env,
            tag: String::new(),
            container: None,
            log_note: String::new(),
        }
    };
    Ok((0..count).map(process).collect())
}

/// Appends the folder of the Python package to `PYTHONPATH`.
pub(crate) fn add_sdk(env: &mut BTreeMap<String, String>, context: &NodeContext<'_>) {
    let sdk = context.sdk.display().to_string();
    let own = env.get("PYTHONPATH").cloned();
    let path = own
        .or_else(|| std::env::var("PYTHONPATH").ok())
        .filter(|path| !path.is_empty());
    let path = path.map_or(sdk.clone(), |path| format!("{path}:{sdk}"));
    env.insert("PYTHONPATH".to_owned(), path);
}

/// Returns the host file for `mpirun`. It has one line for each machine, as `mpirun` requires, also if several agents run
/// on the machine.
pub(crate) fn hostfile(command: &StartTask, context: &NodeContext<'_>) -> String {
    let mut slots: Vec<(String, usize)> = Vec::new();
    for peer in peers(command, context) {
        let count = peer.gpus.len().max(1);
        match slots.iter_mut().find(|(address, _)| *address == peer.address) {
            Some((_, sum)) => *sum += count,
            None => slots.push((peer.address, count)),
        }
    }
    let line = |(address, count): (String, usize)| format!("{address} slots={count}\n");
    slots.into_iter().map(line).collect()
}

/// Returns the nodes of the gang; just this one for a command without peers.
fn peers(command: &StartTask, context: &NodeContext<'_>) -> Vec<Peer> {
    if !command.peers.is_empty() {
        return command.peers.clone();
    }
    vec![Peer {
        node: context.node.to_owned(),
        address: context.address.to_owned(),
        gpus: command.gpus.clone(),
    }]
}

/// Returns the number of GPU slots of the gang; a node without GPUs counts as one.
fn gang_slots(command: &StartTask, context: &NodeContext<'_>) -> u32 {
    let slots = |peer: &Peer| peer.gpus.len().max(1) as u32;
    peers(command, context).iter().map(slots).sum()
}

/// Returns the variables that all processes of a task have in common.
pub(crate) fn task_variables(
    command: &StartTask,
    context: &NodeContext<'_>,
) -> Result<Variables, StartError> {
    let peers = peers(command, context);
    let uuids = context.uuids(&command.gpus)?;
    let mut env = dovetail_variables(command, context, &peers);
    env.extend(gpu_variables(&command.gpus, &uuids));
    let mut put = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    let master = peers.first().map_or(context.address, |p| p.address.as_str());
    put("MASTER_ADDR", master.to_owned());
    put("MASTER_PORT", command.master_port.to_string());
    put("NODE_RANK", command.node_rank.to_string());
    put("GROUP_RANK", command.node_rank.to_string());
    put("master_ip_address", master.to_owned());
    put("job_id", command.task.unwrap_or_default().job.to_string());
    if let Some(pipe) = context.mps {
        put("CUDA_MPS_PIPE_DIRECTORY", pipe.to_owned());
    }
    // Output of Python scripts appears in the log at once.
    put("PYTHONUNBUFFERED", "1".to_owned());
    if command.instances.is_empty() {
        env.extend(openpai_variables(command, context, &peers));
    }
    Ok(env)
}

/// Returns the variables that select GPUs.
pub(crate) fn gpu_variables(slots: &[u32], uuids: &[String]) -> Variables {
    let uuids = uuids.join(",");
    let nvidia = if uuids.is_empty() { "none" } else { &uuids };
    [
        ("NVIDIA_VISIBLE_DEVICES", nvidia.to_owned()),
        ("CUDA_VISIBLE_DEVICES", uuids),
        ("local_accessible_gpus", joined(slots.iter().map(u32::to_string))),
        ("DOVETAIL_GPUS", slots.len().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn dovetail_variables(command: &StartTask, context: &NodeContext<'_>, peers: &[Peer]) -> Variables {
    let task = command.task.unwrap_or_default();
    let folder = context.folder;
    [
        ("DOVETAIL_JOB_ID", task.job.to_string()),
        ("DOVETAIL_JOB_NAME", command.job_name.clone()),
        ("DOVETAIL_ATTEMPT", task.attempt.to_string()),
        ("DOVETAIL_ARRAY_INDEX", command.array_index.to_string()),
        ("DOVETAIL_USER", command.user.clone()),
        ("DOVETAIL_TENANT", command.tenant.clone()),
        ("DOVETAIL_NODE", context.node.to_owned()),
        ("DOVETAIL_NODE_RANK", command.node_rank.to_string()),
        ("DOVETAIL_NODES", peers.len().to_string()),
        ("DOVETAIL_NODE_LIST", joined(peers.iter().map(|p| p.node.clone()))),
        (
            "DOVETAIL_HOST_LIST",
            joined(peers.iter().map(|p| p.address.clone())),
        ),
        ("DOVETAIL_HOSTFILE", folder.hostfile().display().to_string()),
        ("DOVETAIL_CPU_MILLI", command.cpu_milli.to_string()),
        ("DOVETAIL_MEMORY_MIB", command.memory_mib.to_string()),
        ("DOVETAIL_CHECKPOINT_DIR", command.checkpoint_dir.clone()),
        ("DOVETAIL_RESUME_STEP", command.resume_step.to_string()),
        ("DOVETAIL_GRACE_MS", command.grace_ms.to_string()),
        ("DOVETAIL_TASK_DIR", folder.path().display().to_string()),
        ("DOVETAIL_REPORT_DIR", folder.reports().display().to_string()),
        ("DOVETAIL_STOP_FILE", folder.notice().display().to_string()),
        ("DOVETAIL_SOCKET", context.socket.display().to_string()),
        ("DOVETAIL_SECRET", context.secret.to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(",")
}

/// Returns OpenPAI's variables. A job without roles is described as one role, `worker`, with an instance on each node.
fn openpai_variables(command: &StartTask, context: &NodeContext<'_>, peers: &[Peer]) -> Variables {
    let instances = u32::try_from(peers.len()).unwrap_or(u32::MAX);
    let job = JobInfo {
        name: &command.job_name,
        user: &command.user,
        virtual_cluster: &command.tenant,
        roles: vec![RoleInfo {
            name: ROLE,
            instances,
            gpus: u32::try_from(command.gpus.len()).unwrap_or(u32::MAX),
            cpus: u64::from(command.cpu_milli.div_ceil(1000)),
            memory_mib: command.memory_mib,
            shm_mib: 0,
            min_failed: Some(1),
            min_succeeded: Some(instances),
        }],
    };
    let port = u16::try_from(command.master_port).unwrap_or_default();
    let ports: Ports = [("http".to_owned(), vec![port])].into();
    let instance = |index: u32, address: &str| InstanceInfo {
        role: ROLE,
        index,
        address: address.to_owned(),
        ports: &ports,
    };
    let all: Vec<InstanceInfo<'_>> = (0..)
        .zip(peers)
        .map(|(i, peer)| instance(i, &peer.address))
        .collect();
    let mut env = openpai::job_variables(&job);
    env.extend([openpai::instance_list(&job.roles)]);
    env.extend(openpai::host_variables(&job.roles, &all));
    env.extend(openpai::instance_variables(&instance(
        command.node_rank,
        context.address,
    )));
    env
}

#[cfg(test)]
mod tests {
    use super::*;
    use dovetail_proto::v1::TaskKey;

    fn start(kind: Processes, node_rank: u32) -> StartTask {
        let peer = |node: &str, gpus: &[u32]| Peer {
            node: node.into(),
            address: format!("10.0.0.{}", &node[1..]),
            gpus: gpus.to_vec(),
        };
        StartTask {
            task: Some(TaskKey { job: 7, attempt: 2 }),
            job_name: "gang".into(),
            user: "ann".into(),
            tenant: "vision".into(),
            command: vec!["true".into()],
            gpus: if node_rank == 0 { vec![1, 2] } else { vec![0] },
            processes: kind.into(),
            node_rank,
            first_rank: if node_rank == 0 { 0 } else { 2 },
            peers: vec![peer("n1", &[1, 2]), peer("n2", &[0])],
            master_port: 29500,
            env: [
                ("MY".to_owned(), "own".to_owned()),
                ("DOVETAIL_SECRET".to_owned(), "x".to_owned()),
            ]
            .into(),
            ..Default::default()
        }
    }

    fn context<'a>(gpus: &'a [String], folder: &'a TaskFolder) -> NodeContext<'a> {
        NodeContext {
            node: "n1",
            address: "10.0.0.1",
            gpus,
            socket: Path::new("/t/s"),
            secret: "hush",
            folder,
            mps: None,
            sdk: Path::new("/t/python"),
        }
    }

    /// Returns the environments of the processes on a node.
    fn environments(kind: Processes, node_rank: u32) -> Vec<BTreeMap<String, String>> {
        let folder = TaskFolder::at(Path::new("/t/7-2"));
        let gpus = ["GPU-a".to_owned(), "GPU-b".to_owned(), "GPU-c".to_owned()];
        let context = context(&gpus, &folder);
        assert_eq!(
            hostfile(&start(kind, 0), &context),
            "10.0.0.1 slots=2\n10.0.0.2 slots=1\n"
        );
        let processes = processes(&start(kind, node_rank), &context).unwrap();
        processes.into_iter().map(|p| p.env).collect()
    }

    #[test]
    fn processes_per_gpu_are_ranked_across_the_gang() {
        let first = environments(Processes::PerGpu, 0);
        let ranks: Vec<&str> = first.iter().map(|e| e["RANK"].as_str()).collect();
        assert_eq!(ranks, ["0", "1"]);
        let env = &first[1];
        for (name, value) in [
            ("WORLD_SIZE", "3"),
            ("LOCAL_RANK", "1"),
            ("NODE_RANK", "0"),
            ("MASTER_ADDR", "10.0.0.1"),
            ("MASTER_PORT", "29500"),
            ("CUDA_VISIBLE_DEVICES", "GPU-b,GPU-c"),
            ("local_gpu_id", "2"),
            ("local_accessible_gpus", "1,2"),
            ("master_ip_address", "10.0.0.1"),
            ("dist_rank", "1"),
            ("job_id", "7"),
            ("PAI_JOB_NAME", "ann~gang"),
            ("PAI_TASK_ROLE_INSTANCES", "worker:0,worker:1"),
            ("PAI_TASK_ROLE_worker_HOST_LIST", "10.0.0.1:29500,10.0.0.2:29500"),
            ("PAI_RESOURCE_worker", "2,0,0,0"),
            ("DOVETAIL_ATTEMPT", "2"),
            ("MY", "own"),
            ("DOVETAIL_SECRET", "hush"),
        ] {
            assert_eq!(env[name], value, "{name}");
        }
        let second = environments(Processes::PerGpu, 1);
        assert_eq!((second.len(), second[0]["RANK"].as_str()), (1, "2"));
    }

    #[test]
    fn processes_per_node_are_ranked_by_node() {
        let second = environments(Processes::PerNode, 1);
        assert_eq!(
            (second[0]["RANK"].as_str(), second[0]["WORLD_SIZE"].as_str()),
            ("1", "2")
        );
    }

    #[test]
    fn only_the_first_node_starts_mpirun() {
        assert_eq!(environments(Processes::FirstNode, 0).len(), 1);
        assert!(environments(Processes::FirstNode, 1).is_empty());
    }

    #[test]
    fn agents_on_one_machine_share_a_line_of_the_host_file() {
        let folder = TaskFolder::at(Path::new("/t/7-2"));
        let mut command = start(Processes::FirstNode, 0);
        command.peers[1].address = command.peers[0].address.clone();
        assert_eq!(hostfile(&command, &context(&[], &folder)), "10.0.0.1 slots=3\n");
    }

    #[test]
    fn unknown_slots_and_missing_commands_are_rejected() {
        let folder = TaskFolder::at(Path::new("/t/7-2"));
        let context = context(&[], &folder);
        let error = processes(&start(Processes::PerGpu, 0), &context).unwrap_err();
        assert_eq!(
            error.to_string(),
            "GPU slot 1 does not exist: GPU slots on this node: 0"
        );
        let mut empty = start(Processes::PerNode, 0);
        empty.command.clear();
        let error = processes(&empty, &context).unwrap_err();
        assert!(matches!(error, StartError::NoCommand), "{error}");
    }
}
