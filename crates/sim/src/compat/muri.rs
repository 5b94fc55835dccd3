//! Muri's simulator: progress is counted between events, every event costs every running job its start-up time, and
//! the whole cluster is planned from scratch at each event.

use dovetail_engine::{Knowledge, Policy};
use dovetail_model::{ClusterSpec, Time, Work};
use dovetail_policies::grouping::MuriSim;
use dovetail_policies::order::SrsfMuri;
use dovetail_policies::{Overrides, PartSpec, PolicyError, build};
use dovetail_workload::Workload;

use crate::config::{Compat, MuriTime, SimConfig, SimError};

/// The policies of Muri's simulator, under our names.
pub const MURI_POLICIES: &[&str] = &["srtf", "srsf", "tiresias", "antman", "muri-s", "muri-l"];

/// Builds the parts of a policy as in Muri's simulator, and configures the run to count as it does. Knobs of the
/// grouping `muri` are accepted: `muri-l:autopack=false,ordering=worst`.
///
/// # Errors
/// If Muri has no such policy, or its tables lack a job; the error lists the policies it has, or names the job.
pub fn muri(
    policy: &str,
    overrides: &Overrides,
    workload: &Workload,
    config: &mut SimConfig,
) -> Result<(Policy, Knowledge), MuriError> {
    let spec: PartSpec = policy.parse()?;
    check_jobs(workload)?;
    let nodes = config.cluster.nodes.len() as u32;
    let gpus = config.cluster.gpus();
    let per_node = gpus / nodes.max(1);
    if config.cluster.nodes.values().any(|n| n.gpus != per_node) {
        return Err(MuriError::Mixed);
    }
    let Parts {
        order,
        discipline,
        grouping,
        time,
    } = parts_of(&spec, (nodes, per_node), config)?;
    if time == MuriTime::Queues {
        // In Muri's simulator, Tiresias gets GPUs by number, not by location.
        config.cluster = ClusterSpec::uniform(1, gpus);
    }
    config.compat = Compat::Muri(time);
    config.restart_cost = Time::ZERO;
    let or = |over: &Option<String>, part: &str| Some(over.clone().unwrap_or_else(|| part.to_owned()));
    let parts = Overrides {
        admission: or(&overrides.admission, "accept-all"),
        order: or(&overrides.order, order),
        discipline: or(&overrides.discipline, &discipline),
        grouping: or(&overrides.grouping, &grouping),
        placement: or(&overrides.placement, "yarn"),
        ..overrides.clone()
    };
    let (mut built, needs) = build("fifo", &parts)?;
    if spec.name == "muri-s" && overrides.order.is_none() {
        built.order = Box::new(SrsfMuri::new(stated(workload)));
    }
    built.name = format!("{policy} (muri)");
    Ok((built, needs))
}

/// The parts of one of Muri's policies, and how its progress is counted.
struct Parts {
    order: &'static str,
    discipline: String,
    grouping: String,
    time: MuriTime,
}

/// Returns the parts of a policy, and applies its knobs for interleaving to the configuration.
fn parts_of(
    spec: &PartSpec,
    (nodes, per_node): (u32, u32),
    config: &mut SimConfig,
) -> Result<Parts, MuriError> {
    let parts = |order, discipline: &str, grouping: &str, time| Parts {
        order,
        discipline: discipline.to_owned(),
        grouping: grouping.to_owned(),
        time,
    };
    Ok(match spec.name.as_str() {
        "srtf" => parts("srtf", "afresh", "none", MuriTime::Alone),
        "srsf" => parts("srsf", "afresh", "none", MuriTime::Alone),
        "tiresias" => parts("fifo", "dlas", "none", MuriTime::Queues),
        // The sharing terms are AntMan's here: two jobs on a GPU, on some of their GPUs or all.
        "antman" => parts(
            "fifo:priority=true",
            "antman-muri",
            "pair:by=antman",
            MuriTime::Guaranteed,
        ),
        "muri-s" | "muri-l" => {
            let has = |knob: &str, value: &str| spec.knobs.iter().any(|(k, v)| k == knob && v == value);
            if has("ordering", "worst") {
                config.interleaving = dovetail_model::stages::Ordering::Worst;
            }
            config.contention = MuriSim::contention(!has("matching", "false"));
            let sift = !has("autopack", "false");
            let attained = spec.name == "muri-l";
            let mut knobs = vec![format!("nodes={nodes}x{per_node}")];
            knobs.extend(spec.knobs.iter().map(|(k, v)| format!("{k}={v}")));
            parts(
                if attained { "las:quantum=0" } else { "srsf" },
                &format!("afresh:widest=true,sift={sift}"),
                &format!("muri-sim:{}", knobs.join(",")),
                MuriTime::Groups { attained },
            )
        }
        _ => {
            return Err(MuriError::UnknownPolicy {
                policy: spec.name.clone(),
            });
        }
    })
}

/// Returns the run time of each job as the trace states it, or else as derived from its iterations.
fn stated(workload: &Workload) -> Vec<Work> {
    let of = |job| {
        workload
            .extra_f64(job, "duration")
            .map(|ms| Work::from_secs_f64(ms / 1000.0))
    };
    workload
        .jobs
        .iter()
        .map(|job| of(job).unwrap_or(job.work))
        .collect()
}

/// Checks that every job has a GPU count in the table of start-up times, and a number of iterations.
fn check_jobs(workload: &Workload) -> Result<(), MuriError> {
    for job in &workload.jobs {
        if !START_UP_GPUS.contains(&job.gpus) {
            return Err(MuriError::Gpus {
                job: job.label.to_string(),
                gpus: job.gpus,
            });
        }
        if job.iterations.is_none_or(|n| n == 0) {
            return Err(MuriError::Iterations {
                job: job.label.to_string(),
            });
        }
    }
    Ok(())
}

const START_UP_GPUS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Returns the seconds a start takes, by model and GPUs.
const START_UP_S: &[(&str, [u32; 6])] = &[
    ("vgg16", [7, 7, 8, 9, 9, 10]),
    ("vgg19", [7, 7, 8, 9, 10, 10]),
    ("resnet18", [4, 5, 5, 7, 7, 7]),
    ("shufflenet_v2_x1_0", [4, 4, 5, 5, 7, 8]),
    ("bert", [10; 6]),
    ("gpt2", [10; 6]),
    ("a2c", [38, 39, 39, 46, 46, 46]),
    ("dqn", [5, 5, 6, 6, 8, 8]),
];

/// Returns the seconds that each interval between two events costs a running job of this model; ten if not measured.
pub(crate) fn start_up_s(model: Option<&str>, gpus: u32) -> f64 {
    let column = START_UP_GPUS.iter().position(|g| *g == gpus);
    let row = START_UP_S.iter().find(|(name, _)| Some(*name) == model);
    match (row, column) {
        (Some((_, times)), Some(i)) => f64::from(times[i]),
        _ => 10.0,
    }
}

/// Returns the iteration time in seconds of an opportunistic job next to a guaranteed one, in Muri's model of AntMan. Its
/// data, GPU and network stages fill the gaps that the other job's iterations leave on that resource; it takes as many
/// whole iterations of the other job as it needs.
pub(crate) fn opportunistic_period_s(own_s: [f64; 3], beside_s: [f64; 3], beside_iteration_s: f64) -> f64 {
    let [data, mut gpu, mut network] = own_s;
    let [their_data, their_gpu, their_network] = beside_s;
    let mut iterations = 0.0;
    let gap = their_gpu + their_network;
    iterations += (data / gap).floor();
    let over = data % gap;
    if over > 0.0 {
        iterations += 1.0;
        gpu -= gpu.min(their_network).min(gap - over);
    }
    let gap = their_data + their_network;
    iterations += (gpu / gap).floor();
    let over = gpu % gap;
    if over > 0.0 {
        iterations += 1.0;
        if over < their_data {
            network -= network.min(their_data + their_gpu - over);
        }
    }
    let gap = their_data + their_gpu;
    iterations += (network / gap).floor();
    if network % gap > their_data {
        iterations += 1.0;
    }
    iterations * beside_iteration_s
}

/// Why a run as in Muri's simulator cannot be configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MuriError {
    /// Muri's simulator has no such policy.
    #[error("--compat muri has no policy `{policy}`; it has srtf, srsf, tiresias, antman, muri-s and muri-l")]
    UnknownPolicy {
        /// The policy.
        policy: String,
    },
    /// A job has a GPU count without measured start-up time.
    #[error(
        "--compat muri: job {job} requests {gpus} GPUs; start-up times are known for 1, 2, 4, 8, 16 and 32"
    )]
    Gpus {
        /// Name of the job in the trace.
        job: String,
        /// Requested GPUs.
        gpus: u32,
    },
    /// A job has no iterations.
    #[error("--compat muri: job {job} has no number of iterations; use a trace in Muri's format")]
    Iterations {
        /// Name of the job in the trace.
        job: String,
    },
    /// The nodes have different sizes.
    #[error("--compat muri: all nodes must have the same number of GPUs")]
    Mixed,
    /// A part is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl From<MuriError> for SimError {
    fn from(error: MuriError) -> Self {
        SimError::Unsupported(error.to_string())
    }
}
