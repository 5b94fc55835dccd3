//! The past of a live cluster in the simulator: its jobs as a workload, and how far simulated and live runs differ.

use std::num::NonZeroU64;

use dovetail_cluster::history::{History, PastJob};
use dovetail_engine::Knowledge;
use dovetail_model::run::JobRow;
use dovetail_model::{IdVec, ModelId, Time, Work};
use dovetail_sim::{SimConfig, simulate};
use dovetail_workload::{JobLabel, Names, TraceJob, Workload};
use serde::Serialize;

use crate::ExperimentError;

/// Columns that a trace of the past has besides the fields of a job: name, duration of a step, and stages of a step (data,
/// GPU, network) in milliseconds.
const EXTRA_COLUMNS: [&str; 5] = [
    "name",
    "iteration_s",
    "resource_time_0",
    "resource_time_1",
    "resource_time_2",
];
/// Shortest time that counts as a difference between two starts.
const MIN_JITTER: Time = Time(200_000);

/// Returns the finished jobs of a live cluster as a workload, with everything that the policy was told about them. Times
/// count from the first submission; the run time of a job includes its first start.
pub fn past_workload(history: &History) -> Workload {
    let first = first_submission(history);
    let usual = start_cost(history);
    let (tenants, users) = history.names();
    let mut models: IdVec<ModelId, String> = IdVec::default();
    let mut jobs: Vec<TraceJob> = Vec::with_capacity(history.jobs.len());
    for past in &history.jobs {
        let known = models
            .iter()
            .find(|(_, name)| **name == past.model)
            .map(|(id, _)| id);
        let model = known.unwrap_or_else(|| models.push(past.model.clone()));
        jobs.push(trace_job(
            history,
            past,
            model,
            past.submitted.since(first),
            usual,
        ));
    }
    jobs.sort_by_key(|job| job.submit);
    Workload {
        source: "journal".to_owned(),
        jobs,
        names: Names {
            tenants: tenants.iter().cloned().collect(),
            users: users.iter().cloned().collect(),
            models,
            gpu_types: history.cluster.gpu_types.clone(),
        },
        extra_columns: EXTRA_COLUMNS.map(str::to_owned).to_vec(),
        notes: Vec::new(),
    }
}

fn trace_job(history: &History, past: &PastJob, model: ModelId, submit: Time, usual: Time) -> TraceJob {
    let request = &past.request;
    let start = past.start_cost.map_or(Time::ZERO, |own| own.max(usual));
    let work = past.work + Work(start.0.max(0).unsigned_abs());
    let millis = |us: u32| (f64::from(us) / 1000.0).to_string();
    let stages = past.stages.map(|stages| stages.times_us.map(millis));
    let stage = |i: usize| stages.as_ref().map(|all| all[i].clone()).unwrap_or_default();
    let step = past.steps.map(|(_, time)| time.as_secs_f64().to_string());
    let extra = [
        request.name.clone(),
        step.unwrap_or_default(),
        stage(0),
        stage(1),
        stage(2),
    ];
    TraceJob {
        tenant: history.tenant(&request.tenant).unwrap_or_default(),
        user: history.user(&past.user).unwrap_or_default(),
        priority: request.priority,
        model: Some(model),
        gpu_type: request.gpu_type.as_ref().and_then(|name| history.gpu_type(name)),
        min_gpus: request.min_gpus.unwrap_or(request.gpus),
        max_gpus: request.max_gpus.unwrap_or(request.gpus),
        scaling: past.scaling.clone(),
        cpu_milli_per_gpu: request.cpus_per_gpu.milli(),
        memory_mib_per_gpu: request.memory_mib_per_gpu,
        gpu_memory_mib: request.gpu_memory_mib,
        deadline: request.deadline.map(|deadline| deadline.of(submit)),
        expected_us: past.expected.and_then(|work| NonZeroU64::new(work.0)),
        iterations: past.steps.map(|(total, _)| total),
        extra: Some(extra.map(String::into_boxed_str).into()),
        ..TraceJob::new(JobLabel::Number(past.id), submit, work.max(Work(1)), request.gpus)
    }
}

fn first_submission(history: &History) -> Time {
    let submitted = history.jobs.iter().map(|job| job.submitted);
    submitted.min().unwrap_or(Time::ZERO)
}

/// Returns how long a start usually takes: the median over the jobs that report steps.
fn start_cost(history: &History) -> Time {
    median(history.jobs.iter().filter_map(|job| job.start_cost))
}

fn median(times: impl Iterator<Item = Time>) -> Time {
    let mut times: Vec<Time> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(Time::ZERO)
}

/// How far a simulation of the past of a cluster, under its policy and on its nodes, differs from what happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fidelity {
    /// The policy.
    pub policy: String,
    /// Number of jobs.
    pub jobs: usize,
    /// Average completion time of the live jobs.
    pub live_avg_jct_s: f64,
    /// Average completion time of the simulated jobs.
    pub simulated_avg_jct_s: f64,
    /// Mean error of a job's completion time, as a share of the live one.
    pub mean_error: f64,
    /// Median error.
    pub median_error: f64,
    /// 95th percentile of the errors.
    pub p95_error: f64,
    /// Largest error.
    pub worst_error: f64,
    /// Job with the largest error.
    pub worst_job: u64,
    /// Mean error of the moments at which jobs finish, as a share of the time since the first submission.
    pub mean_finish_error: f64,
    /// How often live jobs were stopped before their end.
    pub live_stops: u32,
    /// How often simulated jobs were stopped before their end.
    pub simulated_stops: u32,
    /// Pairs of jobs that started in the other order, by more than the jitter.
    pub start_inversions: usize,
    /// Time between two starts up to which their order does not count.
    pub jitter_s: f64,
    /// Time that the simulator charges for each start after the first of a job.
    pub restart_cost_s: f64,
    /// Time that the simulator charges for each stop.
    pub stop_cost_s: f64,
}

/// Live and simulated times of one job, from the first submission.
struct Pair {
    id: u64,
    live: [Time; 2],
    simulated: [Time; 2],
    jct: [f64; 2],
}

/// Simulates the past of a cluster and compares.
///
/// # Errors
/// If no job finished, or the simulation fails.
pub fn fidelity(history: &History) -> Result<Fidelity, ExperimentError> {
    let workload = past_workload(history);
    let restart_cost = start_cost(history);
    let stop_cost = median(history.jobs.iter().flat_map(|job| job.stop_costs.iter().copied()));
    let stopped: Vec<&PastJob> = history.jobs.iter().filter(|job| job.stops > 0).collect();
    let needs = history.built.knowledge();
    let config = SimConfig {
        clock: history.clock,
        knowledge: (needs != Knowledge::None).then_some(Knowledge::Estimate),
        restart_cost,
        stop_cost,
        reports_steps: true,
        saves_on_stop: stopped.is_empty() || stopped.iter().any(|job| job.saves_work),
        ..SimConfig::new(history.cluster.clone())
    };
    let record = simulate(&workload, history.built.clone(), needs, &config)?;
    let first = first_submission(history);
    let pair = |row: &JobRow| {
        let JobLabel::Number(id) = &workload.jobs[row.job.0 as usize].label else {
            return None;
        };
        let past = history.jobs.iter().find(|job| job.id == *id)?;
        Some(Pair {
            id: *id,
            live: [past.started.since(first), past.ended.since(first)],
            simulated: [row.first_start?, row.finish?],
            jct: [
                past.ended.since(past.submitted).as_secs_f64(),
                row.jct()?.as_secs_f64(),
            ],
        })
    };
    let pairs: Vec<Pair> = record.rows.iter().filter_map(pair).collect();
    if pairs.is_empty() {
        return Err(ExperimentError::NothingFinished);
    }
    let mut fidelity = compare(&pairs, restart_cost);
    fidelity.stop_cost_s = stop_cost.as_secs_f64();
    fidelity.policy.clone_from(&history.policy.policy);
    fidelity.live_stops = history.jobs.iter().map(|job| job.stops).sum();
    fidelity.simulated_stops = record.rows.iter().map(|row| row.preemptions).sum();
    Ok(fidelity)
}

fn compare(pairs: &[Pair], restart_cost: Time) -> Fidelity {
    let n = pairs.len();
    let mean = |value: &dyn Fn(&Pair) -> f64| pairs.iter().map(value).sum::<f64>() / n as f64;
    let error = |live: f64, simulated: f64| (simulated - live).abs() / live.max(1e-6);
    let mut errors: Vec<(f64, u64)> = pairs.iter().map(|p| (error(p.jct[0], p.jct[1]), p.id)).collect();
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let at = |percent: usize| errors[(n - 1) * percent / 100].0;
    let (worst_error, worst_job) = errors[n - 1];
    let jitter = MIN_JITTER.max(restart_cost + restart_cost);
    Fidelity {
        policy: String::new(),
        jobs: n,
        live_avg_jct_s: mean(&|p| p.jct[0]),
        simulated_avg_jct_s: mean(&|p| p.jct[1]),
        mean_error: errors.iter().map(|e| e.0).sum::<f64>() / n as f64,
        median_error: at(50),
        p95_error: at(95),
        worst_error,
        worst_job,
        mean_finish_error: mean(&|p| error(p.live[1].as_secs_f64(), p.simulated[1].as_secs_f64())),
        live_stops: 0,
        simulated_stops: 0,
        start_inversions: inversions(pairs, jitter),
        jitter_s: jitter.as_secs_f64(),
        restart_cost_s: restart_cost.as_secs_f64(),
        stop_cost_s: 0.0,
    }
}

/// Counts pairs of jobs of which the one started first live and the other in the simulator, by more than the jitter.
fn inversions(pairs: &[Pair], jitter: Time) -> usize {
    let mut count = 0;
    for (i, a) in pairs.iter().enumerate() {
        for b in &pairs[i + 1..] {
            let (live, simulated) = (a.live[0].0 - b.live[0].0, a.simulated[0].0 - b.simulated[0].0);
            let is_clear = live.abs() > jitter.0 && simulated.abs() > jitter.0;
            count += usize::from(is_clear && live.signum() != simulated.signum());
        }
    }
    count
}
