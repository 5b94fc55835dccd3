//! GPUs, behind a trait that is as narrow as what the agent needs.

use std::path::Path;

use dovetail_proto::v1::Gpu;

/// Whoever knows the GPUs of a machine.
pub(crate) trait GpuDriver: Send {
    /// All of them, always in the same order; those that must not be used say why.
    fn gpus(&mut self) -> Vec<Gpu>;
    /// Busy share of each in percent; empty if nobody knows.
    fn busy(&mut self) -> Vec<u32>;
    /// Memory in use on each, in MiB; empty if nobody knows.
    fn memory_used(&mut self) -> Vec<u32> {
        Vec::new()
    }
}

/// The GPUs of this machine, or so many slots without GPUs. A machine without a driver has none.
pub(crate) fn driver(node: &str, virtual_gpus: Option<u32>) -> Box<dyn GpuDriver> {
    if let Some(count) = virtual_gpus {
        return Box::new(VirtualGpus::new(node, count));
    }
    #[cfg(feature = "nvml")]
    match super::nvml::NvmlGpus::open() {
        Ok(driver) => return Box::new(driver),
        Err(why) => tracing::info!("no GPUs: {why}"),
    }
    Box::new(VirtualGpus::new(node, 0))
}

/// How many GPUs this machine has, as far as a driver knows.
pub fn gpu_count() -> usize {
    driver("", None).gpus().len()
}

/// Where the control daemon of MPS listens, if it runs.
pub(crate) fn mps_pipe() -> Option<String> {
    let pipe = std::env::var("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|_| "/tmp/nvidia-mps".to_owned());
    Path::new(&pipe).join("control").exists().then_some(pipe)
}

/// GPU slots without GPUs, for tests, demonstrations and clusters of CPUs.
pub(crate) struct VirtualGpus {
    gpus: Vec<Gpu>,
}

impl VirtualGpus {
    pub(crate) fn new(node: &str, count: u32) -> Self {
        let gpu = |i: u32| Gpu {
            uuid: format!("GPU-virtual-{node}-{i}"),
            r#type: "virtual".to_owned(),
            ..Default::default()
        };
        Self {
            gpus: (0..count).map(gpu).collect(),
        }
    }
}

impl GpuDriver for VirtualGpus {
    fn gpus(&mut self) -> Vec<Gpu> {
        self.gpus.clone()
    }

    fn busy(&mut self) -> Vec<u32> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_slots_are_told_apart_over_nodes() {
        let uuids = |node: &str| -> Vec<String> {
            let gpus = driver(node, Some(2)).gpus();
            gpus.into_iter().map(|g| g.uuid).collect()
        };
        assert_eq!(uuids("n1"), ["GPU-virtual-n1-0", "GPU-virtual-n1-1"]);
        assert_ne!(uuids("n1"), uuids("n2"));
    }
}
