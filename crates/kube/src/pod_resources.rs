//! Resources that a pod requests.

use std::collections::BTreeMap;

use dovetail_kubeapi::{Container, Pod, cpu_milli, memory_mib, whole};
use dovetail_model::Share;

use crate::annotations;
use crate::pod_size::node_amounts;

/// Resources of one pod, or of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PodResources {
    /// Number of GPUs.
    pub gpus: u32,
    /// CPU, in milli-cores.
    pub cpu_milli: u32,
    /// Memory, in MiB.
    pub memory_mib: u64,
}

/// Why the resources of a pod cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodResourcesError {
    /// An amount is not a Kubernetes quantity.
    #[error("{place}: {resource}: invalid quantity {value:?}")]
    Quantity {
        /// Container, or `overhead`.
        place: String,
        /// Name of the resource.
        resource: String,
        /// The amount as written.
        value: String,
    },
    /// The annotation with the number of GPUs is not a number.
    #[error("annotation {name}: invalid number of GPUs {0:?}", name = annotations::GPU_COUNT)]
    GpuCount(String),
}

impl PodResources {
    /// Returns the resources that a pod requests; `gpu_resources` are the names of resources that are GPUs.
    ///
    /// # Errors
    /// If an amount cannot be parsed.
    pub fn of(pod: &Pod, gpu_resources: &[String]) -> Result<Self, PodResourcesError> {
        Self::sum(pod, gpu_resources, |_, own| own)
    }

    /// Returns the resources that a pod has on its node, which differ from those that it requests while it is resized.
    ///
    /// # Errors
    /// If an amount cannot be parsed.
    pub fn held(pod: &Pod, gpu_resources: &[String]) -> Result<Self, PodResourcesError> {
        Self::sum(pod, gpu_resources, |container, own| {
            let share = node_amounts(pod, container, own.share());
            own.with(share)
        })
    }

    /// Adds the resources of the containers of a pod; `amounts` returns those of a container that requests these.
    fn sum(
        pod: &Pod,
        gpu_resources: &[String],
        amounts: impl Fn(&Container, Self) -> Self,
    ) -> Result<Self, PodResourcesError> {
        let of_container = |container: &Container| {
            let own = Self::of_container(container, gpu_resources)?;
            Ok(amounts(container, own))
        };
        let mut total = Self::default();
        for container in &pod.spec.containers {
            total = total.plus(of_container(container)?);
        }
        // Init containers run one after the other before the main ones, so only the largest counts. Sidecars (restart
        // policy `Always`) keep running and are added.
        let (mut sidecars, mut init) = (Self::default(), Self::default());
        for container in &pod.spec.init_containers {
            let own = of_container(container)?;
            match container.restart_policy.as_deref() {
                Some("Always") => sidecars = sidecars.plus(own),
                _ => init = init.max_each(own.plus(sidecars)),
            }
        }
        total = total.plus(sidecars).max_each(init);
        total = total.plus(Self::of_amounts("overhead", &pod.spec.overhead, gpu_resources)?);
        if let Some(text) = pod.metadata.annotations.get(annotations::GPU_COUNT) {
            total.gpus = text
                .parse()
                .map_err(|_| PodResourcesError::GpuCount(text.clone()))?;
        }
        Ok(total)
    }

    pub(crate) fn of_container(
        container: &Container,
        gpu_resources: &[String],
    ) -> Result<Self, PodResourcesError> {
        let resources = &container.resources;
        // A limit is the default of a missing request.
        let mut amounts = resources.limits.clone();
        amounts.extend(resources.requests.clone());
        Self::of_amounts(&format!("container {}", container.name), &amounts, gpu_resources)
    }

    fn of_amounts(
        place: &str,
        amounts: &BTreeMap<String, String>,
        gpu_resources: &[String],
    ) -> Result<Self, PodResourcesError> {
        let invalid = |resource: &str, value: &str| PodResourcesError::Quantity {
            place: place.to_owned(),
            resource: resource.to_owned(),
            value: value.to_owned(),
        };
        let mut total = Self::default();
        for (name, text) in amounts {
            match name.as_str() {
                "cpu" => total.cpu_milli = cpu_milli(text).ok_or_else(|| invalid(name, text))?,
                "memory" => total.memory_mib = memory_mib(text).ok_or_else(|| invalid(name, text))?,
                gpu if gpu_resources.iter().any(|known| known == gpu) => {
                    total.gpus += whole(text).ok_or_else(|| invalid(name, text))?;
                }
                _ => {}
            }
        }
        Ok(total)
    }

    /// Returns CPU and memory.
    pub fn share(self) -> Share {
        Share::new(self.cpu_milli, self.memory_mib)
    }

    /// Returns the same GPUs with other CPU and memory.
    pub fn with(self, share: Share) -> Self {
        Self {
            cpu_milli: share.cpu_milli,
            memory_mib: share.memory_mib,
            ..self
        }
    }

    /// Returns the sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            gpus: self.gpus.saturating_add(other.gpus),
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
        }
    }

    fn max_each(self, other: Self) -> Self {
        Self {
            gpus: self.gpus.max(other.gpus),
            cpu_milli: self.cpu_milli.max(other.cpu_milli),
            memory_mib: self.memory_mib.max(other.memory_mib),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(text: &str) -> Result<PodResources, PodResourcesError> {
        let pod: Pod = serde_json::from_str(text).unwrap();
        PodResources::of(&pod, &["nvidia.com/gpu".to_owned()])
    }

    #[test]
    fn containers_add_up_and_init_containers_share() {
        let pod = r#"{"spec": {"containers": [
            {"name": "a", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "2"}}},
            {"name": "b", "resources": {"requests": {"cpu": "500m"}}}],
            "initContainers": [{"name": "c", "resources": {"requests": {"cpu": "8"}}},
                {"name": "d", "restartPolicy": "Always", "resources": {"requests": {"memory": "1Gi"}}}],
            "overhead": {"cpu": "100m"}}}"#;
        let expected = PodResources {
            gpus: 2,
            cpu_milli: 8100,
            memory_mib: 2048,
        };
        assert_eq!(resources(pod), Ok(expected));
    }

    #[test]
    fn an_invalid_quantity_is_reported_with_its_container() {
        let pod = r#"{"spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "many"}}}]}}"#;
        assert_eq!(
            resources(pod).unwrap_err().to_string(),
            "container a: nvidia.com/gpu: invalid quantity \"many\""
        );
    }
}
