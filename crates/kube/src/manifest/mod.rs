//! Translates a job request into Kubernetes objects.
//!
//! Each role becomes an Indexed `batch/v1` Job; annotations on its pods name their gang and what the scheduler has to know. What
//! Kubernetes cannot express is an error if the job would not work without it, and a remark otherwise.

mod environment;
mod error;
mod fields;
mod job;
mod names;
mod text;

use std::collections::BTreeMap;

use dovetail_cluster::{ArrayIndices, JobId, JobRequest, Role};
use serde_json::{Value, json};

use crate::annotations;

pub use error::ManifestError;
pub use names::{object_name, unique_name};

/// Options of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestOptions {
    /// User who submits the job.
    pub user: String,
    /// Namespace of the objects.
    pub namespace: String,
    /// Name of the objects, see [`object_name`].
    pub name: String,
    /// Id of the job; of an array, the id of the first.
    pub number: Option<JobId>,
    /// `schedulerName` of the pods.
    pub scheduler_name: String,
    /// Resource that is a GPU; `None` if no device plugin counts GPUs.
    pub gpu_resource: Option<String>,
    /// Image of roles without one.
    pub image: Option<String>,
    /// Maximum number of GPUs of a pod, for a job without roles.
    pub gpus_per_pod: u32,
}

impl ManifestOptions {
    /// Returns the default options.
    pub fn new(user: &str, namespace: &str, name: &str) -> Self {
        Self {
            user: user.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            number: None,
            scheduler_name: "dovetail".to_owned(),
            gpu_resource: Some("nvidia.com/gpu".to_owned()),
            image: None,
            gpus_per_pod: 8,
        }
    }
}

/// The objects of a job, in the order in which they are created.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Secrets of the job.
    pub secret: Option<Value>,
    /// Headless service that gives the pods names.
    pub service: Option<Value>,
    /// One Job for each role.
    pub jobs: Vec<Value>,
    /// What is ignored or different on Kubernetes.
    pub remarks: Vec<String>,
}

impl Manifest {
    /// Returns all objects.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        self.secret.iter().chain(&self.service).chain(&self.jobs)
    }
}

/// The request and everything derived from it.
struct Context<'a> {
    request: &'a JobRequest,
    options: &'a ManifestOptions,
    /// Roles; a job without roles has one that stands for it.
    roles: Vec<Role>,
    /// Whether each pod is queued by itself.
    starts_alone: bool,
    at_most: Option<u32>,
    /// Environment variables of secrets, by the name in the job file.
    secrets: BTreeMap<String, String>,
}

impl Context<'_> {
    /// Returns the minimum and maximum number of pods of an elastic job.
    fn range(&self) -> Option<(u32, u32)> {
        fields::range(self.request, self.starts_alone, self.options)
    }

    fn instances(&self) -> u32 {
        self.roles.iter().map(|r| r.instances).sum()
    }

    /// Returns the name of the Job of a role.
    fn job_name(&self, role: usize) -> String {
        match self.roles.len() {
            1 => self.options.name.clone(),
            _ => format!(
                "{}-{}",
                self.options.name,
                names::role_name(&self.roles[role].name)
            ),
        }
    }

    /// Returns the labels of all objects.
    fn labels(&self) -> Value {
        json!({"app.kubernetes.io/managed-by": "dovetail", annotations::SENT_AS: self.options.name})
    }
}

/// Returns the objects of a job.
///
/// # Errors
/// Everything that Kubernetes cannot express.
pub fn manifest(
    request: &JobRequest,
    array: Option<ArrayIndices<'_>>,
    options: &ManifestOptions,
) -> Result<Manifest, Vec<ManifestError>> {
    let mut errors = fields::unsupported(request, array, options);
    let roles = match fields::roles(request, array, options) {
        Ok(roles) => roles,
        Err(error) => {
            errors.push(error);
            return Err(errors);
        }
    };
    let cx = Context {
        request,
        options,
        starts_alone: array.is_some() || !request.gang,
        at_most: array.and_then(|s| s.at_most),
        secrets: text::variables(request),
        roles,
    };
    errors.extend(names::check_names(&cx));
    if !errors.is_empty() {
        return Err(errors);
    }
    let remarks = fields::remarks(&cx);
    let mut jobs = Vec::new();
    let mut before = 0;
    for role in 0..cx.roles.len() {
        jobs.push(job::job(&cx, role, before));
        before += u64::from(cx.roles[role].instances);
    }
    Ok(Manifest {
        secret: secret(&cx),
        service: (cx.instances() > 1 && !cx.starts_alone).then(|| service(&cx)),
        jobs,
        remarks,
    })
}

/// Returns the Secret of a job, if it has secrets.
fn secret(cx: &Context<'_>) -> Option<Value> {
    let texts: BTreeMap<&String, &String> = cx
        .secrets
        .iter()
        .filter_map(|(name, variable)| Some((variable, cx.request.secrets.get(name)?)))
        .collect();
    (!texts.is_empty()).then(|| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": cx.options.name, "namespace": cx.options.namespace, "labels": cx.labels()},
            "stringData": texts})
    })
}

/// Returns the headless service of a job. It gives names to all pods, including those that are not ready.
fn service(cx: &Context<'_>) -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": cx.options.name, "namespace": cx.options.namespace, "labels": cx.labels()},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {annotations::SENT_AS: cx.options.name}}})
}

#[cfg(test)]
mod tests;
