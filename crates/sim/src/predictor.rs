//! Run times predicted from the jobs of a trace that have ended.

use dovetail_learning::{JobTraits, RunTimePredictor};
use dovetail_model::Work;
use dovetail_workload::job::Names;
use dovetail_workload::{TraceJob, Workload};

/// Predicts run times of the jobs of one trace.
#[derive(Debug)]
pub(crate) struct TracePredictor {
    predictor: RunTimePredictor,
    names: Names,
    /// The column with the name of a job, if the trace has one.
    name_column: Option<usize>,
}

impl TracePredictor {
    pub(crate) fn new(workload: &Workload) -> Self {
        Self {
            predictor: RunTimePredictor::default(),
            names: workload.names.clone(),
            name_column: workload.extra_column("name"),
        }
    }

    /// Learns the run time of a job that has ended.
    pub(crate) fn learn(&mut self, job: &TraceJob) {
        let traits = traits(&self.names, self.name_column, job);
        self.predictor.learn(&traits, job.work);
    }

    /// Returns the run time of a job, if enough similar ones have ended.
    pub(crate) fn predict(&self, job: &TraceJob) -> Option<Work> {
        let traits = traits(&self.names, self.name_column, job);
        Some(self.predictor.predict(&traits)?.median)
    }
}

fn traits<'a>(names: &'a Names, name_column: Option<usize>, job: &'a TraceJob) -> JobTraits<'a> {
    JobTraits {
        user: &names.users[job.user],
        name: name_column
            .and_then(|column| job.extra_text(column))
            .unwrap_or_default(),
        model: job.model.map(|model| names.models[model].as_str()),
        virtual_cluster: &names.tenants[job.tenant],
        gpus: job.gpus,
        submitted: job.submit,
    }
}
