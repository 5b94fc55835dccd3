//! Speed of models over CPU and memory per GPU: the built-in tables, and those of users.
//!
//! ```yaml
//! name: mine                        # optional; the name of the file by default
//! share: {cpu: 3, memory_gb: 62.5}  # per GPU of the machine: speed is 1 there
//! gpu_type: V100                    # measured on this GPU type; optional, also per model
//! models:
//!   - model: alexnet
//!     gpus: 1                       # measured on this many GPUs; 1 by default
//!     iteration_s: 0.6              # time of an iteration at the share, if known
//!     ideal: {cpu: 12, memory_gb: 125, speed: 2.94}   # as published with the measurement; optional
//!     cpu: [1, 3, 12]               # CPUs per GPU, ascending
//!     memory_gb: [20.83, 62.5, 125] # memory per GPU, ascending
//!     speed:                        # a row for each amount of CPU, a column for each of memory
//!       - [0.1, 0.3, 0.3]
//!       - [0.1, 1, 1]
//!       - [0.1, 2, 2.94]
//! ```
//!
//! The built-in tables are Synergy's (OSDI'22), for machines with 3, 4, 5 and 6 CPUs per GPU.

mod join;
mod parse;

use std::path::Path;
use std::sync::Arc;

use dovetail_model::{ClusterSpec, Sensitivity, Share};

use crate::profiles::{ProfileError, Profiles, plain_name};
use dovetail_yaml::YamlError;

pub use join::join_sensitivity;

/// The built-in tables, with the CPUs per GPU of their machine.
const BUILTIN: [(&str, u32, &str); 5] = [
    ("synergy-3", 3000, include_str!("synergy-3.yaml")),
    ("synergy-4", 4000, include_str!("synergy-4.yaml")),
    ("synergy-5", 5000, include_str!("synergy-5.yaml")),
    ("synergy-6", 6000, include_str!("synergy-6.yaml")),
    ("synergy-3-multi", 0, include_str!("synergy-3-multi.yaml")),
];

/// The speed of one model on one number of GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct SensitivityProfile {
    /// The model.
    pub model: String,
    /// GPUs it was measured on.
    pub gpus: u32,
    /// GPU type it was measured on, if known.
    pub gpu_type: Option<String>,
    /// Seconds of an iteration at the share of the machine, if known.
    pub iteration_s: Option<f64>,
    /// The ideal share as published with the measurement.
    pub stated: Option<StatedIdeal>,
    /// The measured points.
    pub sensitivity: Arc<Sensitivity>,
}

/// The ideal share per GPU and the speed with it, as a table states them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StatedIdeal {
    /// CPUs per GPU.
    pub cpu: f64,
    /// Memory per GPU, in GB.
    pub memory_gb: f64,
    /// Speed relative to that at the share of the machine.
    pub speed: f64,
}

/// Profiles of several models, measured on one kind of machine.
#[derive(Debug, Clone, PartialEq)]
pub struct SensitivityTable {
    /// Name of the table.
    pub name: String,
    /// CPU and memory per GPU of the machine. Speeds are relative to that share.
    pub share: Share,
    /// Profiles, one for each model and number of GPUs.
    pub rows: Vec<SensitivityProfile>,
}

impl SensitivityTable {
    /// Returns the names of the built-in tables.
    pub fn builtin_names() -> Vec<&'static str> {
        BUILTIN.iter().map(|(name, ..)| *name).collect()
    }

    /// Returns a built-in table.
    pub fn builtin(name: &str) -> Option<Self> {
        let (name, _, text) = BUILTIN.iter().find(|(known, ..)| *known == name)?;
        let table = Self::from_yaml(text, name);
        Some(table.expect("the built-in tables are valid"))
    }

    /// Returns the built-in table for a cluster whose nodes all have the same CPUs per GPU, if there is one.
    pub fn of_cluster(cluster: &ClusterSpec) -> Option<Self> {
        let mut with_gpus = cluster.nodes.values().filter(|n| n.gpus > 0);
        let first = with_gpus.next()?;
        let same_ratio = |n: &dovetail_model::NodeSpec| {
            u64::from(n.cpu_milli) * u64::from(first.gpus) == u64::from(first.cpu_milli) * u64::from(n.gpus)
        };
        if !with_gpus.all(same_ratio) {
            return None;
        }
        let known = BUILTIN
            .iter()
            .find(|(_, cpu, _)| *cpu > 0 && cpu * first.gpus == first.cpu_milli)?;
        Self::builtin(known.0)
    }

    /// Reads a table from a YAML file.
    ///
    /// # Errors
    /// Names the file, the key that is wrong, and the accepted values.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ProfileError> {
        let file = path.as_ref().display().to_string();
        let text = std::fs::read_to_string(&path).map_err(|reason| ProfileError::Open {
            file: file.clone(),
            reason,
        })?;
        Ok(Self::from_yaml(&text, &file)?)
    }

    /// Parses a table from a YAML text.
    ///
    /// # Errors
    /// Names the key that is wrong, and the accepted values.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, YamlError> {
        parse::table(text, file)
    }

    /// Returns the models, each once, in the order of the table.
    pub fn models(&self) -> Vec<&str> {
        let mut models: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !models.contains(&row.model.as_str()) {
                models.push(&row.model);
            }
        }
        models
    }

    /// Returns the profile of a model by any of its names: the one for this many GPUs, else for the largest number below,
    /// else for the smallest one. Profiles of the same GPU type take precedence.
    pub fn find(&self, model: &str, gpus: u32, gpu_type: Option<&str>) -> Option<&SensitivityProfile> {
        let names = Profiles::default();
        let canonical = |name: &str| {
            let known = names.get(name).map(|p| plain_name(&p.name));
            known.unwrap_or_else(|| plain_name(name))
        };
        let name = canonical(model);
        let same_type = |row: &SensitivityProfile| match (gpu_type, &row.gpu_type) {
            (Some(required), Some(measured)) => required.eq_ignore_ascii_case(measured),
            _ => false,
        };
        self.rows
            .iter()
            .filter(|row| canonical(&row.model) == name)
            .max_by_key(|row| {
                let fits = row.gpus <= gpus;
                let near = if fits {
                    i64::from(row.gpus)
                } else {
                    -i64::from(row.gpus)
                };
                (same_type(row), fits, near)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dovetail_model::Rate;

    #[test]
    fn speed_is_one_at_the_share_of_a_table_and_as_stated_at_the_ideal() {
        for name in SensitivityTable::builtin_names() {
            let table = SensitivityTable::builtin(name).unwrap();
            assert_eq!(table.models().len(), 12, "{name}");
            for row in &table.rows {
                let name = format!("{name}: {} on {} GPUs", row.model, row.gpus);
                assert_eq!(row.sensitivity.rate(table.share), Rate::FULL, "{name}");
                let stated = row.stated.unwrap();
                let at = Share::new(
                    (stated.cpu * 1000.0) as u32,
                    (stated.memory_gb.max(20.83) * 1024.0).round() as u64,
                );
                assert_eq!(
                    row.sensitivity.rate(at),
                    Rate::from_factor(stated.speed),
                    "{name}"
                );
                assert_eq!(row.sensitivity.top(), Rate::from_factor(stated.speed), "{name}");
            }
        }
    }

    #[test]
    fn a_model_is_found_by_its_names_and_the_nearest_width() {
        let table = SensitivityTable::builtin("synergy-3-multi").unwrap();
        let of = |gpus| table.find("ResNet50", gpus, None).unwrap().gpus;
        assert_eq!([of(1), of(2), of(3), of(4), of(16)], [1, 2, 2, 4, 4]);
        assert!(table.find("llama", 1, None).is_none());
    }

    #[test]
    fn the_table_follows_the_cluster() {
        let of = |cpus: u32| {
            let mut cluster = ClusterSpec::uniform(2, 8);
            cluster.nodes.values_mut().for_each(|n| n.cpu_milli = cpus * 1000);
            SensitivityTable::of_cluster(&cluster).map(|t| t.name)
        };
        assert_eq!(of(24).as_deref(), Some("synergy-3"));
        assert_eq!(of(48).as_deref(), Some("synergy-6"));
        assert_eq!(of(28), None);
    }
}
