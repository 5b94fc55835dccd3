//! Checked options of a measurement.

use std::path::Path;
use std::sync::Arc;

use dovetail_model::Share;
use dovetail_report::format::significant;
use dovetail_workload::profiling::{Curve, DataSet};
use dovetail_workload::sensitivity::{SensitivityProfile, SensitivityTable};

use crate::error::LARGEST_AMOUNT;
use crate::measure::Measurements;
use crate::result::ProfileResult;
use crate::{IterationSource, Machine, Options, ProfilerError, memory_gbps};

/// Memory of a command if it could not be measured, in GB.
const LEAST_MEMORY_GB: f64 = 0.01;

/// The validated options of a measurement.
pub(crate) struct Plan {
    iterations: IterationSource,
    model: String,
    /// CPUs and memory per GPU at which the speed is 1.
    share: Share,
    data: Option<DataSet>,
    /// Cached shares of the data set, from 0 to 1.
    cached: Vec<f64>,
    notes: Vec<String>,
}

impl Plan {
    /// Checks the options, and measures memory bandwidth if it is needed.
    pub(crate) fn new(options: &Options, machine: &Machine) -> Result<Self, ProfilerError> {
        positive("--seconds", options.seconds)?;
        positive("--patience", options.patience)?;
        positive("--gpus", options.gpus.into())?;
        let available = machine.cpus();
        if let Some(found) = options.cpus.iter().find(|c| !(1..=available).contains(*c)) {
            return Err(ProfilerError::CpusOutOfRange {
                found: *found,
                available,
            });
        }
        let mut notes = Vec::new();
        let plan = Self {
            iterations: iteration_source(options)?,
            model: options
                .model
                .clone()
                .unwrap_or_else(|| base_name(&options.command[0])),
            data: data_set(options, &mut notes)?,
            cached: cached_shares(options)?,
            share: share(options, machine)?,
            notes,
        };
        // Checked before anything is measured.
        plan.existing_table(options)?;
        Ok(plan)
    }

    pub(crate) fn iterations(&self) -> &IterationSource {
        &self.iterations
    }

    /// Reads the table that the result is added to, if it exists.
    fn existing_table(&self, options: &Options) -> Result<Option<SensitivityTable>, ProfilerError> {
        let Some(path) = options.out.as_ref().filter(|path| path.exists()) else {
            return Ok(None);
        };
        let table = SensitivityTable::read(path)?;
        if table.share != self.share {
            return Err(ProfilerError::OtherShare {
                path: path.clone(),
                theirs: share_text(table.share),
                ours: share_text(self.share),
            });
        }
        Ok(Some(table))
    }

    /// Adds a profile to the existing table, or to a new one.
    pub(crate) fn table_with(
        &self,
        options: &Options,
        profile: SensitivityProfile,
    ) -> Result<SensitivityTable, ProfilerError> {
        let name = options.out.as_deref().and_then(Path::file_stem);
        let mut table = self.existing_table(options)?.unwrap_or_else(|| SensitivityTable {
            name: name.map_or_else(|| "measured".to_owned(), |n| n.to_string_lossy().into_owned()),
            share: self.share,
            rows: Vec::new(),
        });
        table
            .rows
            .retain(|row| row.model != profile.model || row.gpus != profile.gpus);
        table.rows.push(profile);
        Ok(table)
    }

    /// Computes the profile from the measured points.
    pub(crate) fn result(
        &self,
        options: &Options,
        measurements: Measurements,
    ) -> Result<ProfileResult, ProfilerError> {
        let Measurements { points, ended } = measurements;
        let rates: Vec<(u32, f64)> = points
            .iter()
            .map(|(cpus, observation)| (*cpus, observation.measured.rate))
            .collect();
        let top_rate = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let memory_gb = points
            .iter()
            .map(|(_, observation)| observation.memory_gb)
            .fold(LEAST_MEMORY_GB, f64::max);
        let curve = Curve {
            gpus: options.gpus,
            rates,
            working_gb: memory_gb,
            data: self.data,
            cached: self.cached.clone(),
        };
        let full_rate = top_rate * curve.sensitivity(top_rate)?.rate(self.share).factor();
        let sensitivity = curve.sensitivity(full_rate)?;
        let mut notes = self.notes.clone();
        notes.push(ended);
        let early = points
            .iter()
            .filter(|(_, observation)| observation.ended_early)
            .count();
        if early > 0 {
            notes.push(format!(
                "the command ended before the measurement did in {early} of {} runs",
                points.len()
            ));
        }
        let profile = SensitivityProfile {
            model: self.model.clone(),
            gpus: options.gpus,
            gpu_type: None,
            iteration_s: Some(1.0 / full_rate),
            stated: None,
            sensitivity: Arc::new(sensitivity),
        };
        Ok(ProfileResult::new(profile, points, curve, full_rate, notes))
    }
}

fn positive(flag: &'static str, value: f64) -> Result<f64, ProfilerError> {
    if value > 0.0 && value < LARGEST_AMOUNT {
        Ok(value)
    } else {
        Err(ProfilerError::AmountOutOfRange { flag, value })
    }
}

fn iteration_source(options: &Options) -> Result<IterationSource, ProfilerError> {
    match (&options.pattern, &options.progress) {
        (Some(pattern), _) => regex_lite::Regex::new(pattern)
            .map(IterationSource::Pattern)
            .map_err(|source| ProfilerError::InvalidPattern {
                pattern: pattern.clone(),
                source,
            }),
        (None, Some(path)) => Ok(IterationSource::File(path.clone())),
        (None, None) => Ok(IterationSource::Lines),
    }
}

fn data_set(options: &Options, notes: &mut Vec<String>) -> Result<Option<DataSet>, ProfilerError> {
    let (Some(gb), Some(iterations)) = (options.dataset_gb, options.epoch_iterations) else {
        return Ok(None);
    };
    let memory_gbps = match options.mem_gbps {
        Some(given) => positive("--mem-gbps", given)?,
        None => {
            let measured = memory_gbps();
            notes.push(format!(
                "memory bandwidth: {measured:.1} GB/s (measured with one thread)"
            ));
            measured
        }
    };
    notes.push(format!(
        "disk bandwidth: {} MB/s (--disk-mbps)",
        significant(options.disk_mbps)
    ));
    Ok(Some(DataSet {
        gb: positive("--dataset-gb", gb)?,
        epoch_iterations: positive("--epoch-iterations", iterations)?,
        disk_mbps: positive("--disk-mbps", options.disk_mbps)?,
        memory_gbps,
    }))
}

fn cached_shares(options: &Options) -> Result<Vec<f64>, ProfilerError> {
    let mut shares: Vec<f64> = options.cache.iter().map(|percent| percent / 100.0).collect();
    if shares.is_empty() || shares.iter().any(|share| !(0.0..=1.0).contains(share)) {
        return Err(ProfilerError::InvalidCacheShare);
    }
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    Ok(shares)
}

fn share(options: &Options, machine: &Machine) -> Result<Share, ProfilerError> {
    let gpus = f64::from(options.gpus);
    let most_cpus = options.cpus.iter().copied().max().unwrap_or(machine.cpus());
    let cpus = positive(
        "--share-cpus",
        options.share_cpus.unwrap_or(f64::from(most_cpus) / gpus),
    )?;
    let gb = positive("--share-gb", options.share_gb.unwrap_or(machine.memory_gb / gpus))?;
    Ok(Share::new(
        (cpus * 1000.0).round() as u32,
        (gb * 1024.0).round() as u64,
    ))
}

fn share_text(share: Share) -> String {
    let cpus = f64::from(share.cpu_milli) / 1000.0;
    format!(
        "{cpus} CPU{} and {:.1} GB",
        if share.cpu_milli == 1000 { "" } else { "s" },
        share.memory_mib as f64 / 1024.0
    )
}

fn base_name(command: &str) -> String {
    let name = Path::new(command).file_stem();
    name.map_or_else(|| command.to_owned(), |n| n.to_string_lossy().into_owned())
}
