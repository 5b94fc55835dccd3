//! Jobs that are submitted to the page become Jobs of Kubernetes.

use dovetail_cluster::{ArrayIndices, Handle, JobId, JobRequest, WorkloadError, WorkloadFuture};
use dovetail_kubeapi::{Client, List, Patch};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::annotations::{NUMBER, STOPPED_BY};
use crate::manifest::{Manifest, ManifestError, ManifestOptions, manifest, object_name, unique_name};
use crate::submit::create_objects;

/// How the Jobs of submitted jobs are created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadSettings {
    /// Namespace of the Jobs.
    pub namespace: String,
    /// Image of jobs that name none.
    pub image: Option<String>,
    /// `schedulerName` of the pods.
    pub scheduler_name: String,
    /// Name of the GPU resource.
    pub gpu_resource: Option<String>,
}

/// Creates the Jobs of submitted jobs, and suspends those of stopped ones.
#[derive(Debug, Clone)]
pub(crate) struct Workloads {
    pub(super) client: Client,
    pub(super) handle: Handle,
    pub(super) settings: WorkloadSettings,
}

impl Workloads {
    fn manifest(
        &self,
        options: ManifestOptions,
        job: &JobRequest,
        array: Option<ArrayIndices<'_>>,
    ) -> Result<Manifest, Vec<ManifestError>> {
        let options = ManifestOptions {
            scheduler_name: self.settings.scheduler_name.clone(),
            gpu_resource: self.settings.gpu_resource.clone(),
            image: self.settings.image.clone(),
            ..options
        };
        manifest(job, array, &options)
    }

    /// Returns the id that the job's Jobs are labelled with: for an array, the id of its first job. Returns `None`
    /// while other jobs of the array have not ended, because they share the Jobs.
    fn labelled_id(&self, job: JobId) -> Option<JobId> {
        self.handle.read(|state| {
            let Some(array) = state.job(job)?.request.array else {
                return Some(job);
            };
            let is_of_array = |id: &JobId| {
                let part = state.job(*id).and_then(|j| j.request.array);
                part.is_some_and(|part| part.array == array.array)
            };
            let mut jobs = (array.array..state.next_job()).take_while(is_of_array);
            let has_ended = |id: JobId| state.job(id).is_none_or(|j| j.state.has_ended());
            jobs.all(has_ended).then_some(array.array)
        })
    }
}

fn workload_error(errors: &[ManifestError]) -> WorkloadError {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    WorkloadError(errors.join("; "))
}

impl Workloads {
    /// Checks whether the Jobs of a job can be created, and returns remarks on what works differently.
    pub(super) fn check(
        &self,
        user: &str,
        job: &JobRequest,
        array: Option<ArrayIndices<'_>>,
    ) -> Result<Vec<String>, WorkloadError> {
        if job.hold {
            return Err(WorkloadError(
                "hold: not supported on Kubernetes; submit the job when it may start".to_owned(),
            ));
        }
        let options = ManifestOptions::new(user, &self.settings.namespace, &object_name(&job.name));
        let made = self.manifest(options, job, array);
        made.map(|made| made.remarks)
            .map_err(|problems| workload_error(&problems))
    }

    /// Creates the Jobs of a job with this id, or of an array whose first job has it.
    pub(super) fn create(
        &self,
        user: &str,
        first: JobId,
        job: &JobRequest,
        array: Option<ArrayIndices<'_>>,
    ) -> WorkloadFuture {
        let options = ManifestOptions {
            number: Some(first),
            ..ManifestOptions::new(user, &self.settings.namespace, &unique_name(&job.name))
        };
        let made = self.manifest(options, job, array);
        let client = self.client.clone();
        Box::pin(async move {
            let made = made.map_err(|problems| workload_error(&problems))?;
            let created = create_objects(&client, &made).await;
            created.map_err(|e| WorkloadError(e.to_string()))
        })
    }

    /// Suspends the Jobs of a job that was stopped.
    pub(super) fn delete(&self, job: JobId, by: &str) -> WorkloadFuture {
        let Some(id) = self.labelled_id(job) else {
            return Box::pin(std::future::ready(Ok(())));
        };
        let path = format!("/apis/batch/v1/namespaces/{}/jobs", self.settings.namespace);
        let client = self.client.clone();
        let by = by.to_owned();
        Box::pin(async move {
            let selector = format!("labelSelector={NUMBER}={id}");
            let jobs: List<Value> = client
                .list(&path, &selector)
                .await
                .map_err(|e| WorkloadError(e.to_string()))?;
            for job in &jobs.items {
                let name = job
                    .pointer("/metadata/name")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                // The annotation tells a later leader that the job has been stopped.
                let patch = json!({"spec": {"suspend": true}, "metadata": {"annotations": {STOPPED_BY: by}}});
                let path = format!("{path}/{name}");
                let patched = client.patch::<IgnoredAny>(&path, Patch::Merge, &patch);
                patched.await.map_err(|e| WorkloadError(e.to_string()))?;
            }
            Ok(())
        })
    }
}
