//! The processes of a task and what each finds in its environment: our own names, those of `torch.distributed`, and
//! those that Blox and OpenPAI give.

use std::collections::BTreeMap;
use std::path::Path;

use dovetail_proto::v1::{Peer, Processes, StartTask};

use crate::task::folder::TaskFolder;
use crate::task::record::Process;

/// What the node adds to the order.
pub(crate) struct Here<'a> {
    pub(crate) node: &'a str,
    pub(crate) address: &'a str,
    /// The UUIDs of the node's GPU slots.
    pub(crate) gpus: &'a [String],
    pub(crate) socket: &'a Path,
    pub(crate) secret: &'a str,
    pub(crate) folder: &'a TaskFolder,
    /// Where MPS listens, if the task shares its GPUs that way.
    pub(crate) mps: Option<&'a str>,
    /// Where the package for Python scripts is.
    pub(crate) sdk: &'a Path,
}

/// All processes that an order starts on this node.
pub(crate) fn processes(order: &StartTask, here: &Here<'_>) -> Result<Vec<Process>, String> {
    if order.command.is_empty() {
        return Err("the order has no command".to_owned());
    }
    if let Some(slot) = order.gpus.iter().find(|g| **g as usize >= here.gpus.len()) {
        return Err(format!("GPU slot {slot} of {} on this node", here.gpus.len()));
    }
    let kind = Processes::try_from(order.processes).map_err(|_| "unknown kind of processes".to_owned())?;
    let common = common(order, here);
    let count = match kind {
        Processes::PerNode => 1,
        Processes::PerGpu => order.gpus.len().max(1),
        Processes::FirstNode => usize::from(order.node_rank == 0),
    };
    let of = |local: usize| {
        let mut env = common.clone();
        let (rank, world) = match kind {
            Processes::PerNode => (order.node_rank, peers(order, here).len() as u32),
            Processes::PerGpu => (order.first_rank + local as u32, slots(order, here)),
            Processes::FirstNode => (0, slots(order, here)),
        };
        let gpu = order.gpus.get(local).map_or(-1, |slot| i64::from(*slot));
        for (name, value) in [
            ("RANK", rank.to_string()),
            ("LOCAL_RANK", local.to_string()),
            ("WORLD_SIZE", world.to_string()),
            ("LOCAL_WORLD_SIZE", count.to_string()),
            ("DOVETAIL_RANK", rank.to_string()),
            ("DOVETAIL_LOCAL_RANK", local.to_string()),
            ("DOVETAIL_WORLD_SIZE", world.to_string()),
            ("dist_rank", rank.to_string()),
            ("world_size", world.to_string()),
            ("local_gpu_id", gpu.to_string()),
        ] {
            env.insert(name.to_owned(), value);
        }
        // What the user set himself wins over everything but who the process is.
        for (name, value) in &order.env {
            if !name.starts_with("DOVETAIL_") {
                env.insert(name.clone(), value.clone());
            }
        }
        add_sdk(&mut env, here);
        Process {
            rank,
            command: order.command.clone(),
            env,
            tag: String::new(),
            container: None,
            first_words: String::new(),
        }
    };
    Ok((0..count).map(of).collect())
}

/// Lets Python find our package, behind whatever it finds already.
pub(crate) fn add_sdk(env: &mut BTreeMap<String, String>, here: &Here<'_>) {
    let sdk = here.sdk.display().to_string();
    let own = env.get("PYTHONPATH").cloned();
    let found = own
        .or_else(|| std::env::var("PYTHONPATH").ok())
        .filter(|p| !p.is_empty());
    let python = found.map_or(sdk.clone(), |before| format!("{before}:{sdk}"));
    env.insert("PYTHONPATH".to_owned(), python);
}

/// The file that `mpirun` reads: a line for each machine. Agents of one machine share a line, as it insists.
pub(crate) fn hostfile(order: &StartTask, here: &Here<'_>) -> String {
    let mut slots: Vec<(String, usize)> = Vec::new();
    for peer in peers(order, here) {
        let count = peer.gpus.len().max(1);
        match slots.iter_mut().find(|(address, _)| *address == peer.address) {
            Some((_, sum)) => *sum += count,
            None => slots.push((peer.address, count)),
        }
    }
    let line = |(address, count): (String, usize)| format!("{address} slots={count}\n");
    slots.into_iter().map(line).collect()
}

/// The nodes of the gang; a task alone is its own.
fn peers(order: &StartTask, here: &Here<'_>) -> Vec<Peer> {
    if !order.peers.is_empty() {
        return order.peers.clone();
    }
    vec![Peer {
        node: here.node.to_owned(),
        address: here.address.to_owned(),
        gpus: order.gpus.clone(),
    }]
}

/// GPUs of the whole gang; a node without GPUs counts as one.
fn slots(order: &StartTask, here: &Here<'_>) -> u32 {
    let of = |peer: &Peer| peer.gpus.len().max(1) as u32;
    peers(order, here).iter().map(of).sum()
}

pub(crate) fn common(order: &StartTask, here: &Here<'_>) -> BTreeMap<String, String> {
    let peers = peers(order, here);
    let key = order.task.unwrap_or_default();
    let job = key.job.to_string();
    let master = peers.first().map_or(here.address, |p| p.address.as_str());
    let uuids: Vec<&str> = order
        .gpus
        .iter()
        .map(|g| here.gpus[*g as usize].as_str())
        .collect();
    let list = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(",");
    let local = list(&mut order.gpus.iter().map(u32::to_string));
    let nodes = list(&mut peers.iter().map(|p| p.node.clone()));
    let hosts = list(&mut peers.iter().map(|p| p.address.clone()));
    let folder = here.folder;
    let mut env = BTreeMap::new();
    let mut put = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    put("DOVETAIL_JOB_ID", job.clone());
    put("DOVETAIL_JOB_NAME", order.job_name.clone());
    put("DOVETAIL_GENERATION", key.generation.to_string());
    put("DOVETAIL_ATTEMPT", order.attempt.to_string());
    put("DOVETAIL_ARRAY_INDEX", order.array_index.to_string());
    put("DOVETAIL_USER", order.user.clone());
    put("DOVETAIL_TENANT", order.tenant.clone());
    put("DOVETAIL_NODE", here.node.to_owned());
    put("DOVETAIL_NODE_RANK", order.node_rank.to_string());
    put("DOVETAIL_NODES", peers.len().to_string());
    put("DOVETAIL_NODE_LIST", nodes);
    put("DOVETAIL_HOST_LIST", hosts.clone());
    put("DOVETAIL_HOSTFILE", folder.hostfile().display().to_string());
    put("DOVETAIL_GPUS", order.gpus.len().to_string());
    put("DOVETAIL_CPU_MILLI", order.cpu_milli.to_string());
    put("DOVETAIL_MEMORY_MIB", order.memory_mib.to_string());
    put("DOVETAIL_CHECKPOINT_DIR", order.checkpoint_dir.clone());
    put("DOVETAIL_RESUME_STEP", order.resume_step.to_string());
    put("DOVETAIL_GRACE_MS", order.grace_ms.to_string());
    put("DOVETAIL_TASK_DIR", folder.path().display().to_string());
    put("DOVETAIL_REPORT_DIR", folder.reports().display().to_string());
    put("DOVETAIL_STOP_FILE", folder.notice().display().to_string());
    put("DOVETAIL_SOCKET", here.socket.display().to_string());
    put("DOVETAIL_SECRET", here.secret.to_owned());
    put("MASTER_ADDR", master.to_owned());
    put("MASTER_PORT", order.master_port.to_string());
    put("NODE_RANK", order.node_rank.to_string());
    put("GROUP_RANK", order.node_rank.to_string());
    put("CUDA_VISIBLE_DEVICES", uuids.join(","));
    let devices = if uuids.is_empty() {
        "none".to_owned()
    } else {
        uuids.join(",")
    };
    put("NVIDIA_VISIBLE_DEVICES", devices);
    if let Some(pipe) = here.mps {
        put("CUDA_MPS_PIPE_DIRECTORY", pipe.to_owned());
    }
    // What a script prints is seen at once, and not when a buffer is full.
    put("PYTHONUNBUFFERED", "1".to_owned());
    put("master_ip_address", master.to_owned());
    put("job_id", job);
    put("local_accessible_gpus", local);
    if order.instances.is_empty() {
        openpai(order, here, &peers, &hosts, &mut put);
    }
    env
}

/// OpenPAI's names, for one role called `worker` with a task on each node.
fn openpai(
    order: &StartTask,
    here: &Here<'_>,
    peers: &[Peer],
    hosts: &str,
    put: &mut dyn FnMut(&str, String),
) {
    let name = format!("{}~{}", order.user, order.job_name);
    let count = peers.len().to_string();
    let index = order.node_rank.to_string();
    let instances: Vec<String> = (0..peers.len()).map(|i| format!("worker:{i}")).collect();
    let resource = format!(
        "{},{},{},0",
        order.gpus.len(),
        order.cpu_milli.div_ceil(1000),
        order.memory_mib
    );
    put("PAI_JOB_NAME", name.clone());
    put("PAI_FRAMEWORK_NAME", name);
    put("PAI_USER_NAME", order.user.clone());
    put("PAI_USERNAME", order.user.clone());
    put("PAI_VIRTUAL_CLUSTER", order.tenant.clone());
    put("PAI_TASK_ROLE_COUNT", "1".to_owned());
    put("PAI_TASK_ROLES_NUM", "1".to_owned());
    put("PAI_JOB_TASK_ROLE_COUNT", "1".to_owned());
    put("PAI_TASK_ROLE_LIST", "worker".to_owned());
    put("PAI_JOB_TASK_ROLE_LIST", "worker".to_owned());
    put("PAI_TASK_ROLE_INSTANCES", instances.join(","));
    put("PAI_TASKS_NUM", count.clone());
    put("PAI_JOB_TASK_COUNT", count.clone());
    put("PAI_TASK_ROLE_TASK_COUNT_worker", count);
    put("PAI_RESOURCE_worker", resource);
    let with_port = |address: &str| format!("{address}:{}", order.master_port);
    let list: Vec<String> = hosts.split(',').map(with_port).collect();
    put("PAI_TASK_ROLE_worker_HOST_LIST", list.join(","));
    for (i, peer) in peers.iter().enumerate() {
        put(&format!("PAI_HOST_IP_worker_{i}"), peer.address.clone());
    }
    put("PAI_CURRENT_TASK_ROLE_NAME", "worker".to_owned());
    put("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", index.clone());
    put("PAI_TASK_INDEX", index);
    put("PAI_CURRENT_CONTAINER_IP", here.address.to_owned());
    put("PAI_CONTAINER_HOST_IP", here.address.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use dovetail_proto::v1::TaskKey;

    fn order(kind: Processes, node_rank: u32) -> StartTask {
        let peer = |node: &str, gpus: &[u32]| Peer {
            node: node.into(),
            address: format!("10.0.0.{}", &node[1..]),
            gpus: gpus.to_vec(),
        };
        StartTask {
            task: Some(TaskKey {
                job: 7,
                generation: 2,
            }),
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

    fn check(kind: Processes, node_rank: u32) -> Vec<BTreeMap<String, String>> {
        let folder = TaskFolder::at(Path::new("/t/7-2"));
        let gpus = ["GPU-a".to_owned(), "GPU-b".to_owned(), "GPU-c".to_owned()];
        let here = Here {
            node: "n1",
            address: "10.0.0.1",
            gpus: &gpus,
            socket: Path::new("/t/s"),
            secret: "hush",
            folder: &folder,
            mps: None,
            sdk: Path::new("/t/python"),
        };
        assert_eq!(
            hostfile(&order(kind, 0), &here),
            "10.0.0.1 slots=2\n10.0.0.2 slots=1\n"
        );
        let made = processes(&order(kind, node_rank), &here).unwrap();
        made.into_iter().map(|p| p.env).collect()
    }

    #[test]
    fn one_process_for_each_gpu_has_the_ranks_of_the_whole_gang() {
        let first = check(Processes::PerGpu, 0);
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
            ("PAI_TASK_ROLE_worker_HOST_LIST", "10.0.0.1:29500,10.0.0.2:29500"),
            ("MY", "own"),
            ("DOVETAIL_SECRET", "hush"),
        ] {
            assert_eq!(env[name], value, "{name}");
        }
        let second = check(Processes::PerGpu, 1);
        assert_eq!((second.len(), second[0]["RANK"].as_str()), (1, "2"));
    }

    #[test]
    fn one_process_for_each_node_counts_nodes() {
        let second = check(Processes::PerNode, 1);
        assert_eq!(
            (second[0]["RANK"].as_str(), second[0]["WORLD_SIZE"].as_str()),
            ("1", "2")
        );
    }

    #[test]
    fn only_the_first_node_starts_mpirun() {
        assert_eq!(check(Processes::FirstNode, 0).len(), 1);
        assert!(check(Processes::FirstNode, 1).is_empty());
    }

    #[test]
    fn agents_of_one_machine_share_a_line_of_the_hostfile() {
        let folder = TaskFolder::at(Path::new("/t/7-2"));
        let here = Here {
            node: "n1",
            address: "10.0.0.1",
            gpus: &[],
            socket: Path::new("/t/s"),
            secret: "",
            folder: &folder,
            mps: None,
            sdk: Path::new("/t/python"),
        };
        let mut order = order(Processes::FirstNode, 0);
        order.peers[1].address = order.peers[0].address.clone();
        assert_eq!(hostfile(&order, &here), "10.0.0.1 slots=3\n");
    }

    #[test]
    fn an_order_for_slots_that_are_not_there_is_refused() {
        let folder = TaskFolder::at(Path::new("/t/7-2"));
        let here = Here {
            node: "n1",
            address: "a",
            gpus: &[],
            socket: Path::new("/t/s"),
            secret: "",
            folder: &folder,
            mps: None,
            sdk: Path::new("/t/python"),
        };
        let said = processes(&order(Processes::PerGpu, 0), &here).unwrap_err();
        assert_eq!(said, "GPU slot 1 of 0 on this node");
        let mut empty = order(Processes::PerNode, 0);
        empty.command.clear();
        assert!(processes(&empty, &here).is_err());
    }
}
