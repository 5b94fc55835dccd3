//! Jobs that are sent to the page become Jobs of Kubernetes.

use dovetail_control::{Handle, JobNo, JobRequest};
use dovetail_kube::{Manifest, NUMBER, STOPPED_BY, Sender, Several, manifest, object_name, unique_name};
use dovetail_kubeapi::{Client, List, Patch};
use dovetail_web::views::ArrayRequest;
use dovetail_web::{Makes, Making};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::PageSettings;

/// Makes Jobs, and suspends them.
#[derive(Debug, Clone)]
pub(super) struct PodMaker {
    pub(super) client: Client,
    pub(super) handle: Handle,
    pub(super) settings: PageSettings,
}

impl PodMaker {
    fn manifest(
        &self,
        sender: Sender,
        job: &JobRequest,
        array: Option<&ArrayRequest>,
    ) -> Result<Manifest, Vec<String>> {
        let sender = Sender {
            scheduler_name: self.settings.scheduler_name.clone(),
            gpu_resource: self.settings.gpu_resource.clone(),
            image: self.settings.image.clone(),
            ..sender
        };
        let several = array.map(|array| Several {
            indices: &array.indices,
            at_most: array.at_most,
        });
        manifest(job, several, &sender)
    }

    /// The number its Jobs have: of an array, that of the first. None as long as others of it are not over.
    fn sent_as(&self, job: JobNo) -> Option<JobNo> {
        self.handle.read(|book| {
            let Some(array) = book.job(job)?.request.array else {
                return Some(job);
            };
            let of_array = |no: &JobNo| {
                let part = book.job(*no).and_then(|j| j.request.array);
                part.is_some_and(|part| part.array == array.array)
            };
            let mut all = (array.array..book.next_job()).take_while(of_array);
            let over = |no: JobNo| book.job(no).is_none_or(|j| j.state.is_over());
            all.all(over).then_some(array.array)
        })
    }
}

impl Makes for PodMaker {
    fn check(
        &self,
        user: &str,
        job: &JobRequest,
        array: Option<&ArrayRequest>,
    ) -> Result<Vec<String>, String> {
        if job.hold {
            return Err(
                "hold: a job cannot be sent to wait on Kubernetes; send it when it may start".to_owned(),
            );
        }
        let sender = Sender::new(user, &self.settings.namespace, &object_name(&job.name));
        let made = self.manifest(sender, job, array);
        made.map(|made| made.remarks).map_err(|wrong| wrong.join("; "))
    }

    fn make(&self, user: &str, first: JobNo, job: JobRequest, array: Option<ArrayRequest>) -> Making {
        let sender = Sender {
            number: Some(first),
            ..Sender::new(user, &self.settings.namespace, &unique_name(&job.name))
        };
        let made = self.manifest(sender, &job, array.as_ref());
        let client = self.client.clone();
        Box::pin(async move {
            let made = made.map_err(|wrong| wrong.join("; "))?;
            dovetail_kube::send(&client, &made)
                .await
                .map_err(|e| e.to_string())
        })
    }

    fn unmake(&self, job: JobNo, by: &str) -> Making {
        let Some(number) = self.sent_as(job) else {
            return Box::pin(std::future::ready(Ok(())));
        };
        let path = format!("/apis/batch/v1/namespaces/{}/jobs", self.settings.namespace);
        let client = self.client.clone();
        let by = by.to_owned();
        Box::pin(async move {
            let selector = format!("labelSelector={NUMBER}={number}");
            let jobs: List<Value> = client.list(&path, &selector).await.map_err(|e| e.to_string())?;
            for job in &jobs.items {
                let name = job
                    .pointer("/metadata/name")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                // What is written stays with the Job: whoever leads later knows that it is over.
                let patch = json!({"spec": {"suspend": true}, "metadata": {"annotations": {STOPPED_BY: by}}});
                let path = format!("{path}/{name}");
                let done = client.patch::<IgnoredAny>(&path, Patch::Merge, &patch);
                done.await.map_err(|e| e.to_string())?;
            }
            Ok(())
        })
    }
}
