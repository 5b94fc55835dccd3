//! Synergy's simulator: rounds of 300 s, whole iterations credited at the start of a round, completions at its end.

use dovetail_engine::{Clock, Knowledge, Policy};
use dovetail_model::{ClusterSpec, Share, Time};
use dovetail_policies::discipline::{Synergy, SynergyMode};
use dovetail_policies::order::{SynergyFacts, SynergyKey, SynergyOrder};
use dovetail_policies::{Overrides, PolicyError, build};
use dovetail_workload::{SensitivityTable, TraceJob, Workload};

use crate::config::{Compat, SimConfig, SimError};

/// The policies of Synergy's simulator, under our names.
pub const SYNERGY_POLICIES: &[&str] = &["fifo", "srtf", "las", "ftf", "drf", "tetris"];

/// Its sizings, under our names.
pub const SYNERGY_SIZINGS: &[&str] = &["proportional", "greedy", "tune"];

const ROUND_S: i64 = 300;

/// Builds the parts of a policy as in Synergy's simulator, and configures the run to count as it does. A trace whose
/// jobs all arrive within the first second is *static*: its first round is at one second, not at zero.
///
/// # Errors
/// If Synergy has no such policy or sizing, or its tables lack a job's model; the error lists the accepted values.
pub fn synergy(
    policy: &str,
    overrides: &Overrides,
    workload: &Workload,
    config: &mut SimConfig,
) -> Result<(Policy, Knowledge), SynergyError> {
    let key = match policy {
        "fifo" => SynergyKey::Fifo,
        "srtf" => SynergyKey::Srtf,
        "las" => SynergyKey::Las,
        "ftf" => SynergyKey::Ftf,
        "drf" => SynergyKey::Drf,
        "tetris" => SynergyKey::Tetris,
        _ => {
            return Err(SynergyError::UnknownPolicy {
                policy: policy.to_owned(),
            });
        }
    };
    let sizing = overrides.sizing.as_deref().unwrap_or("tune");
    let mode = match sizing {
        "proportional" => SynergyMode::Fair,
        "greedy" => SynergyMode::Greedy,
        "tune" => SynergyMode::Tune,
        _ => {
            return Err(SynergyError::Sizing {
                sizing: sizing.to_owned(),
            });
        }
    };
    let machine = Machine::of(&config.cluster)?;
    let facts = workload
        .jobs
        .iter()
        .map(|job| facts(job, workload, &machine))
        .collect::<Result<Vec<_>, _>>()?;
    let round = Time::from_secs(ROUND_S);
    let is_static = workload.jobs.iter().all(|j| j.submit < Time::from_secs(1));
    config.clock = Clock::Rounds {
        period: round,
        offset: Time::from_secs(i64::from(is_static)),
    };
    config.restart_cost = Time::ZERO;
    config.compat = Compat::Synergy {
        fair: mode == SynergyMode::Fair,
    };
    config.synergy.clone_from(&facts);
    let (mut built, _) = build(
        "fifo",
        &Overrides {
            admission: Some(overrides.admission.clone().unwrap_or("accept-all".to_owned())),
            ..Overrides::default()
        },
    )?;
    let preferred = facts.iter().map(|f| f.preferred).collect();
    built.discipline = Box::new(Synergy::new(mode, key == SynergyKey::Las, preferred, round));
    let order = SynergyOrder::new(
        key,
        mode == SynergyMode::Fair,
        facts,
        config.cluster.gpus(),
        machine.capacity.times(config.cluster.nodes.len() as u32),
    );
    let needs = dovetail_engine::Part::knowledge(&order);
    built.order = Box::new(order);
    built.name = format!("{policy} {sizing} (synergy)");
    Ok((built, needs))
}

/// The resources of every server, and the table of models measured on such servers.
struct Machine {
    gpus: u32,
    capacity: Share,
    table: SensitivityTable,
}

impl Machine {
    fn of(cluster: &ClusterSpec) -> Result<Self, SynergyError> {
        let of = |n: &dovetail_model::NodeSpec| (n.gpus, Share::new(n.cpu_milli, n.memory_mib));
        let first = cluster.nodes.values().next().map(of).ok_or(SynergyError::Mixed)?;
        if cluster.nodes.values().any(|n| of(n) != first) {
            return Err(SynergyError::Mixed);
        }
        let table = SensitivityTable::of_cluster(cluster).ok_or(SynergyError::Ratio {
            cpu: f64::from(first.1.cpu_milli) / 1000.0 / f64::from(first.0.max(1)),
        })?;
        Ok(Self {
            gpus: first.0,
            capacity: first.1,
            table,
        })
    }
}

/// Returns the preferred share of a job within one server, and its speed with it: interpolated over CPU if it is limited.
fn facts(job: &TraceJob, workload: &Workload, machine: &Machine) -> Result<SynergyFacts, SynergyError> {
    let name = job.model.map_or("", |m| workload.names.models[m].as_str());
    let unknown = || SynergyError::Model {
        job: job.label.to_string(),
        model: name.to_owned(),
        known: machine.table.models().join(", "),
    };
    let row = machine.table.find(name, 1, None).ok_or_else(unknown)?;
    let (Some(ideal), Some(iteration_s)) = (row.stated, row.iteration_s) else {
        return Err(unknown());
    };
    let iterations = job
        .iterations
        .filter(|n| *n > 0)
        .ok_or_else(|| SynergyError::Iterations {
            job: job.label.to_string(),
        })?;
    let gpus = f64::from(job.gpus);
    let server = (
        f64::from(machine.capacity.cpu_milli) / 1000.0,
        machine.capacity.memory_mib as f64 / 1024.0,
    );
    let fair_cpu = gpus * (server.0 / f64::from(machine.gpus));
    let (mut cpu, mut memory) = (gpus * ideal.cpu, gpus * ideal.memory_gb);
    let mut speedup = ideal.speed;
    if job.gpus > machine.gpus {
        if cpu > server.0 {
            cpu = fair_cpu;
        }
        if memory > server.1 {
            memory = gpus * (server.1 / f64::from(machine.gpus));
        }
        speedup = 1.0;
    } else if cpu > server.0 || memory > server.1 {
        let ideal_cpu = cpu;
        (cpu, memory) = (cpu.min(server.0), memory.min(server.1));
        speedup = 1.0 + (speedup - 1.0) / (ideal_cpu - fair_cpu) * (cpu - fair_cpu);
    }
    let each = |amount: f64, unit: f64| (amount * unit / gpus).round();
    Ok(SynergyFacts {
        iteration_s,
        iterations,
        speedup,
        preferred: Share::new(each(cpu, 1000.0) as u32, each(memory, 1024.0) as u64),
    })
}

/// Why a run as in Synergy's simulator cannot be configured.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SynergyError {
    /// Synergy has no such policy.
    #[error("--compat synergy has no policy `{policy}`; it has fifo, srtf, las, ftf, drf and tetris")]
    UnknownPolicy {
        /// The policy.
        policy: String,
    },
    /// Synergy has no such sizing.
    #[error("--compat synergy has no sizing `{sizing}`; it has proportional, greedy and tune")]
    Sizing {
        /// The sizing.
        sizing: String,
    },
    /// Its profiles lack the model.
    #[error("--compat synergy: job {job} has model `{model}`; its profiles have {known}")]
    Model {
        /// Name of the job in the trace.
        job: String,
        /// Its model.
        model: String,
        /// Known models.
        known: String,
    },
    /// A job has no iterations.
    #[error("--compat synergy: job {job} has no number of iterations; use a trace in Synergy's format")]
    Iterations {
        /// Name of the job in the trace.
        job: String,
    },
    /// The nodes differ.
    #[error("--compat synergy: all nodes must have the same GPUs, CPUs and memory")]
    Mixed,
    /// There are no profiles for such machines.
    #[error("--compat synergy: nodes have {cpu} CPUs per GPU; its profiles are for 3, 4, 5 and 6")]
    Ratio {
        /// CPUs per GPU.
        cpu: f64,
    },
    /// A part is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl From<SynergyError> for SimError {
    fn from(error: SynergyError) -> Self {
        SimError::Unsupported(error.to_string())
    }
}
