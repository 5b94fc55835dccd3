//! Solves Synergy's own programs, first phase, with our solver and with HiGHS: `make test-highs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "the second phase is checked beside the solver")]
#[path = "../../solve/tests/programs/highs.rs"]
mod highs;
#[path = "../../solve/tests/programs/tally.rs"]
mod tally;

use dovetail_model::{ClusterSpec, JobKey, JobSpec, Share};
use dovetail_policies::sizing::opt::{BUDGET, Weight, cluster_program};
use dovetail_testkit::shared;
use dovetail_workload::{Format, SensitivityTable, TraceJob, join_sensitivity, read};
use tally::Tally;

const TRACES: [&str; 3] = [
    "inputs/static_100job.csv",
    "inputs/dynamic_srtf.csv",
    "outputs/phM32_FIFO_greedy.jobs.csv",
];

/// The properties of a job that the program depends on.
fn spec(job: &TraceJob) -> JobSpec {
    JobSpec {
        sensitivity: job.sensitivity.clone(),
        ..JobSpec::new(JobKey(0), job.gpus)
    }
}

/// Takes jobs from `first` on, wrapping around, as far as the GPUs suffice.
fn fitting(jobs: &[JobSpec], first: usize, mut gpus: u32) -> Vec<&JobSpec> {
    let fits = |job: &&JobSpec| {
        let fits = job.gpus <= gpus;
        gpus -= if fits { job.gpus } else { 0 };
        fits
    };
    jobs.iter()
        .cycle()
        .skip(first)
        .take(jobs.len())
        .filter(fits)
        .collect()
}

#[test]
fn the_solver_and_highs_agree_on_the_optimum_of_synergys_programs() {
    let Some(folder) = shared(env!("CARGO_MANIFEST_DIR"), "synergy") else {
        return;
    };
    let fair = Share::new(3000, 64_000);
    let mut cluster = ClusterSpec::uniform(4, 8);
    for node in cluster.nodes.values_mut() {
        (node.cpu_milli, node.memory_mib) = (24_000, 8 * fair.memory_mib);
    }
    let table = SensitivityTable::of_cluster(&cluster).unwrap();
    for (nodes, steps, budget) in [
        (1, 25, 1 << 16),
        (4, 10, BUDGET),
        (16, 2, BUDGET),
        (64, 1, BUDGET),
    ] {
        for weight in [Weight::Gpus, Weight::Jobs] {
            let mut tally = Tally::default();
            for trace in TRACES {
                let mut workload =
                    read(folder.join(trace), Some(Format::Synergy)).unwrap_or_else(|e| panic!("{e}"));
                join_sensitivity(&mut workload, &table);
                let specs: Vec<JobSpec> = workload.jobs.iter().map(spec).collect();
                for step in 0..steps {
                    let jobs = fitting(&specs, step * specs.len() / steps, nodes * 8);
                    let each = jobs.into_iter().map(|job| (job, fair.times(8)));
                    let kinds = cluster_program(each, fair, weight);
                    let capacity = [u64::from(nodes) * 24_000, u64::from(nodes) * 8 * fair.memory_mib];
                    tally.check(&kinds, capacity, budget);
                }
            }
            tally.report(&format!("Synergy, {} GPUs, {weight:?}", nodes * 8));
        }
    }
}
