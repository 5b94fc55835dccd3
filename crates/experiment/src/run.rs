//! One run: workload, policy and configuration, checked and ready to start.

use std::sync::Arc;

use dovetail_engine::{Clock, Knowledge, Policy};
use dovetail_model::run::RunRecord;
use dovetail_model::{ClusterSpec, Time};
use dovetail_sim::{Observer, SimConfig, simulate_with};
use dovetail_workload::Workload;

use crate::config::{build_policy, configure, open_cluster};
use crate::workload::{open, set_speeds};
use crate::{ExperimentError, Notice, RunSpec, ShortTimeSlices};

/// Policy of a run that names none.
pub const DEFAULT_POLICY: &str = "fifo-backfill";

/// One run, checked and ready to start.
#[derive(Debug)]
pub struct Run {
    /// The workload, which the runs of a comparison share.
    pub workload: Arc<Workload>,
    /// The policy.
    pub policy: Policy,
    /// What the policy must know of remaining work.
    pub needs: Knowledge,
    /// Everything else.
    pub config: SimConfig,
}

impl Run {
    /// Reads the files that the settings name, and builds the policy. `notices` gets what a person should know before
    /// the run starts.
    ///
    /// # Errors
    /// Names the invalid setting, file, policy, part or knob, and the accepted values.
    pub fn new(
        policy: &str,
        spec: &RunSpec,
        notices: &mut dyn FnMut(Notice),
    ) -> Result<Self, ExperimentError> {
        let seed = spec.seed_or_default();
        let cluster = open_cluster(spec, notices)?;
        let workload = Arc::new(open(spec, &cluster, spec.load, seed)?);
        let run = Self::with_workload(policy, spec, workload, cluster, seed)?;
        for note in &run.workload.notes {
            notices(Notice::Note(note.clone()));
        }
        if let Some(warning) = run.short_time_slices() {
            notices(Notice::ShortTimeSlices(warning));
        }
        Ok(run)
    }

    /// Builds a run of a workload and a cluster that were read before; the settings about them are ignored.
    ///
    /// # Errors
    /// Names the invalid setting, file, policy, part or knob, and the accepted values.
    pub fn with_workload(
        policy: &str,
        spec: &RunSpec,
        workload: Arc<Workload>,
        cluster: ClusterSpec,
        seed: u64,
    ) -> Result<Self, ExperimentError> {
        let mut config = configure(spec, cluster, seed)?;
        set_speeds(spec, &workload, &mut config)?;
        let (policy, needs) = build_policy(policy, spec, &workload, &mut config)?;
        Ok(Self {
            workload,
            policy,
            needs,
            config,
        })
    }

    /// Runs the simulation, with an observer if one is given. `progress` gets the number of finished jobs.
    ///
    /// # Errors
    /// If the combination is not supported, or the engine violated an invariant.
    pub fn simulate(
        self,
        observer: Option<&mut dyn Observer>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<RunRecord, ExperimentError> {
        let Self {
            workload,
            policy,
            needs,
            config,
        } = self;
        Ok(simulate_with(
            &workload, policy, needs, &config, observer, progress,
        )?)
    }

    /// Returns a warning if the time slices of jobs are no longer than a restart, so that jobs may make no progress.
    pub fn short_time_slices(&self) -> Option<ShortTimeSlices> {
        let (policy, config, jobs) = (&self.policy, &self.config, &self.workload.jobs);
        let restart_cost = config.restart_cost;
        if restart_cost == Time::ZERO || !policy.discipline.needs_holders() {
            return None;
        }
        let round = match config.clock {
            Clock::Rounds { period, .. } => period,
            Clock::Events => Time::ZERO,
        };
        let slice = |gpus: u32| policy.order.time_slice(gpus).map(|slice| slice.max(round));
        let is_short = |gpus: u32| slice(gpus).is_some_and(|slice| slice <= restart_cost);
        let gpus = jobs.iter().map(|j| j.gpus).filter(|g| is_short(*g)).min()?;
        Some(ShortTimeSlices {
            policy: policy.name.clone(),
            gpus,
            slice: slice(gpus)?,
            restart_cost,
            affected: jobs.iter().filter(|j| is_short(j.gpus)).count(),
            jobs: jobs.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notices(policy: &str, spec: &RunSpec) -> Vec<Notice> {
        let mut notices = Vec::new();
        Run::new(policy, spec, &mut |notice| notices.push(notice)).unwrap();
        notices
    }

    #[test]
    fn a_restart_longer_than_a_time_slice_is_a_warning() {
        let spec = RunSpec {
            jobs: Some(10),
            restart_cost: Some("1h".to_owned()),
            ..RunSpec::default()
        };
        let short = |notices: Vec<Notice>| {
            let mut warnings = notices.into_iter().filter_map(|n| match n {
                Notice::ShortTimeSlices(warning) => Some(warning),
                Notice::Note(_) => None,
            });
            warnings.next()
        };
        let warning = short(notices("las:quantum=60", &spec)).expect("a minute is shorter than an hour");
        assert_eq!(warning.jobs, 10);
        assert!(
            warning.to_string().contains("a restart takes 60.0 min"),
            "{warning}"
        );
        assert_eq!(short(notices("fifo", &spec)), None);
    }

    #[test]
    fn settings_that_exclude_each_other_are_errors_in_the_request() {
        let spec = RunSpec {
            trace: Some("trace.csv".into()),
            generate: Some("blox".to_owned()),
            ..RunSpec::default()
        };
        let error = Run::new("fifo", &spec, &mut |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "generate cannot be used with trace");
        assert!(!error.is_failed_work());
    }
}
