//! What the pods of a gang state about their job. It is all that the scheduler on Kubernetes knows of it: commands, retries
//! and environments are in the pods, and none of its concern.

use dovetail_model::NodeConstraintId;
use serde::{Deserialize, Serialize};

use super::roles::{MAX_GANG_INSTANCES, per_gpu};
use super::validate::MAX_GPUS;
use super::{Behaviour, JobRequest, RequestError, Retries, behaviour};
use crate::amounts::Cpus;

/// Pods of a gang that request the same resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSet {
    /// Number of pods.
    pub pods: u32,
    /// GPUs of each pod, all on one node.
    pub gpus: u32,
    /// CPU of each pod, in milli-cores.
    pub cpu_milli: u32,
    /// Memory of each pod, in MiB.
    pub memory_mib: u64,
}

/// What the pods of a gang state about their job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangRequest {
    /// Name of the job; need not be unique.
    pub name: String,
    /// User who submitted it.
    pub user: String,
    /// Virtual cluster of the job.
    pub virtual_cluster: String,
    /// Priority; jobs with a larger value are ahead in the queue.
    pub priority: i32,
    /// Type of GPU that the pods require.
    pub gpu_type: Option<String>,
    /// How the job behaves when it runs.
    pub behaviour: Behaviour,
    /// Nodes that may take the pods.
    #[serde(skip)]
    pub constraint: Option<NodeConstraintId>,
    /// Whether it is an elastic pod, which only uses GPUs that no other job needs.
    pub is_elastic: bool,
    /// The pods that start together.
    pub pods: Vec<PodSet>,
}

impl GangRequest {
    /// Returns the job of the gang. A pod that fails is recreated by its controller, so that only the loss of a node is a
    /// reason to start the job again.
    ///
    /// # Errors
    /// Names what is wrong with the pods.
    pub fn job(&self) -> Result<JobRequest, RequestError> {
        let gpus = self.gpus()?;
        let amount = |of: fn(&PodSet) -> u64| {
            let parts = self.pods.iter().map(|set| (set.gpus, of(set), set.pods));
            per_gpu(parts, u128::from(gpus))
        };
        let cpu_milli = amount(|set| u64::from(set.cpu_milli));
        let behaviour = self.behaviour.clone();
        let request = JobRequest {
            name: self.name.clone(),
            tenant: self.virtual_cluster.clone(),
            gpus,
            gpus_per_task: self.pods.iter().map(|set| set.gpus).max().unwrap_or(1).max(1),
            cpus_per_gpu: Cpus::from_milli(i64::try_from(cpu_milli).unwrap_or(i64::MAX)),
            memory_mib_per_gpu: amount(|set| set.memory_mib),
            gpu_type: self.gpu_type.clone(),
            constraint: self.constraint,
            best_effort: self.is_elastic,
            priority: self.priority,
            expected: behaviour.expected,
            model: behaviour.model,
            total_steps: behaviour.total_steps,
            stages: behaviour.stages,
            scaling: behaviour.scaling,
            deadline: behaviour.deadline,
            retries: Retries {
                user: 0,
                platform: 0,
                node: u32::MAX,
            },
            ..JobRequest::default()
        };
        request.validate_times()?;
        behaviour::validate(&request)?;
        Ok(request)
    }

    /// Returns the GPUs of all pods. A gang without GPUs holds one slot, so that it is queued like the others.
    fn gpus(&self) -> Result<u32, RequestError> {
        let pods: u64 = self.pods.iter().map(|set| u64::from(set.pods)).sum();
        if !(1..=MAX_GANG_INSTANCES).contains(&pods) {
            return Err(RequestError::OutOfRange {
                field: "pods",
                min: 1,
                max: MAX_GANG_INSTANCES,
            });
        }
        let mut sizes: Vec<u32> = self.pods.iter().map(|set| set.gpus).collect();
        sizes.retain(|gpus| *gpus > 0);
        sizes.sort_unstable();
        if let Some(pair) = sizes.windows(2).find(|pair| pair[1] % pair[0] != 0) {
            return Err(RequestError::PodSizes {
                small: pair[0],
                large: pair[1],
            });
        }
        let gpus = self
            .pods
            .iter()
            .map(|set| u64::from(set.gpus) * u64::from(set.pods));
        let gpus = gpus.fold(0, u64::saturating_add);
        match u32::try_from(gpus).ok().filter(|gpus| *gpus <= MAX_GPUS) {
            Some(gpus) => Ok(gpus.max(1)),
            None => Err(RequestError::OutOfRange {
                field: "GPUs of all pods",
                min: 0,
                max: u64::from(MAX_GPUS),
            }),
        }
    }
}

/// Sets the size of a job and its nodes to those of its current workload.
pub(crate) fn take_resources(job: &mut JobRequest, current: &JobRequest) {
    (job.gpus, job.gpus_per_task) = (current.gpus, current.gpus_per_task);
    (job.min_gpus, job.max_gpus) = (current.min_gpus, current.max_gpus);
    (job.cpus_per_gpu, job.memory_mib_per_gpu) = (current.cpus_per_gpu, current.memory_mib_per_gpu);
    job.gpu_type.clone_from(&current.gpu_type);
    job.constraint = current.constraint;
}

/// Returns whether a job has the size and the nodes of its current workload.
pub fn has_resources_of(job: &JobRequest, current: &JobRequest) -> bool {
    let mut same = job.clone();
    take_resources(&mut same, current);
    same == *job
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gang(pods: Vec<PodSet>) -> GangRequest {
        GangRequest {
            name: "train".to_owned(),
            user: "ann".to_owned(),
            virtual_cluster: "default".to_owned(),
            priority: 3,
            gpu_type: None,
            behaviour: Behaviour::default(),
            constraint: None,
            is_elastic: false,
            pods,
        }
    }

    fn pods(pods: u32, gpus: u32, cpu_milli: u32) -> PodSet {
        PodSet {
            pods,
            gpus,
            cpu_milli,
            memory_mib: 1024,
        }
    }

    #[test]
    fn a_gang_becomes_a_job_of_the_sum_of_its_pods() {
        let job = gang(vec![pods(2, 4, 8000), pods(1, 0, 2000)]).job().unwrap();
        assert_eq!((job.gpus, job.gpus_per_task, job.priority), (8, 4, 3));
        // The pod without GPUs is spread over all of them.
        assert_eq!(job.cpus_per_gpu, Cpus::from_milli(2250));
        assert!(job.command.is_empty() && job.roles.is_empty());
        assert_eq!(gang(vec![pods(1, 0, 0)]).job().unwrap().gpus, 1);
    }

    #[test]
    fn pods_that_do_not_fit_together_are_refused() {
        let error = |sets| gang(sets).job().unwrap_err().to_string();
        assert_eq!(
            error(vec![pods(1, 2, 0), pods(1, 3, 0)]),
            "pods with 2 and 3 GPUs cannot be in one gang: the larger number must be a multiple of the smaller"
        );
        assert!(error(vec![]).starts_with("pods: must be from 1 to"));
        assert!(error(vec![pods(2000, 4000, 0)]).starts_with("GPUs of all pods: must be from 0 to"));
    }
}
