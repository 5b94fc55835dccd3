//! Detection of GPUs.

use dovetail_proto::v1::Gpu;

/// Source of information about the GPUs of a machine.
pub(crate) trait GpuDriver: Send {
    /// Returns all GPUs, always in the same order. A GPU that must not be used has a fault.
    fn gpus(&mut self) -> Vec<Gpu>;
    /// Returns the utilization of each GPU in percent; empty if unknown.
    fn utilization(&mut self) -> Vec<u32>;
    /// Returns the memory in use on each GPU in MiB; empty if unknown.
    fn memory_used(&mut self) -> Vec<u32> {
        Vec::new()
    }
    /// Returns the share of each GPU's streaming multiprocessors that had work, in percent; empty if unknown.
    fn sm_activity(&mut self) -> Vec<u32> {
        Vec::new()
    }
}

/// Returns the driver of this machine's GPUs, or of virtual GPU slots. A machine without a driver has no GPUs.
pub(crate) fn driver(node: &str, virtual_gpus: Option<u32>) -> Box<dyn GpuDriver> {
    if let Some(count) = virtual_gpus {
        return Box::new(VirtualGpus::new(node, count));
    }
    #[cfg(feature = "nvml")]
    match super::nvml::NvmlGpus::open() {
        Ok(driver) => return Box::new(driver),
        Err(e) => tracing::info!("no GPUs detected: {e}"),
    }
    Box::new(VirtualGpus::new(node, 0))
}

/// Returns the number of GPUs that the driver of this machine finds.
pub fn gpu_count() -> usize {
    driver("", None).gpus().len()
}

/// GPU slots without GPUs, for tests, demonstrations and CPU clusters.
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

    fn utilization(&mut self) -> Vec<u32> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_gpus_of_different_nodes_have_different_uuids() {
        let uuids = |node: &str| -> Vec<String> {
            let gpus = driver(node, Some(2)).gpus();
            gpus.into_iter().map(|g| g.uuid).collect()
        };
        assert_eq!(uuids("n1"), ["GPU-virtual-n1-0", "GPU-virtual-n1-1"]);
        assert_ne!(uuids("n1"), uuids("n2"));
    }
}
