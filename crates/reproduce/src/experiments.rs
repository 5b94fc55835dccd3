//! The experiments by name.

use dovetail_model::suggest::nearest;

use crate::{Options, Report, ReproduceError, blox, hived, jct_bound, muri, synergy};

/// An experiment that can be run by name.
pub struct Experiment {
    /// Name, such as `blox-fig6`.
    pub name: &'static str,
    /// What it shows, in one sentence.
    pub summary: &'static str,
    run: fn(&Options) -> Result<Report, ReproduceError>,
}

impl Experiment {
    const fn new(
        name: &'static str,
        summary: &'static str,
        run: fn(&Options) -> Result<Report, ReproduceError>,
    ) -> Self {
        Self { name, summary, run }
    }

    /// Runs it.
    ///
    /// # Errors
    /// Fails when data is missing or a simulation fails. Statements that do not hold are part of the report.
    pub fn run(&self, options: &Options) -> Result<Report, ReproduceError> {
        (self.run)(options)
    }
}

/// Name of the experiment that runs on a live cluster.
pub const TESTBED: &str = "muri-testbed";

/// All experiments, sorted by name within each system.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment::new(
        "blox-fig6",
        "Blox: average JCT and responsiveness of FIFO, Tiresias and Optimus at 1 to 9 jobs per hour",
        blox::figure_6,
    ),
    Experiment::new(
        "blox-fig12",
        "Blox: LAS with admission control at 8 jobs per hour",
        blox::figure_12,
    ),
    Experiment::new(
        "blox-fig13",
        "Blox: FIFO, SRTF and LAS with admission control under bursts",
        blox::figure_13,
    ),
    Experiment::new(
        "hived-sharing-anomaly",
        "HiveD: waiting times of Philly's tenants under quotas and in cells, compared with private clusters",
        hived::sharing_anomaly,
    ),
    Experiment::new(
        "jct-bound",
        "average JCT of srsf, sjf and FIFO with backfill, and the lower bound, on six public traces",
        jct_bound::run,
    ),
    Experiment::new(
        "lab6-vc-safety",
        "Lab 6 on OpenPAI: four users share a virtual cluster of one machine",
        hived::vc_safety,
    ),
    Experiment::new(
        "lab6-preemption",
        "Lab 6: a job of higher priority is submitted to a full virtual cluster",
        hived::preemption,
    ),
    Experiment::new(
        "lab6-opportunistic",
        "Lab 6: a job borrows idle GPUs of another virtual cluster, and returns them",
        hived::opportunistic,
    ),
    Experiment::new(
        "lab6-gang",
        "Lab 6: the instances of a job start together or not at all",
        hived::gang,
    ),
    Experiment::new(
        "lab6-incremental",
        "Lab 6: instances start independently, also more of them than there are machines",
        hived::incremental,
    ),
    Experiment::new(
        "muri-fig9",
        "Muri: SRTF and SRSF relative to Muri-S on eight traces, with known run times",
        muri::figure_9,
    ),
    Experiment::new(
        "muri-fig10",
        "Muri: Tiresias, AntMan and Themis relative to Muri-L on eight traces, with unknown run times",
        muri::figure_10,
    ),
    Experiment::new(
        "muri-fig11",
        "Muri: Muri-L with the worst ordering, and without matching",
        muri::figure_11,
    ),
    Experiment::new(
        "muri-fig12",
        "Muri: at most two, three and four jobs on the same GPUs, and AntMan",
        muri::figure_12,
    ),
    Experiment::new(
        "muri-fig13",
        "Muri: models with one to four kinds of bottleneck",
        muri::figure_13,
    ),
    Experiment::new(
        "muri-table3",
        "Muri: the test bed, tables 3 and 4, beside our model in rounds of 360 s",
        muri::table_3,
    ),
    Experiment::new(
        TESTBED,
        "Muri: jobs of the test bed's trace on a live cluster, beside the simulator's forecast; requires --live",
        |_| Err(ReproduceError::NeedsLive),
    ),
    Experiment::new(
        "synergy-static",
        "Synergy: 100 jobs at once on 32 GPUs, six policies with proportional, greedy and tuned CPU and memory",
        synergy::static_trace,
    ),
    Experiment::new(
        "synergy-dynamic",
        "Synergy: the same with 100 jobs that arrive within 3.3 hours",
        synergy::dynamic_trace,
    ),
    Experiment::new(
        "synergy-load",
        "Synergy: average JCT by jobs per hour",
        synergy::load,
    ),
    Experiment::new(
        "synergy-split",
        "Synergy: average JCT by mix of image, language and speech models",
        synergy::split,
    ),
    Experiment::new(
        "synergy-cpu-ratio",
        "Synergy: average JCT by CPUs per GPU",
        synergy::cpu_ratio,
    ),
    Experiment::new(
        "synergy-tune",
        "Synergy: every sizing with every order on all its workloads, and the upper bound of their speed",
        synergy::tune,
    ),
];

/// Returns the experiment of this name.
///
/// # Errors
/// Names similar experiments, and all of them.
pub fn find(name: &str) -> Result<&'static Experiment, ReproduceError> {
    let names = || EXPERIMENTS.iter().map(|experiment| experiment.name);
    EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == name)
        .ok_or_else(|| {
            let near = nearest(name, names());
            ReproduceError::UnknownExperiment {
                name: name.to_owned(),
                hint: if near.is_empty() {
                    String::new()
                } else {
                    format!(", did you mean {}?", near.join(" or "))
                },
                known: names().collect::<Vec<_>>().join(", "),
            }
        })
}
