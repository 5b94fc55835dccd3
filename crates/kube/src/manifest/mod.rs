//! A job as a person sends it, as objects of Kubernetes.
//!
//! Pure: a request goes in, objects come out. Each role is an Indexed `batch/v1` Job; annotations on its pods say which gang they
//! are and what the scheduler has to know. What Kubernetes cannot express is named: as an error where the job would be another
//! one without it, else as a remark.

mod environment;
mod fields;
mod job;
mod names;
mod text;

use std::collections::BTreeMap;

use dovetail_cluster::{JobId, JobRequest, Role};
use serde_json::{Value, json};

use crate::words;

pub use names::{object_name, unique_name};

/// Whose job it is, and what objects are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    /// Who sends it.
    pub user: String,
    /// The namespace.
    pub namespace: String,
    /// The name of its objects, see [`object_name`].
    pub name: String,
    /// The number the book has given it; of several jobs, the first.
    pub number: Option<JobId>,
    /// Who looks after its pods.
    pub scheduler_name: String,
    /// The resource that is a GPU; none where no device plugin counts them.
    pub gpu_resource: Option<String>,
    /// The image of whatever names none.
    pub image: Option<String>,
    /// A job without roles has pods of so many GPUs at most.
    pub gpus_per_pod: u32,
}

impl Sender {
    /// The usual for the rest.
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

/// Several jobs of the same kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Several<'a> {
    /// Their indices.
    pub indices: &'a [u32],
    /// So many at once at most.
    pub at_most: Option<u32>,
}

/// The objects of a job, in the order in which they are made.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// What its owner keeps secret.
    pub secret: Option<Value>,
    /// Names by which its pods find each other.
    pub service: Option<Value>,
    /// A Job for each role.
    pub jobs: Vec<Value>,
    /// What is not quite the same on Kubernetes.
    pub remarks: Vec<String>,
}

impl Manifest {
    /// All objects.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        self.secret.iter().chain(&self.service).chain(&self.jobs)
    }
}

/// What all parts of the translation look at.
struct Asked<'a> {
    request: &'a JobRequest,
    sender: &'a Sender,
    /// Roles; a job without has one of our making.
    roles: Vec<Role>,
    /// Pods stand in line each for itself.
    each_alone: bool,
    at_most: Option<u32>,
    /// Secrets: the name in the file, and that of the variable.
    secrets: BTreeMap<String, String>,
}

impl Asked<'_> {
    /// With how many pods it starts and how many it can use, where that is not the same.
    fn range(&self) -> Option<(u32, u32)> {
        fields::range(self.request, self.each_alone, self.sender)
    }

    fn instances(&self) -> u32 {
        self.roles.iter().map(|r| r.instances).sum()
    }

    /// The name of a role's Job.
    fn job_name(&self, role: usize) -> String {
        match self.roles.len() {
            1 => self.sender.name.clone(),
            _ => format!(
                "{}-{}",
                self.sender.name,
                names::role_name(&self.roles[role].name)
            ),
        }
    }

    /// Labels of all its objects.
    fn labels(&self) -> Value {
        json!({"app.kubernetes.io/managed-by": "dovetail", words::SENT_AS: self.sender.name})
    }
}

/// The objects of a job.
///
/// # Errors
/// Everything that cannot be said on Kubernetes, each with the name of the field and what would be accepted.
pub fn manifest(
    request: &JobRequest,
    several: Option<Several<'_>>,
    sender: &Sender,
) -> Result<Manifest, Vec<String>> {
    let mut wrong = fields::refused(request, several, sender);
    let roles = match fields::roles(request, several, sender) {
        Ok(roles) => roles,
        Err(why) => {
            wrong.push(why);
            return Err(wrong);
        }
    };
    let asked = Asked {
        request,
        sender,
        each_alone: several.is_some() || !request.gang,
        at_most: several.and_then(|s| s.at_most),
        secrets: text::variables(request),
        roles,
    };
    wrong.extend(names::clashes(&asked));
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let remarks = fields::remarks(&asked);
    let mut jobs = Vec::new();
    let mut before = 0;
    for role in 0..asked.roles.len() {
        jobs.push(job::job(&asked, role, before));
        before += u64::from(asked.roles[role].instances);
    }
    Ok(Manifest {
        secret: secret(&asked),
        service: (asked.instances() > 1 && !asked.each_alone).then(|| service(&asked)),
        jobs,
        remarks,
    })
}

/// What its owner keeps secret, as texts of a Secret.
fn secret(asked: &Asked<'_>) -> Option<Value> {
    let texts: BTreeMap<&String, &String> = asked
        .secrets
        .iter()
        .filter_map(|(name, variable)| Some((variable, asked.request.secrets.get(name)?)))
        .collect();
    (!texts.is_empty()).then(|| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": asked.sender.name, "namespace": asked.sender.namespace, "labels": asked.labels()},
            "stringData": texts})
    })
}

/// A service without an address: it makes names for pods, also for those that are not ready.
fn service(asked: &Asked<'_>) -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": asked.sender.name, "namespace": asked.sender.namespace, "labels": asked.labels()},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {words::SENT_AS: asked.sender.name}}})
}

#[cfg(test)]
mod tests;
