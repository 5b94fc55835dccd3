//! Blox's generated workloads of jobs with one GPU.

use dovetail_model::{Time, Work};
use dovetail_workload::generate::{Durations, GenerateSpec, generate};
use dovetail_workload::{JobLabel, Workload};

use crate::ReproduceError;

/// Enough jobs that arrivals do not run out before the tracked jobs have finished.
const JOBS: u64 = 40_000;
/// Period of bursts, and their length.
const BURST_PERIOD: Time = Time::from_secs(14_400);
const BURST_LENGTH: Time = Time::from_secs(7_200);
/// Added to the seed for the jobs of bursts.
const BURST_SEED: u64 = 1_000_003;

/// Generates jobs with Blox's default run times (mean 16.8 h) and Poisson arrivals.
pub(super) fn steady(load: u32, seed: u64) -> Result<Workload, ReproduceError> {
    Ok(generate(&GenerateSpec {
        jobs: JOBS,
        seed,
        jobs_per_hour: Some(f64::from(load)),
        gpus: "1:1".parse()?,
        ..GenerateSpec::preset("blox")?
    })?)
}

/// Generates the reference's bursts: jobs of 10 to 24 h with Poisson arrivals and, for two hours in every four, short
/// jobs of 10 to 60 min at four times that rate.
pub(super) fn bursty(load: u32, seed: u64) -> Result<Workload, ReproduceError> {
    let rate = f64::from(load);
    let mut workload = uniform(JOBS / 2, seed, rate, (36_000.0, 86_400.0))?;
    let short = uniform(JOBS * 2, seed + BURST_SEED, 4.0 * rate, (600.0, 3_600.0))?;
    let end = workload.jobs.last().map_or(Time::ZERO, |job| job.submit);
    let is_in_burst = |time: Time| time.0.rem_euclid(BURST_PERIOD.0) < BURST_LENGTH.0;
    workload.jobs.extend(
        short
            .jobs
            .into_iter()
            .filter(|job| is_in_burst(job.submit) && job.submit <= end),
    );
    workload.jobs.sort_by_key(|job| job.submit);
    for (i, job) in workload.jobs.iter_mut().enumerate() {
        job.label = JobLabel::Number(i as u64);
    }
    workload.source = format!("bursts at {load} jobs per hour, seed {seed}");
    Ok(workload)
}

/// Generates jobs with uniformly distributed run times in seconds and Poisson arrivals.
fn uniform(
    jobs: u64,
    seed: u64,
    jobs_per_hour: f64,
    (low, high): (f64, f64),
) -> Result<Workload, ReproduceError> {
    let mut workload = generate(&GenerateSpec {
        jobs,
        seed,
        jobs_per_hour: Some(jobs_per_hour),
        gpus: "1:1".parse()?,
        durations: Durations::Exponential { mean_s: 1.0 },
        ..GenerateSpec::preset("blox")?
    })?;
    // The distribution function of the exponential distribution turns its draws into uniform ones.
    for job in &mut workload.jobs {
        let uniform = 1.0 - (-job.work.as_secs_f64()).exp();
        job.work = Work::from_secs_f64((low + uniform * (high - low)).round());
    }
    Ok(workload)
}
