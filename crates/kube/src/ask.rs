//! What a pod asks for.

use std::collections::BTreeMap;

use dovetail_kubeapi::{Container, Pod, cpu_milli, memory_mib, whole};

use crate::words;

/// What one pod needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Needs {
    /// GPUs.
    pub gpus: u32,
    /// CPU, in milli-cores.
    pub cpu_milli: u32,
    /// Memory, in MiB.
    pub memory_mib: u64,
}

impl Needs {
    /// Of a pod, counting GPUs of these resources.
    ///
    /// # Errors
    /// When an amount is none.
    pub fn of(pod: &Pod, gpu_resources: &[String]) -> Result<Self, String> {
        let one = |container: &Container| Self::of_container(container, gpu_resources);
        let mut needs = Self::default();
        for container in &pod.spec.containers {
            needs = needs.plus(one(container)?);
        }
        // Containers that run before the others share what is there; those that stay are counted on top.
        let (mut beside, mut before) = (Self::default(), Self::default());
        for container in &pod.spec.init_containers {
            let own = one(container)?;
            match container.restart_policy.as_deref() {
                Some("Always") => beside = beside.plus(own),
                _ => before = before.at_least(own.plus(beside)),
            }
        }
        needs = needs.plus(beside).at_least(before);
        needs = needs.plus(Self::of_amounts("overhead", &pod.spec.overhead, gpu_resources)?);
        if let Some(said) = pod.metadata.annotations.get(words::GPUS_WANTED) {
            needs.gpus = said
                .parse()
                .map_err(|_| format!("annotation {}: {said:?} is no number of GPUs", words::GPUS_WANTED))?;
        }
        Ok(needs)
    }

    fn of_container(container: &Container, gpu_resources: &[String]) -> Result<Self, String> {
        let resources = &container.resources;
        // A limit is a request where there is none.
        let mut amounts = resources.limits.clone();
        amounts.extend(resources.requests.clone());
        Self::of_amounts(&format!("container {}", container.name), &amounts, gpu_resources)
    }

    fn of_amounts(
        of: &str,
        amounts: &BTreeMap<String, String>,
        gpu_resources: &[String],
    ) -> Result<Self, String> {
        let bad = |name: &str, text: &str| format!("{of}: {name}: {text:?} is not an amount");
        let mut needs = Self::default();
        for (name, text) in amounts {
            match name.as_str() {
                "cpu" => needs.cpu_milli = cpu_milli(text).ok_or_else(|| bad(name, text))?,
                "memory" => needs.memory_mib = memory_mib(text).ok_or_else(|| bad(name, text))?,
                gpu if gpu_resources.iter().any(|known| known == gpu) => {
                    needs.gpus += whole(text).ok_or_else(|| bad(name, text))?;
                }
                _ => {}
            }
        }
        Ok(needs)
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            gpus: self.gpus.saturating_add(other.gpus),
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_mib: self.memory_mib.saturating_add(other.memory_mib),
        }
    }

    fn at_least(self, other: Self) -> Self {
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

    fn needs(text: &str) -> Result<Needs, String> {
        let pod: Pod = serde_json::from_str(text).unwrap();
        Needs::of(&pod, &["nvidia.com/gpu".to_owned()])
    }

    #[test]
    fn containers_add_up_and_those_before_them_share() {
        let pod = r#"{"spec": {"containers": [
            {"name": "a", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "2"}}},
            {"name": "b", "resources": {"requests": {"cpu": "500m"}}}],
            "initContainers": [{"name": "c", "resources": {"requests": {"cpu": "8"}}},
                {"name": "d", "restartPolicy": "Always", "resources": {"requests": {"memory": "1Gi"}}}],
            "overhead": {"cpu": "100m"}}}"#;
        let expected = Needs {
            gpus: 2,
            cpu_milli: 8100,
            memory_mib: 2048,
        };
        assert_eq!(needs(pod), Ok(expected));
    }

    #[test]
    fn what_is_no_amount_is_named() {
        let pod = r#"{"spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "many"}}}]}}"#;
        assert_eq!(
            needs(pod).unwrap_err(),
            "container a: nvidia.com/gpu: \"many\" is not an amount"
        );
    }
}
