//! OpenPAI jobs, protocol version 2: the part that a simulation needs.
//!
//! A file has one job or a list of jobs, parsed by `dovetail-openpai`. Everything that does not affect scheduling (images,
//! ports, plugins) is dropped.

use std::path::Path;

use dovetail_cells::Sku;
use dovetail_openpai::{Faults, Job, Mode, PriorityClass, Role, parse_all};

use crate::error::TraceError;

/// An invalid file of jobs.
#[derive(Debug, thiserror::Error)]
pub enum OpenPaiError {
    /// The file is not readable.
    #[error(transparent)]
    File(#[from] TraceError),
    /// It is not YAML or JSON, or not of the protocol.
    #[error("{file}: {}", .faults.to_string().replace('\n', &format!("\n{file}: ")))]
    Protocol {
        /// The file.
        file: String,
        /// All errors in it.
        faults: Faults,
    },
}

/// An OpenPAI job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaiJob {
    /// Name of the job.
    pub name: String,
    /// Virtual cluster of the job.
    pub virtual_cluster: String,
    /// Priority; −1 is opportunistic.
    pub priority: i32,
    /// Whether all instances start together or not at all.
    pub gang: bool,
    /// Its task roles, by name.
    pub roles: Vec<PaiRole>,
}

/// A task role: instances that run the same commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaiRole {
    /// Name of the role.
    pub name: String,
    /// Number of instances.
    pub instances: u32,
    /// GPUs per instance.
    pub gpu: u32,
    /// CPU per instance, in milli-cores.
    pub cpu_milli: u32,
    /// Memory per instance, in MiB.
    pub memory_mib: u64,
    /// Required SKU.
    pub sku: Option<String>,
    /// Required pinned cell.
    pub pinned: Option<String>,
    /// Commands of each instance.
    pub commands: Vec<String>,
}

impl PaiJob {
    /// Returns the name of its priority class.
    pub fn class(&self) -> &'static str {
        let class = PriorityClass::ALL
            .into_iter()
            .find(|c| c.priority() == self.priority);
        class.unwrap_or(PriorityClass::Test).name()
    }
}

impl From<&Job> for PaiJob {
    fn from(job: &Job) -> Self {
        Self {
            name: job.name.clone(),
            virtual_cluster: job.virtual_cluster.clone(),
            priority: job.class.priority(),
            gang: job.gang,
            roles: job.roles.iter().map(PaiRole::from).collect(),
        }
    }
}

impl From<&Role> for PaiRole {
    fn from(role: &Role) -> Self {
        Self {
            name: role.name.clone(),
            instances: role.instances,
            gpu: role.gpu,
            cpu_milli: role.cpu.saturating_mul(1000),
            memory_mib: role.memory_mb,
            sku: role.cells.sku_type.clone(),
            pinned: role.cells.pinned.clone(),
            commands: role.commands.clone(),
        }
    }
}

impl PaiRole {
    /// Returns the number of leaf cells that one instance takes; `None` if it requests a resource that a leaf does not have.
    pub fn leaves(&self, leaf: &Sku) -> Option<u32> {
        let needed = |asked: u64, each: u64| match (asked, each) {
            (0, _) => Some(0),
            (_, 0) => None,
            (asked, each) => Some(asked.div_ceil(each)),
        };
        let gpu = needed(self.gpu.into(), leaf.gpu.into())?;
        let cpu = needed(self.cpu_milli.into(), leaf.cpu_milli)?;
        let memory = needed(self.memory_mib, leaf.memory_mib)?;
        u32::try_from(gpu.max(cpu).max(memory).max(1)).ok()
    }

    /// Returns how long its commands sleep (`sleep 5m`), in seconds.
    pub fn sleeps_s(&self) -> u64 {
        let lines = self.commands.iter().flat_map(|c| c.lines());
        lines.filter_map(sleep_s).sum()
    }
}

/// Returns the seconds a command sleeps; `None` for other commands.
fn sleep_s(command: &str) -> Option<u64> {
    let time = command.trim().strip_prefix("sleep ")?.trim();
    let (number, unit) = match time.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, &time[number.len()..]),
        None => (time, "s"),
    };
    let unit = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => 1,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Reads a file of jobs.
///
/// # Errors
/// Names the file, the path in it and the error.
pub fn read_openpai(path: &Path) -> Result<Vec<PaiJob>, OpenPaiError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|reason| TraceError::Open {
        file: file.clone(),
        reason,
    })?;
    parse_openpai(&text, &file)
}

/// Parses the jobs in a text, YAML or JSON; `file` is its name in errors.
///
/// # Errors
/// Names every error by its path.
pub fn parse_openpai(text: &str, file: &str) -> Result<Vec<PaiJob>, OpenPaiError> {
    let jobs = parse_all(text, Mode::Strict).map_err(|faults| OpenPaiError::Protocol {
        file: file.to_owned(),
        faults,
    })?;
    Ok(jobs.iter().map(|parsed| PaiJob::from(&parsed.job)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "
protocolVersion: 2
name: mnist
type: job
prerequisites: [{type: dockerimage, name: image, uri: somewhere}]
taskRoles:
  train:
    instances: 2
    dockerImage: image
    resourcePerInstance: {cpu: 3, memoryMB: 4096, gpu: 1}
    commands: [\"python3 main.py\\nsleep 5m\", sleep 7]
defaults: {virtualCluster: vision}
extras:
  gangAllocation: false
  hivedScheduler: {jobPriorityClass: oppo, taskRoles: {train: {skuType: V100}}}
";

    #[test]
    fn a_job_is_parsed() {
        let jobs = parse_openpai(JOB, "job.yaml").unwrap();
        let [job] = &jobs[..] else { panic!("{jobs:?}") };
        assert_eq!(
            (job.name.as_str(), job.virtual_cluster.as_str()),
            ("mnist", "vision")
        );
        assert_eq!((job.priority, job.class(), job.gang), (-1, "oppo", false));
        let role = &job.roles[0];
        assert_eq!(
            (role.instances, role.sku.as_deref(), role.sleeps_s()),
            (2, Some("V100"), 307)
        );
        let leaf = |gpu, cpu_milli, memory_mib| Sku {
            gpu,
            cpu_milli,
            memory_mib,
        };
        assert_eq!(
            role.leaves(&leaf(1, 2000, 4096)),
            Some(2),
            "two leaves for three cores"
        );
        assert_eq!(
            role.leaves(&leaf(1, 8000, 1024)),
            Some(4),
            "four leaves for the memory"
        );
        assert_eq!(role.leaves(&leaf(0, 8000, 9999)), None, "no leaf has a GPU");
    }

    #[test]
    fn errors_name_the_file_and_the_path() {
        let text = JOB
            .replace("instances: 2", "instances: 0")
            .replace("cpu: 3", "cpu: many");
        let error = parse_openpai(&text, "job.yaml").unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), 2, "{error}");
        assert!(
            lines[0].starts_with("job.yaml: taskRoles.train.instances: "),
            "{error}"
        );
        assert!(
            lines[1].starts_with("job.yaml: taskRoles.train.resourcePerInstance.cpu: "),
            "{error}"
        );
    }
}
