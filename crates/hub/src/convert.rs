//! Words of the protocol as values of the scheduler, and back.

use dovetail_cluster::state::StartInstance;
use dovetail_cluster::{JobRequest, NodeRegistration, Processes, RuntimeCommand, StartTask, TaskEnd};
use dovetail_model::numa::NumaDomain;
use dovetail_model::{GpuSet, GpuTypeId, NodeSpec, ZoneId};
use dovetail_proto::v1;

/// What an agent says of its node.
pub(crate) fn arrival(hello: &v1::Hello) -> Result<NodeRegistration, String> {
    let hardware = hello
        .hardware
        .as_ref()
        .ok_or("it did not say what the node has")?;
    let kinds: Vec<&str> = hardware.gpus.iter().map(|g| g.r#type.as_str()).collect();
    if kinds.iter().any(|kind| kind != &kinds[0]) {
        return Err(format!(
            "its GPUs are of several kinds ({}); give each kind to an agent of its own",
            kinds.join(", ")
        ));
    }
    let gpus = hardware.gpus.len() as u32;
    let spec = NodeSpec {
        name: hello.node.clone(),
        zone: ZoneId(0),
        gpu_type: GpuTypeId(0),
        cpu_milli: hardware.cpu_milli,
        memory_mib: hardware.memory_mib,
        gpu_memory_mib: hardware.gpus.iter().map(|g| g.memory_mib).min().unwrap_or(0),
        numa: numa(hardware),
        ..NodeSpec::plain(&hello.node, gpus)
    };
    Ok(NodeRegistration {
        spec,
        gpu_type: kinds.first().copied().unwrap_or("none").to_owned(),
        rack: hardware.rack.clone(),
        address: hello.address.clone(),
        identity: hello.identity,
    })
}

/// NUMA domains, where every GPU says which one it is near to.
fn numa(hardware: &v1::Hardware) -> Vec<NumaDomain> {
    let of = |domain: usize| {
        let mut near = GpuSet::empty(hardware.gpus.len() as u32);
        let all = hardware.gpus.iter().enumerate();
        all.filter(|(_, gpu)| gpu.numa as usize == domain + 1)
            .for_each(|(slot, _)| near.insert(slot as u32));
        near
    };
    if hardware.numa.len() < 2 || hardware.gpus.iter().any(|g| g.numa == 0) {
        return Vec::new();
    }
    let domains = hardware.numa.iter().enumerate();
    domains
        .map(|(i, domain)| NumaDomain {
            cpus: domain.cpus.iter().copied().collect(),
            gpus: of(i),
        })
        .collect()
}

/// The first GPU that must not be used, and why.
pub(crate) fn faulty(gpus: &[v1::Gpu]) -> Option<String> {
    let bad = gpus.iter().find(|g| !g.fault.is_empty())?;
    Some(format!("GPU {}: {}", bad.uuid, bad.fault))
}

pub(crate) fn key(job: u64, attempt_id: u64) -> Option<v1::TaskKey> {
    Some(v1::TaskKey {
        job,
        attempt: attempt_id,
    })
}

pub(crate) fn end(ended: v1::TaskEnded) -> TaskEnd {
    TaskEnd {
        exit_code: ended.exit_code,
        signal: ended.signal,
        platform_error: (!ended.platform_error.is_empty()).then_some(ended.platform_error),
        was_stopped: ended.was_stopped,
        checkpoint_step: ended.checkpoint_step,
        last_words: ended.log_tail,
        out_of_memory: ended.out_of_memory,
        refused: ended.refused,
    }
}

pub(crate) fn order(order: RuntimeCommand, checkpoints: &str) -> v1::server_message::Body {
    match order {
        RuntimeCommand::Start(task) => v1::server_message::Body::StartTask(start(*task, checkpoints)),
        RuntimeCommand::Stop {
            job,
            attempt: attempt_id,
            reason,
            kill,
        } => v1::server_message::Body::StopTask(v1::StopTask {
            task: key(job, attempt_id),
            reason,
            kill,
        }),
        RuntimeCommand::Resize {
            job,
            attempt: attempt_id,
            cpu_milli,
            memory_mib,
        } => v1::server_message::Body::ResizeTask(v1::ResizeTask {
            task: key(job, attempt_id),
            cpu_milli,
            memory_mib,
        }),
    }
}

fn instance(instance: StartInstance) -> v1::Instance {
    v1::Instance {
        role: instance.role,
        index: instance.index,
        rank: instance.rank,
        command: instance.command,
        env: instance.env,
        gpus: instance.gpus,
        ports: instance.ports.into_iter().map(u32::from).collect(),
        cpu_milli: instance.cpu_milli,
        memory_mib: instance.memory_mib,
        image: instance.image.unwrap_or_default(),
        shm_mib: instance.shm_mib,
    }
}

fn start(task: StartTask, checkpoints: &str) -> v1::StartTask {
    let JobRequest {
        name,
        command,
        workdir,
        env,
        tenant,
        processes,
        grace,
        run_as,
        array,
        ..
    } = *task.request;
    let peer = |peer: dovetail_cluster::state::TaskPeer| v1::Peer {
        node: peer.node,
        address: peer.address,
        gpus: peer.gpus,
    };
    v1::StartTask {
        task: key(task.job, task.attempt),
        job_name: name,
        user: run_as.unwrap_or_default(),
        tenant,
        command,
        workdir,
        env,
        gpus: task.share.gpus.iter().collect(),
        cpu_milli: task.share.cpu_milli,
        memory_mib: task.share.memory_mib,
        processes: match processes {
            Processes::PerNode => v1::Processes::PerNode,
            Processes::PerGpu => v1::Processes::PerGpu,
            Processes::FirstNode => v1::Processes::FirstNode,
        }
        .into(),
        node_rank: task.node_rank,
        first_rank: task.first_rank,
        peers: task.peers.into_iter().map(peer).collect(),
        master_port: u32::from(task.master_port),
        grace_ms: u32::try_from(grace.0.max(0) / 1000).unwrap_or(u32::MAX),
        checkpoint_dir: match checkpoints {
            "" => String::new(),
            dir => format!("{dir}/job-{}", task.job),
        },
        resume_step: task.resume_step,
        attempt: u32::try_from(task.attempt).unwrap_or(u32::MAX),
        shared: task.shared,
        array_index: array.map_or(0, |a| a.index),
        instances: task.instances.into_iter().map(instance).collect(),
    }
}
