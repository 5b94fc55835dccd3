//! Finds the container that a user names by a job, an id or a pod.

use dovetail_kubeapi::{Client, Error, List, Pod};

use crate::annotations;

/// A task of a job: one of its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskName {
    /// Role of the pod, if the job has several.
    pub role: Option<String>,
    /// Index among the pods of the role, from 0.
    pub index: u32,
}

/// A text that is not the name of a task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid task {0:?}: expected an index from 0, or ROLE/INDEX")]
pub struct InvalidTaskName(String);

impl std::str::FromStr for TaskName {
    type Err = InvalidTaskName;

    fn from_str(text: &str) -> Result<Self, InvalidTaskName> {
        let (role, index) = match text.rsplit_once('/') {
            Some((role, index)) => (Some(role.to_owned()), index),
            None => (None, text),
        };
        let invalid = || InvalidTaskName(text.to_owned());
        let index = index.parse().map_err(|_| invalid())?;
        match role.as_deref() {
            Some("") => Err(invalid()),
            _ => Ok(Self { role, index }),
        }
    }
}

/// A container to run a command in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecTarget {
    /// Name of its pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Number of tasks from which the first was chosen, if no task was named.
    pub candidates: usize,
}

/// Why no container was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecTargetError {
    /// A task was named with a pod.
    #[error("--task: {0} is a pod; only jobs have tasks")]
    TaskOfPod(String),
    /// There is no such pod or job.
    #[error("{0}: no pod and no job with pods has this name in the namespace")]
    Unknown(String),
    /// No pod of the job runs.
    #[error("{name}: 0 of {pods} pods are running")]
    NotRunning {
        /// The job.
        name: String,
        /// Number of its pods.
        pods: usize,
    },
    /// Several jobs have the name.
    #[error(
        "{name}: several jobs have this name, such as {first} and {second}; use one of these names, or a job id"
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// One of the jobs.
        first: String,
        /// Another one.
        second: String,
    },
    /// The job has no such running task.
    #[error("--task: unknown task of {name}: expected one of the running tasks: {}", running.join(", "))]
    Task {
        /// The job.
        name: String,
        /// Its running tasks.
        running: Vec<String>,
    },
    /// The pod does not run.
    #[error("{pod}: the pod is {phase}, not running")]
    Phase {
        /// The pod.
        pod: String,
        /// Its phase.
        phase: String,
    },
    /// The pod has no such container.
    #[error("--container {container}: expected one of those of {pod}: {}", known.join(", "))]
    Container {
        /// The container.
        container: String,
        /// The pod.
        pod: String,
        /// Containers of the pod.
        known: Vec<String>,
    },
}

/// Lists the pods of a namespace.
///
/// # Errors
/// If the API server rejects the request.
pub async fn pods_in(client: &Client, namespace: &str) -> Result<Vec<Pod>, Error> {
    let list: List<Pod> = client
        .list(&format!("/api/v1/namespaces/{namespace}/pods"), "")
        .await?;
    Ok(list.items)
}

/// Finds a container. `name` is the name of a pod, of the objects of a submitted job, of a Kubernetes Job or of a job, or a job id.
///
/// # Errors
/// If there is no such container, or if several jobs match.
pub fn find_exec_target(
    pods: &[Pod],
    name: &str,
    task: Option<&TaskName>,
    container: Option<&str>,
) -> Result<ExecTarget, ExecTargetError> {
    if let Some(pod) = pods.iter().find(|pod| pod.metadata.name == name) {
        return match task {
            Some(_) => Err(ExecTargetError::TaskOfPod(name.to_owned())),
            None => in_pod(pod, container, 1),
        };
    }
    let running = running_pods(pods, name)?;
    let Some(task) = task else {
        return in_pod(running[0], container, running.len());
    };
    let matches =
        |pod: &&&Pod| index(pod) == task.index && task.role.as_deref().is_none_or(|asked| asked == role(pod));
    let found: Vec<&Pod> = running.iter().filter(matches).copied().collect();
    match found.as_slice() {
        [pod] => in_pod(pod, container, 1),
        _ => {
            let has_roles = running.iter().any(|pod| role(pod) != role(running[0]));
            let task_name = |pod: &&Pod| match has_roles {
                true => format!("{}/{}", role(pod), index(pod)),
                false => index(pod).to_string(),
            };
            Err(ExecTargetError::Task {
                name: name.to_owned(),
                running: running.iter().map(task_name).collect(),
            })
        }
    }
}

/// Returns the running pods of a job, at least one.
fn running_pods<'a>(pods: &'a [Pod], name: &str) -> Result<Vec<&'a Pod>, ExecTargetError> {
    let mut of_job: Vec<&Pod> = pods.iter().filter(|pod| belongs_to(pod, name)).collect();
    let name = name.to_owned();
    if of_job.is_empty() {
        return Err(ExecTargetError::Unknown(name));
    }
    let pods = of_job.len();
    of_job.retain(|pod| pod.status.phase == "Running" && pod.metadata.deletion_timestamp.is_none());
    of_job.sort_by_key(|pod| (job_of(pod).to_owned(), role(pod).to_owned(), index(pod)));
    let Some(first) = of_job.first().map(|pod| job_of(pod)) else {
        return Err(ExecTargetError::NotRunning { name, pods });
    };
    match of_job.iter().find(|pod| job_of(pod) != first) {
        None => Ok(of_job),
        Some(other) => Err(ExecTargetError::Ambiguous {
            name,
            first: first.to_owned(),
            second: job_of(other).to_owned(),
        }),
    }
}

fn in_pod(pod: &Pod, container: Option<&str>, candidates: usize) -> Result<ExecTarget, ExecTargetError> {
    let name = &pod.metadata.name;
    if pod.status.phase != "Running" {
        return Err(ExecTargetError::Phase {
            pod: name.clone(),
            phase: pod.status.phase.clone(),
        });
    }
    let default = || {
        let annotations = &pod.metadata.annotations;
        let annotated = annotations.get("kubectl.kubernetes.io/default-container");
        let first = pod.spec.containers.first().map(|c| c.name.as_str());
        annotated.map(String::as_str).or(first).unwrap_or_default()
    };
    let mut containers = pod.spec.containers.iter();
    let container = match container {
        Some(asked) if !containers.any(|c| c.name == asked) => {
            let known = pod.spec.containers.iter().map(|c| c.name.clone());
            return Err(ExecTargetError::Container {
                container: asked.to_owned(),
                pod: name.clone(),
                known: known.collect(),
            });
        }
        Some(asked) => asked,
        None => default(),
    };
    Ok(ExecTarget {
        pod: name.clone(),
        container: container.to_owned(),
        candidates,
    })
}

fn label<'a>(pod: &'a Pod, name: &str) -> &'a str {
    pod.metadata.labels.get(name).map_or("", String::as_str)
}

/// Checks whether a pod belongs to the job with this name or id.
fn belongs_to(pod: &Pod, name: &str) -> bool {
    let is_annotated = |key: &str| {
        pod.metadata
            .annotations
            .get(key)
            .is_some_and(|value| value == name)
    };
    // Names of jobs are not numbers.
    if name.bytes().all(|b| b.is_ascii_digit()) {
        return is_annotated(annotations::JOB);
    }
    label(pod, annotations::SENT_AS) == name
        || label(pod, "batch.kubernetes.io/job-name") == name
        || is_annotated(annotations::GANG)
        || is_annotated(annotations::JOB_NAME)
}

/// Returns what tells the job of a pod from others of the same name.
fn job_of(pod: &Pod) -> &str {
    let job = pod.metadata.annotations.get(annotations::JOB).map(String::as_str);
    [
        label(pod, annotations::SENT_AS),
        job.unwrap_or_default(),
        label(pod, "batch.kubernetes.io/job-name"),
    ]
    .into_iter()
    .find(|name| !name.is_empty())
    .unwrap_or_default()
}

fn role(pod: &Pod) -> &str {
    [
        annotations::ROLE,
        "training.kubeflow.org/replica-type",
        "batch.kubernetes.io/job-name",
    ]
    .map(|name| label(pod, name))
    .into_iter()
    .find(|role| !role.is_empty())
    .unwrap_or_default()
}

fn index(pod: &Pod) -> u32 {
    crate::identity::index(pod).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, sent_as: &str, role: &str, index: u32, phase: &str) -> Pod {
        let number = if sent_as == "train-x2" { "17" } else { "18" };
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"dovetail.io/sent-as": sent_as, "dovetail.io/role": role,
                "batch.kubernetes.io/job-completion-index": index.to_string()},
                "annotations": {"dovetail.io/job": number, "dovetail.io/job-name": "train"}},
            "spec": {"containers": [{"name": "main"}, {"name": "side"}]}, "status": {"phase": phase}}))
        .unwrap()
    }

    fn cluster() -> Vec<Pod> {
        vec![
            pod("w1", "train-x2", "worker", 1, "Running"),
            pod("w0", "train-x2", "worker", 0, "Running"),
            pod("ps0", "train-x2", "ps", 0, "Running"),
            pod("w2", "train-x2", "worker", 2, "Succeeded"),
            pod("a1", "eval-b4", "main", 1, "Running"),
            pod("a0", "eval-b4", "main", 0, "Running"),
            pod("b0", "done-c5", "main", 0, "Failed"),
        ]
    }

    fn find(name: &str, task: &str, container: &str) -> Result<String, String> {
        let task = (!task.is_empty()).then(|| task.parse().unwrap());
        let container = Some(container).filter(|c| !c.is_empty());
        find_exec_target(&cluster(), name, task.as_ref(), container)
            .map(|target| format!("{} {}", target.pod, target.container))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_finds_a_pod_or_a_task_of_a_job() {
        let rows = [
            ("w1", "", "", "w1 main"),
            ("w1", "", "side", "w1 side"),
            ("eval-b4", "", "", "a0 main"),
            ("eval-b4", "1", "", "a1 main"),
            ("18", "1", "", "a1 main"),
            ("train-x2", "", "", "ps0 main"),
            ("train-x2", "1", "", "w1 main"),
            ("17", "worker/0", "side", "w0 side"),
        ];
        for (name, task, container, expected) in rows {
            assert_eq!(
                find(name, task, container).as_deref(),
                Ok(expected),
                "{name} {task}"
            );
        }
    }

    #[test]
    fn errors_name_what_exists() {
        let rows = [
            (
                "unknown",
                "",
                "",
                "unknown: no pod and no job with pods has this name in the namespace",
            ),
            (
                "19",
                "",
                "",
                "19: no pod and no job with pods has this name in the namespace",
            ),
            ("w2", "", "", "w2: the pod is Succeeded, not running"),
            ("done-c5", "", "", "done-c5: 0 of 1 pods are running"),
            ("w1", "0", "", "--task: w1 is a pod; only jobs have tasks"),
            (
                "train",
                "",
                "",
                "train: several jobs have this name, such as eval-b4 and train-x2; use one of these names, or a job id",
            ),
            (
                "train-x2",
                "0",
                "",
                "--task: unknown task of train-x2: expected one of the running tasks: ps/0, worker/0, worker/1",
            ),
            (
                "eval-b4",
                "2",
                "",
                "--task: unknown task of eval-b4: expected one of the running tasks: 0, 1",
            ),
            (
                "w1",
                "",
                "other",
                "--container other: expected one of those of w1: main, side",
            ),
        ];
        for (name, task, container, expected) in rows {
            assert_eq!(find(name, task, container), Err(expected.to_owned()));
        }
        for text in ["", "x", "-1", "/1", "worker/", "worker/x"] {
            assert!(text.parse::<TaskName>().is_err(), "{text}");
        }
    }
}
