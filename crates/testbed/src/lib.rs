//! Muri's test bed on a live cluster (`dovetail reproduce muri-testbed --live`).
//!
//! The jobs of the trace of the test bed run as real processes under each policy, on a cluster that is started on this machine or
//! on one that exists. Before that, each model runs alone, and the simulator forecasts the runs from the profiles that the cluster
//! measured. The report has both side by side.

#![allow(clippy::print_stderr, reason = "progress goes to standard error")]

mod calibration;
mod cluster;
mod error;
mod forecast;
mod live;
mod output;
mod plan;
mod policy;
mod trainer;

use std::path::PathBuf;

use dovetail_client::block_on;
use dovetail_console::ScratchFolder;
use dovetail_report::format::counted;
use dovetail_reproduce::{Report, find_data};
use dovetail_workload::{Format, read};
use tokio::signal::unix::{SignalKind, signal};

use crate::cluster::LiveCluster;
pub use crate::error::TestbedError;
use crate::live::Outcome;
use crate::output::Comparison;
use crate::plan::Plan;
use crate::policy::RunPolicy;
use crate::trainer::Trainer;

/// Policies that run if none are named.
pub const DEFAULT_POLICIES: &str = "tiresias,muri-l";
/// Number of jobs that run if none is given.
pub const DEFAULT_JOBS: u32 = 8;

/// How the test bed is run.
#[derive(Debug, Clone)]
pub struct LiveOptions {
    /// Folder of the public traces; see [`find_data`].
    pub data: Option<PathBuf>,
    /// Number of jobs from the start of the trace.
    pub jobs: u32,
    /// Factor on all times of the trace; chosen so that a policy runs for about half a minute if not given.
    pub scale: Option<f64>,
    /// Policies, in the order in which they run.
    pub policies: Vec<String>,
    /// Number of nodes of the cluster that is started.
    pub nodes: u32,
    /// Virtual GPUs of each of these nodes.
    pub gpus: u32,
    /// `client.yaml` of a cluster to use instead of a new one.
    pub cluster: Option<PathBuf>,
    /// Whether jobs run the synthetic trainer even if PyTorch is installed.
    pub synthetic: bool,
    /// The script that trains the models; searched for if not given.
    pub trainer: Option<PathBuf>,
    /// The Python interpreter of the jobs; searched for if not given.
    pub python: Option<PathBuf>,
    /// Whether progress is hidden.
    pub quiet: bool,
}

impl LiveOptions {
    /// Writes a line about the progress.
    fn note(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }
}

/// Runs the jobs under each policy and returns the comparison with the forecast. Whatever it starts has ended when it returns, also
/// after SIGINT and SIGTERM.
///
/// # Errors
/// Fails when the trace, a policy or the trainer cannot be used, or a job does not complete.
pub fn run(options: &LiveOptions) -> Result<Report, TestbedError> {
    for name in &options.policies {
        policy::check(name)?;
    }
    if let Some(found) = options.scale.filter(|scale| !(*scale > 0.0 && *scale <= 1.0)) {
        return Err(TestbedError::InvalidScale { found });
    }
    let folder = find_data(options.data.as_deref(), "muri")?;
    let trace = read(folder.join("trace-data/cluster_trace.csv"), Some(Format::Muri))?;
    let scratch = ScratchFolder::new("testbed")?;
    let trainer = Trainer::choose(options, scratch.path())?;
    block_on(async {
        let cluster = LiveCluster::open(options, scratch.path()).await?;
        let result = tokio::select! {
            result = measure(options, &cluster, &trace, &trainer) => result,
            error = interrupted() => Err(error),
        };
        let closed = cluster.close().await;
        let comparison = result?;
        closed?;
        Ok(comparison.report())
    })
}

/// Waits for SIGINT or SIGTERM.
async fn interrupted() -> TestbedError {
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    TestbedError::Interrupted
}

/// Measures the models, then runs all policies.
async fn measure(
    options: &LiveOptions,
    cluster: &LiveCluster,
    trace: &dovetail_workload::Workload,
    trainer: &Trainer,
) -> Result<Comparison, TestbedError> {
    let jobs = plan::select(trace, options.jobs, cluster.gpus())?;
    options.note(&format!(
        "{} of {} on {} with {} each; trainer: {}",
        counted(jobs.len() as u64, "job"),
        trace.source,
        counted(cluster.nodes.into(), "node"),
        counted(cluster.gpus_per_node.into(), "GPU"),
        trainer.describe()
    ));
    let profiles = calibration::measure(options, cluster, trainer, &jobs).await?;
    let plan = Plan::new(jobs, &profiles, options.scale, cluster.gpus())?;
    let mut runs = Vec::new();
    for name in &options.policies {
        let policy = RunPolicy::new(name, &plan, &profiles, cluster.gpus());
        let forecast = forecast::simulate(&policy, &plan, &profiles, cluster)?;
        let live = live::run(options, cluster, trainer, &plan, &profiles, &policy).await?;
        options.note(&format!(
            "{}: average JCT {:.1} s live, {:.1} s forecast",
            policy.text,
            Outcome::metrics(&live).avg_jct_s,
            Outcome::metrics(&forecast).avg_jct_s
        ));
        runs.push(output::Run {
            policy,
            live,
            forecast,
        });
    }
    Ok(Comparison {
        nodes: cluster.nodes,
        gpus_per_node: cluster.gpus_per_node,
        trainer: trainer.describe(),
        plan,
        profiles,
        runs,
    })
}
