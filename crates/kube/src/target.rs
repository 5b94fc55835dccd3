//! Which pod is meant where a person names a job, a number or a pod.

use dovetail_kubeapi::{Client, Error, List, Pod};

use crate::words;

/// A task of a job: one of its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskName {
    /// Its role, where the job has several.
    pub role: Option<String>,
    /// Its place among those of the role, from 0 on.
    pub index: u32,
}

impl std::str::FromStr for TaskName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (role, index) = match text.rsplit_once('/') {
            Some((role, index)) => (Some(role.to_owned()), index),
            None => (None, text),
        };
        let wrong = || format!("{text:?}: expected a number from 0 on, or ROLE/NUMBER");
        let index = index.parse().map_err(|_| wrong())?;
        match role.as_deref() {
            Some("") => Err(wrong()),
            _ => Ok(Self { role, index }),
        }
    }
}

/// A container to run a command in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its pod.
    pub pod: String,
    /// Its name.
    pub container: String,
    /// How many tasks there were to choose from, if nobody chose.
    pub among: usize,
}

/// All pods of a namespace.
///
/// # Errors
/// As the server says.
pub async fn pods_in(client: &Client, namespace: &str) -> Result<Vec<Pod>, Error> {
    let list: List<Pod> = client
        .list(&format!("/api/v1/namespaces/{namespace}/pods"), "")
        .await?;
    Ok(list.items)
}

/// The container that is meant: `name` is that of a pod, of a job as it was sent, of its Job or of its file, or its number.
///
/// # Errors
/// In words, when there is none, or several.
pub fn place(
    pods: &[Pod],
    name: &str,
    task: Option<&TaskName>,
    container: Option<&str>,
) -> Result<Place, String> {
    if let Some(pod) = pods.iter().find(|pod| pod.metadata.name == name) {
        if task.is_some() {
            return Err(format!("--task: {name} is a pod; only jobs have tasks"));
        }
        return inside(pod, container, 1);
    }
    let mut of_job: Vec<&Pod> = pods.iter().filter(|pod| is_of(pod, name)).collect();
    if of_job.is_empty() {
        return Err(format!("{name}: no pod and no job with pods has this name here"));
    }
    let all = of_job.len();
    of_job.retain(|pod| pod.status.phase == "Running" && pod.metadata.deletion_timestamp.is_none());
    if of_job.is_empty() {
        return Err(format!("{name}: of its {all} pods none runs"));
    }
    of_job.sort_by_key(|pod| key(pod));
    let first = sent_as(of_job[0]);
    if let Some(other) = of_job.iter().find(|pod| sent_as(pod) != first) {
        return Err(format!(
            "{name}: several jobs have this name, such as {first} and {}; name one of them, or a number",
            sent_as(other)
        ));
    }
    let Some(task) = task else {
        return inside(of_job[0], container, of_job.len());
    };
    let is_meant = |pod: &&&Pod| {
        let (role, index) = (role(pod), index(pod));
        index == task.index && task.role.as_deref().is_none_or(|asked| asked == role)
    };
    let found: Vec<&Pod> = of_job.iter().filter(is_meant).copied().collect();
    match found.as_slice() {
        [pod] => inside(pod, container, 1),
        _ => {
            let has_roles = of_job.iter().any(|pod| role(pod) != role(of_job[0]));
            let task_name = |pod: &&Pod| match has_roles {
                true => format!("{}/{}", role(pod), index(pod)),
                false => index(pod).to_string(),
            };
            let there: Vec<String> = of_job.iter().map(task_name).collect();
            Err(format!(
                "--task: expected one of those of {name} that run: {}",
                there.join(", ")
            ))
        }
    }
}

fn inside(pod: &Pod, container: Option<&str>, among: usize) -> Result<Place, String> {
    let name = &pod.metadata.name;
    if pod.status.phase != "Running" {
        return Err(format!("{name}: the pod is {}, not running", pod.status.phase));
    }
    let usual = || {
        let said = pod
            .metadata
            .annotations
            .get("kubectl.kubernetes.io/default-container");
        let first = pod.spec.containers.first().map(|c| c.name.as_str());
        said.map(String::as_str).or(first).unwrap_or_default()
    };
    let names: Vec<&str> = pod.spec.containers.iter().map(|c| c.name.as_str()).collect();
    let container = match container {
        Some(asked) if !names.contains(&asked) => {
            return Err(format!(
                "--container {asked}: expected one of those of {name}: {}",
                names.join(", ")
            ));
        }
        Some(asked) => asked,
        None => usual(),
    };
    Ok(Place {
        pod: name.clone(),
        container: container.to_owned(),
        among,
    })
}

fn label<'a>(pod: &'a Pod, name: &str) -> &'a str {
    pod.metadata.labels.get(name).map_or("", String::as_str)
}

fn is_of(pod: &Pod, name: &str) -> bool {
    let said = |key: &str| pod.metadata.annotations.get(key).is_some_and(|said| said == name);
    // What begins with a digit is a number: names of jobs are words.
    if name.bytes().all(|b| b.is_ascii_digit()) {
        return said(words::JOB);
    }
    label(pod, words::SENT_AS) == name
        || label(pod, "batch.kubernetes.io/job-name") == name
        || said(words::GANG)
        || said(words::JOB_NAME)
}

/// What tells its job from others.
fn sent_as(pod: &Pod) -> &str {
    let job = pod.metadata.annotations.get(words::JOB).map(String::as_str);
    [
        label(pod, words::SENT_AS),
        job.unwrap_or_default(),
        label(pod, "batch.kubernetes.io/job-name"),
    ]
    .into_iter()
    .find(|name| !name.is_empty())
    .unwrap_or_default()
}

fn role(pod: &Pod) -> &str {
    [
        words::ROLE,
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

fn key(pod: &Pod) -> (String, String, u32) {
    (sent_as(pod).to_owned(), role(pod).to_owned(), index(pod))
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

    fn meant(name: &str, task: &str, container: &str) -> Result<String, String> {
        let task = (!task.is_empty()).then(|| task.parse().unwrap());
        let container = Some(container).filter(|c| !c.is_empty());
        place(&cluster(), name, task.as_ref(), container).map(|p| format!("{} {}", p.pod, p.container))
    }

    #[test]
    fn a_pod_or_a_task_of_a_job_is_meant() {
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
                meant(name, task, container).as_deref(),
                Ok(expected),
                "{name} {task}"
            );
        }
    }

    #[test]
    fn what_is_not_there_is_named_with_what_would_be() {
        let rows = [
            (
                "nobody",
                "",
                "",
                "nobody: no pod and no job with pods has this name here",
            ),
            ("19", "", "", "19: no pod and no job with pods has this name here"),
            ("w2", "", "", "w2: the pod is Succeeded, not running"),
            ("done-c5", "", "", "done-c5: of its 1 pods none runs"),
            ("w1", "0", "", "--task: w1 is a pod; only jobs have tasks"),
            (
                "train",
                "",
                "",
                "train: several jobs have this name, such as eval-b4 and train-x2; name one of them, or a number",
            ),
            (
                "train-x2",
                "0",
                "",
                "--task: expected one of those of train-x2 that run: ps/0, worker/0, worker/1",
            ),
            (
                "eval-b4",
                "2",
                "",
                "--task: expected one of those of eval-b4 that run: 0, 1",
            ),
            (
                "w1",
                "",
                "other",
                "--container other: expected one of those of w1: main, side",
            ),
        ];
        for (name, task, container, expected) in rows {
            assert_eq!(meant(name, task, container), Err(expected.to_owned()));
        }
        for text in ["", "x", "-1", "/1", "worker/", "worker/x"] {
            assert!(text.parse::<TaskName>().is_err(), "{text}");
        }
    }
}
