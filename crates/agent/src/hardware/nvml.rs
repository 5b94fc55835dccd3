//! GPUs found by NVIDIA's management library, which is loaded when the agent starts.

use dovetail_proto::v1::Gpu;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
use nvml_wrapper::error::NvmlError;

use crate::hardware::dcgm::DcgmMonitor;
use crate::hardware::gpus::GpuDriver;

/// The loaded library.
pub(super) struct NvmlGpus {
    nvml: Nvml,
    count: u32,
    /// Measures SM activity; `None` where DCGM is not installed.
    dcgm: Option<DcgmMonitor>,
}

impl NvmlGpus {
    /// Loads the library.
    pub(super) fn open() -> Result<Self, NvmlError> {
        let nvml = Nvml::init()?;
        let count = nvml.device_count()?;
        let dcgm = DcgmMonitor::start();
        Ok(Self { nvml, count, dcgm })
    }

    fn gpu(&self, index: u32) -> Gpu {
        let device = match self.nvml.device_by_index(index) {
            Ok(device) => device,
            // A GPU that fell off the bus keeps its slot, so that the others keep their numbers.
            Err(e) => {
                return Gpu {
                    uuid: format!("GPU-lost-{index}"),
                    fault: e.to_string(),
                    ..Default::default()
                };
            }
        };
        let mut gpu = Gpu::default();
        match (device.uuid(), device.name(), device.memory_info()) {
            (Ok(uuid), Ok(name), Ok(memory)) => {
                gpu.uuid = uuid;
                gpu.r#type = name;
                gpu.memory_mib = memory.total >> 20;
            }
            (Err(e), _, _) | (_, Err(e), _) | (_, _, Err(e)) => gpu.fault = e.to_string(),
        }
        if let Ok(pci) = device.pci_info() {
            gpu.numa = numa_of(&pci.bus_id);
        }
        // GPUs without error correction return an error.
        if let Ok(count) = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
            && count > 0
        {
            gpu.fault = format!("uncorrectable memory errors: {count}");
        }
        gpu
    }
}

/// Returns the NUMA domain of a GPU, counted from 1; zero if unknown. The library writes the PCI domain with eight digits,
/// the kernel with four.
fn numa_of(bus_id: &str) -> u32 {
    let id = bus_id.to_ascii_lowercase();
    let short = id.get(id.len().saturating_sub(12)..).unwrap_or(&id);
    let path = format!("/sys/bus/pci/devices/{short}/numa_node");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse::<u32>().map_or(0, |domain| domain + 1)
}

impl GpuDriver for NvmlGpus {
    fn gpus(&mut self) -> Vec<Gpu> {
        (0..self.count).map(|i| self.gpu(i)).collect()
    }

    fn utilization(&mut self) -> Vec<u32> {
        let utilization = |index| {
            let device = self.nvml.device_by_index(index).ok()?;
            Some(device.utilization_rates().ok()?.gpu)
        };
        (0..self.count).map(|i| utilization(i).unwrap_or(0)).collect()
    }

    fn memory_used(&mut self) -> Vec<u32> {
        let used = |index| {
            let device = self.nvml.device_by_index(index).ok()?;
            u32::try_from(device.memory_info().ok()?.used >> 20).ok()
        };
        (0..self.count).map(|i| used(i).unwrap_or(0)).collect()
    }

    fn sm_activity(&mut self) -> Vec<u32> {
        let dcgm = self.dcgm.as_ref();
        dcgm.map_or_else(Vec::new, |dcgm| dcgm.sm_activity(self.count))
    }
}
