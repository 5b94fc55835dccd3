//! Conversions between messages of the protocol and types of the scheduler.

use dovetail_cluster::state::StartInstance;
use dovetail_cluster::{
    GateReport, InstanceEnd, NodeRegistration, Processes, RuntimeCommand, StageReport, StartTask, TaskEnd,
};
use dovetail_model::numa::NumaDomain;
use dovetail_model::stages::Ordering;
use dovetail_model::{GpuSet, GpuTypeId, InterleavingTerms, NodeSpec, Time, ZoneId};
use dovetail_proto::v1;

/// Why a node cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// The agent did not report the hardware of the node.
    #[error("missing hardware of the node")]
    MissingHardware,
    /// The GPUs of the node have several types.
    #[error("the GPUs of the node have several types ({}); run one agent for each type", .0.join(", "))]
    SeveralGpuTypes(Vec<String>),
}

/// Converts the first message of an agent to the registration of its node.
pub(crate) fn registration(hello: &v1::Hello) -> Result<NodeRegistration, RegistrationError> {
    let hardware = hello.hardware.as_ref();
    let hardware = hardware.ok_or(RegistrationError::MissingHardware)?;
    let gpu_types: Vec<&str> = hardware.gpus.iter().map(|g| g.r#type.as_str()).collect();
    if gpu_types.iter().any(|name| name != &gpu_types[0]) {
        let gpu_types = gpu_types.into_iter().map(str::to_owned);
        return Err(RegistrationError::SeveralGpuTypes(gpu_types.collect()));
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
        whole_cpus: hardware
            .labels
            .get("dovetail.limits")
            .is_some_and(|limits| limits == "affinity"),
        ..NodeSpec::plain(&hello.node, gpus)
    };
    Ok(NodeRegistration {
        spec,
        gpu_type: gpu_types.first().copied().unwrap_or("none").to_owned(),
        rack: hardware.rack.clone(),
        address: hello.address.clone(),
        identity: hello.identity,
    })
}

/// Returns the NUMA domains, if the domain of every GPU is known.
fn numa(hardware: &v1::Hardware) -> Vec<NumaDomain> {
    let gpus_of = |domain: usize| {
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
            gpus: gpus_of(i),
        })
        .collect()
}

/// Returns a description of the first faulty GPU.
pub(crate) fn find_fault(gpus: &[v1::Gpu]) -> Option<String> {
    let faulty = gpus.iter().find(|g| !g.fault.is_empty())?;
    Some(format!("GPU {}: {}", faulty.uuid, faulty.fault))
}

pub(crate) fn task_key(job: u64, attempt: u64) -> Option<v1::TaskKey> {
    Some(v1::TaskKey { job, attempt })
}

pub(crate) fn task_end(ended: v1::TaskEnded) -> TaskEnd {
    TaskEnd {
        exit_code: ended.exit_code,
        signal: ended.signal,
        platform_error: (!ended.platform_error.is_empty()).then_some(ended.platform_error),
        was_stopped: ended.was_stopped,
        checkpoint_step: ended.checkpoint_step,
        log_tail: ended.log_tail,
        out_of_memory: ended.out_of_memory,
        refused: ended.refused,
    }
}

pub(crate) fn instance_end(ended: v1::InstanceEnded) -> InstanceEnd {
    InstanceEnd {
        role: ended.role,
        index: ended.index,
        exit_code: ended.exit_code,
        signal: ended.signal,
    }
}

/// Converts microseconds of a message.
pub(crate) fn span(micros: u64) -> Time {
    Time(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// Returns what a report says about the stages of a step; none if the job measures only the data stage.
pub(crate) fn stage_report(progress: v1::Progress) -> Option<StageReport> {
    let gates = progress.gates.and_then(|gates| {
        GateReport::new(
            span(gates.planned_period_us),
            span(gates.measured_period_us),
            gates.partners,
        )
    });
    let report = StageReport {
        gpu_time: span(progress.gpu_time_us),
        network_time: span(progress.network_time_us),
        gate_time: span(progress.gate_time_us),
        gates,
    };
    (report != StageReport::default()).then_some(report)
}

pub(crate) fn command(command: RuntimeCommand, checkpoints: &str) -> v1::server_message::Body {
    match command {
        RuntimeCommand::Start(task) => v1::server_message::Body::StartTask(start(*task, checkpoints)),
        RuntimeCommand::Stop {
            job,
            attempt,
            reason,
            kill,
        } => v1::server_message::Body::StopTask(v1::StopTask {
            task: task_key(job, attempt),
            reason,
            kill,
        }),
        RuntimeCommand::Resize {
            job,
            attempt,
            cpu_milli,
            memory_mib,
        } => v1::server_message::Body::ResizeTask(v1::ResizeTask {
            task: task_key(job, attempt),
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

fn interleaving(terms: InterleavingTerms) -> v1::Interleaving {
    let used = if terms.stages.four { 4 } else { 3 };
    v1::Interleaving {
        stage_us: terms.stages.times_us[..used].to_vec(),
        iteration_us: terms.stages.iteration_us,
        worst_order: terms.ordering == Ordering::Worst,
    }
}

fn start(task: StartTask, checkpoints: &str) -> v1::StartTask {
    let request = &*task.request;
    let peer = |peer: dovetail_cluster::state::TaskPeer| v1::Peer {
        node: peer.node,
        address: peer.address,
        gpus: peer.gpus,
    };
    v1::StartTask {
        task: task_key(task.job, task.attempt),
        job_name: request.name.clone(),
        user: request.run_as.clone().unwrap_or_default(),
        tenant: request.tenant.clone(),
        command: request.command.clone(),
        workdir: request.workdir.clone(),
        env: request.env.clone(),
        gpus: task.share.gpus.iter().collect(),
        cpu_milli: task.share.cpu_milli,
        memory_mib: task.share.memory_mib,
        processes: match request.processes {
            Processes::PerNode => v1::Processes::PerNode,
            Processes::PerGpu => v1::Processes::PerGpu,
            Processes::FirstNode => v1::Processes::FirstNode,
        }
        .into(),
        node_rank: task.node_rank,
        first_rank: task.first_rank,
        peers: task.peers.into_iter().map(peer).collect(),
        master_port: u32::from(task.master_port),
        grace_ms: u32::try_from(request.grace.0.max(0) / 1000).unwrap_or(u32::MAX),
        checkpoint_dir: match checkpoints {
            "" => String::new(),
            dir => format!("{dir}/job-{}", task.job),
        },
        resume_step: task.resume_step,
        attempt: u32::try_from(task.attempt).unwrap_or(u32::MAX),
        shared: task.shared,
        array_index: request.array.map_or(0, |a| a.index),
        interleaving: task.interleaving.map(interleaving),
        instances: task.instances.into_iter().map(instance).collect(),
    }
}
