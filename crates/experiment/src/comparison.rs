//! A grid of runs over policies, loads and seeds, on all cores, with one workload for all policies.

use std::sync::Arc;

use dovetail_model::ClusterSpec;
use dovetail_model::run::RunRecord;
use dovetail_workload::Workload;
use rayon::prelude::*;

use crate::config::{build_policy, configure, open_cluster};
use crate::workload::open;
use crate::{Axes, ExperimentError, LoadSummary, Notice, Run, RunSpec};

/// A grid of runs, checked and ready to start.
#[derive(Debug)]
pub struct Comparison {
    spec: RunSpec,
    axes: Axes,
    cluster: ClusterSpec,
    /// One workload for each load and seed, seeds of one load side by side.
    workloads: Vec<Arc<Workload>>,
}

/// One run of the grid.
struct GridCell<'a> {
    policy: &'a str,
    load: Option<f64>,
    seed: u64,
    workload: &'a Arc<Workload>,
}

/// The results of a comparison.
#[derive(Debug)]
pub struct ComparisonRecord {
    /// The axes.
    pub axes: Axes,
    /// The runs in the order load, seed, policy. With several loads the name of each policy ends in `at load X`.
    pub records: Vec<RunRecord>,
    /// The name of the policy of each run, without the load.
    pub policies: Vec<String>,
}

impl Comparison {
    /// Reads the files that the settings name, and builds every policy, so that errors are found before the first run
    /// starts. `notices` gets what a person should know before that.
    ///
    /// # Errors
    /// Names the invalid setting, file, policy, part or knob, and the accepted values.
    pub fn new(spec: RunSpec, axes: Axes, notices: &mut dyn FnMut(Notice)) -> Result<Self, ExperimentError> {
        axes.check()?;
        let cluster = open_cluster(&spec, notices)?;
        let mut workloads = Vec::new();
        for load in &axes.loads {
            for seed in &axes.seeds {
                workloads.push(Arc::new(open(&spec, &cluster, *load, *seed)?));
            }
        }
        let comparison = Self {
            spec,
            axes,
            cluster,
            workloads,
        };
        comparison.check_policies(notices)?;
        Ok(comparison)
    }

    /// Builds every policy for the first workload.
    fn check_policies(&self, notices: &mut dyn FnMut(Notice)) -> Result<(), ExperimentError> {
        let Some(workload) = self.workloads.first() else {
            return Ok(());
        };
        for name in &self.axes.policies {
            let mut config = configure(&self.spec, self.cluster.clone(), 1)?;
            let (policy, needs) = build_policy(name, &self.spec, workload, &mut config)?;
            let run = Run {
                workload: Arc::clone(workload),
                policy,
                needs,
                config,
            };
            if let Some(warning) = run.short_time_slices() {
                notices(Notice::ShortTimeSlices(warning));
            }
        }
        for note in &workload.notes {
            notices(Notice::Note(note.clone()));
        }
        Ok(())
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> usize {
        self.workloads.len() * self.axes.policies.len()
    }

    /// Returns the number of jobs of all runs.
    pub fn jobs(&self) -> u64 {
        let jobs: usize = self.workloads.iter().map(|w| w.jobs.len()).sum();
        (jobs * self.axes.policies.len()) as u64
    }

    /// Runs the grid on this number of threads, by default one for each core. `progress` gets the number of jobs that
    /// finished since its last call, and is called from all threads.
    ///
    /// # Errors
    /// The error of the first run in the order load, seed, policy that failed.
    pub fn run(
        self,
        threads: Option<usize>,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<ComparisonRecord, ExperimentError> {
        let cells = self.cells();
        let run_all = || -> Vec<Result<(String, RunRecord), ExperimentError>> {
            cells
                .par_iter()
                .map(|cell| self.run_cell(cell, progress))
                .collect()
        };
        let results = match threads {
            None => run_all(),
            Some(threads) => rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()?
                .install(run_all),
        };
        let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
        let (policies, records) = results.into_iter().unzip();
        Ok(ComparisonRecord {
            axes: self.axes,
            records,
            policies,
        })
    }

    /// Returns all combinations, in the order load, seed, policy.
    fn cells(&self) -> Vec<GridCell<'_>> {
        let axes = &self.axes;
        let points = axes
            .loads
            .iter()
            .flat_map(|load| axes.seeds.iter().map(move |seed| (*load, *seed)));
        let points = points.zip(&self.workloads);
        let cells = points.flat_map(|((load, seed), workload)| {
            axes.policies.iter().map(move |policy| GridCell {
                policy,
                load,
                seed,
                workload,
            })
        });
        cells.collect()
    }

    /// Runs one cell, and returns the name of its policy as well.
    fn run_cell(
        &self,
        cell: &GridCell<'_>,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(String, RunRecord), ExperimentError> {
        let (workload, cluster) = (Arc::clone(cell.workload), self.cluster.clone());
        let run = Run::with_workload(cell.policy, &self.spec, workload, cluster, cell.seed)?;
        let mut seen = 0;
        let mut record = run.simulate(None, &mut |done| {
            progress(done - seen);
            seen = done;
        })?;
        let policy = record.summary.policy.clone();
        if self.axes.loads.len() > 1 {
            record.summary.policy = format!("{policy} at load {}", cell.load.unwrap_or_default());
        }
        Ok((policy, record))
    }
}

impl ComparisonRecord {
    /// Returns the means over all seeds, load by load.
    pub fn by_load(&self) -> Vec<LoadSummary> {
        let runs = self.axes.seeds.len() * self.axes.policies.len();
        let blocks = self.records.chunks(runs).zip(self.policies.chunks(runs));
        let loads = self.axes.loads.iter().zip(blocks);
        loads
            .map(|(load, (records, names))| {
                LoadSummary::new(*load, records, &names[..self.axes.policies.len()])
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_runs_every_combination_and_averages_over_seeds() {
        let spec = RunSpec {
            cluster: Some("2x8".to_owned()),
            jobs: Some(20),
            ..RunSpec::default()
        };
        let axes = Axes::parse(Some("fifo,srsf"), Some("0.5,1"), Some("1..3"), &spec).unwrap();
        let comparison = Comparison::new(spec, axes, &mut |_| {}).unwrap();
        assert_eq!((comparison.runs(), comparison.jobs()), (12, 240));
        let finished = std::sync::atomic::AtomicU64::new(0);
        let progress = |jobs| {
            finished.fetch_add(jobs, std::sync::atomic::Ordering::Relaxed);
        };
        let record = comparison.run(Some(2), &progress).unwrap();
        assert_eq!(finished.into_inner(), 240);
        assert_eq!(record.records[1].summary.policy, "srsf at load 0.5");
        let loads = record.by_load();
        assert_eq!(loads.len(), 2);
        let row = &loads[1].policies[1];
        assert_eq!((loads[1].load, row.policy.as_str()), (Some(1.0), "srsf"));
        let jcts: Vec<f64> = [7, 9, 11].map(|i| record.records[i].summary.avg_jct_s).to_vec();
        assert!((row.mean.avg_jct_s - jcts.iter().sum::<f64>() / 3.0).abs() < 1e-9);
        assert!(row.avg_jct_half_width_s.is_some_and(|half| half > 0.0));
    }

    #[test]
    fn an_unknown_policy_is_found_before_the_first_run() {
        let spec = RunSpec::default();
        let axes = Axes::parse(Some("fifo,srtff"), None, None, &spec).unwrap();
        let error = Comparison::new(spec, axes, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("did you mean `srtf`"), "{error}");
    }
}
