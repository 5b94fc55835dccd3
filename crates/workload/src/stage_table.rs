//! Measured stages of models, by the number of GPUs they run on.
//!
//! The built-in table is Muri's (SIGCOMM'22, V100 GPUs), in `stages.csv` next to this file. Users provide
//! their own with the same columns: `model,gpus,iteration_ms,data_ms,gpu_ms,network_ms`, or `storage_ms,cpu_ms` instead of
//! `data_ms` if the two were measured separately; `batch_size` is optional. A trace with stage columns also works.

use std::collections::BTreeMap;
use std::path::Path;

use dovetail_model::Stages;
use dovetail_model::suggest::nearest;

use crate::error::TraceError;
use crate::job::Workload;
use crate::profiles::{Profiles, plain_name};
use crate::read::{Cell, Table, open, read};
use crate::stages::StageColumns;

/// The built-in table.
const BUILTIN: &str = include_str!("stages.csv");

/// The stages of one model on one number of GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageProfile {
    /// The model.
    pub model: String,
    /// Number of GPUs.
    pub gpus: u32,
    /// Samples in a batch, if known.
    pub batch_size: Option<u64>,
    /// Times of an iteration.
    pub stages: Stages,
}

/// Stages of several models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageTable {
    /// Name of the source, for messages.
    pub source: String,
    /// One row for each model and number of GPUs.
    pub rows: Vec<StageProfile>,
}

/// A model or number of GPUs that a table does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StageLookupError {
    /// The table does not have the model.
    #[error("unknown model `{model}` in {source_name}{}; it has {}", .near.iter().map(|n| format!(" (did you mean {n}?)")).collect::<String>(), .known.join(", "))]
    Model {
        /// The requested model.
        model: String,
        /// The table.
        source_name: String,
        /// Similar names, joined with "or".
        near: Option<String>,
        /// All models.
        known: Vec<String>,
    },
    /// The table has the model, but not on this many GPUs.
    #[error("no stages of `{model}` on {gpus} GPUs in {source_name}; it was measured on {}", list(.known))]
    Gpus {
        /// The model.
        model: String,
        /// The requested number of GPUs.
        gpus: u32,
        /// The table.
        source_name: String,
        /// Numbers of GPUs it was measured on.
        known: Vec<u32>,
    },
}

fn list(numbers: &[u32]) -> String {
    let texts: Vec<String> = numbers.iter().map(u32::to_string).collect();
    texts.join(", ")
}

impl Default for StageTable {
    /// Returns the built-in table.
    fn default() -> Self {
        let mut table = Self::parse(BUILTIN.as_bytes(), "stages.csv").expect("the built-in table is valid");
        table.source = "the built-in table".to_owned();
        table
    }
}

impl StageTable {
    /// Reads a table from a CSV file, which may be compressed (`.gz`, `.zst`).
    ///
    /// # Errors
    /// Names the file, the line and the column that is wrong, and the accepted values.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let name = path.as_ref().display().to_string();
        let file = std::fs::File::open(path).map_err(|reason| TraceError::Open {
            file: name.clone(),
            reason,
        })?;
        Self::parse(file, &name)
    }

    /// Returns the stages in a trace: for each model and number of GPUs those that most of its jobs have.
    ///
    /// # Errors
    /// If the trace cannot be read or has no stages.
    pub fn of_trace(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let name = path.as_ref().display().to_string();
        let workload = read(path, None)?;
        let table = Self::of_workload(&workload);
        if table.rows.is_empty() {
            return Err(TraceError::Unsupported {
                file: name,
                problem:
                    "no job has a model, iterations and stages; expected a trace with the columns of Muri's, \
                       resource_time_0, resource_time_1 and resource_time_2 among them"
                        .to_owned(),
            });
        }
        Ok(table)
    }

    /// Returns the stages in a workload; no rows if it has none.
    pub fn of_workload(workload: &Workload) -> Self {
        let columns = StageColumns::find(workload);
        let mut seen: BTreeMap<(&str, u32), BTreeMap<Stages, usize>> = BTreeMap::new();
        for job in &workload.jobs {
            let stages = columns.as_ref().and_then(|c| c.stages(job));
            if let (Some(model), Some(stages)) = (job.model, stages) {
                let counts = seen.entry((&workload.names.models[model], job.gpus)).or_default();
                *counts.entry(stages).or_default() += 1;
            }
        }
        let most = |counts: BTreeMap<Stages, usize>| counts.into_iter().max_by_key(|(_, n)| *n);
        let rows = seen.into_iter().filter_map(|((model, gpus), counts)| {
            Some(StageProfile {
                model: model.to_owned(),
                gpus,
                batch_size: None,
                stages: most(counts)?.0,
            })
        });
        Self {
            source: workload.source.clone(),
            rows: rows.collect(),
        }
    }

    fn parse(reader: impl std::io::Read, name: &str) -> Result<Self, TraceError> {
        let (input, _) = open(reader, name)?;
        let mut table = Table::with_header(input)?;
        const KIND: &str = "table of stages";
        let of = |table: &Table<'_>, names: [&str; 2]| names.into_iter().find_map(|n| table.column(n));
        let gpus = match of(&table, ["gpus", "num_gpu"]) {
            Some(column) => column,
            None => table.require(KIND, ["gpus"])?[0],
        };
        let iteration = match of(&table, ["iteration_ms", "iteration_time_ms"]) {
            Some(column) => column,
            None => table.require(KIND, ["iteration_ms"])?[0],
        };
        let batch = table.column("batch_size");
        let [model] = table.require(KIND, ["model"])?;
        let four = table.column("storage_ms").is_some();
        let columns: Vec<usize> = if four {
            table
                .require(KIND, ["storage_ms", "cpu_ms", "gpu_ms", "network_ms"])?
                .to_vec()
        } else {
            table.require(KIND, ["data_ms", "gpu_ms", "network_ms"])?.to_vec()
        };
        let mut rows = Vec::new();
        while let Some(row) = table.next_row()? {
            let mut times_us = [0; 4];
            for (time, column) in times_us.iter_mut().zip(&columns) {
                *time = micros(&row.cell(*column))?;
            }
            let iteration_us = micros(&row.cell(iteration))?;
            if iteration_us == 0 {
                return Err(row.cell(iteration).bad("a time above 0, in milliseconds"));
            }
            let gpus = row.cell(gpus);
            rows.push(StageProfile {
                model: row.cell(model).text.trim().to_owned(),
                gpus: gpus.gpus()?.ok_or_else(|| gpus.bad("at least one GPU"))?,
                batch_size: row.optional(batch).map(|c| c.whole(1, 1 << 30)).transpose()?,
                stages: Stages {
                    times_us,
                    four,
                    iteration_us,
                },
            });
        }
        Ok(Self {
            source: name.to_owned(),
            rows,
        })
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

    /// Returns the row of a model, by any of its names, on this many GPUs.
    ///
    /// # Errors
    /// Names the model or number of GPUs that is missing, and the available ones.
    pub fn find(&self, model: &str, gpus: u32) -> Result<&StageProfile, StageLookupError> {
        let names = Profiles::default();
        let canonical = |name: &str| {
            let known = names.get(name).map(|p| plain_name(&p.name));
            known.unwrap_or_else(|| plain_name(name))
        };
        let of_model: Vec<&StageProfile> = self
            .rows
            .iter()
            .filter(|r| canonical(&r.model) == canonical(model))
            .collect();
        let Some(first) = of_model.first() else {
            let near = nearest(model, self.models()).join(" or ");
            return Err(StageLookupError::Model {
                model: model.to_owned(),
                source_name: self.source.clone(),
                near: (!near.is_empty()).then_some(near),
                known: self.models().into_iter().map(str::to_owned).collect(),
            });
        };
        let exact = of_model.iter().find(|r| r.gpus == gpus).copied();
        exact.ok_or_else(|| StageLookupError::Gpus {
            model: first.model.clone(),
            gpus,
            source_name: self.source.clone(),
            known: of_model.iter().map(|r| r.gpus).collect(),
        })
    }
}

/// Parses milliseconds as microseconds.
fn micros(cell: &Cell<'_>) -> Result<u32, TraceError> {
    let most = i128::from(u32::MAX);
    let micros = cell.scaled(3, most, "a time of at least 0 and at most 4,294,967 milliseconds")?;
    Ok(micros as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_eight_models_on_six_widths() {
        let table = StageTable::default();
        assert_eq!((table.models().len(), table.rows.len()), (8, 48));
        let bert = table.find("BERT", 8).unwrap();
        assert_eq!(bert.stages, Stages::three(500, 167_000, 59_000, 192_000));
        assert_eq!(table.find("shufflenet", 1).unwrap().model, "shufflenet_v2_x1_0");
    }

    #[test]
    fn errors_name_the_available_models_and_widths() {
        let table = StageTable::default();
        let wrong = |model, gpus| table.find(model, gpus).unwrap_err().to_string();
        assert_eq!(
            wrong("resnet81", 1),
            "unknown model `resnet81` in the built-in table (did you mean resnet18?); it has vgg16, vgg19, resnet18, \
             shufflenet_v2_x1_0, bert, gpt2, a2c, dqn"
        );
        assert_eq!(
            wrong("gpt2", 64),
            "no stages of `gpt2` on 64 GPUs in the built-in table; it was measured on 1, 2, 4, 8, 16, 32"
        );
    }

    #[test]
    fn user_tables_may_separate_storage_and_cpu_and_errors_name_the_field() {
        let parse = |text: &str| StageTable::parse(text.as_bytes(), "mine.csv");
        let mine =
            parse("model,gpus,iteration_ms,storage_ms,cpu_ms,gpu_ms,network_ms\nllama,8,10,1,2,3,4.5\n")
                .unwrap();
        let stages = mine.find("llama", 8).unwrap().stages;
        assert_eq!((stages.times_us, stages.four), ([1000, 2000, 3000, 4500], true));
        let wrong = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(
            wrong("model,gpus,iteration_ms,data_ms,gpu_ms,network_ms\nx,8,10,-1,2,3\n"),
            "mine.csv:2: field data_ms: found \"-1\", expected a time of at least 0 and at most 4,294,967 milliseconds"
        );
        assert_eq!(
            wrong("model,gpus,iteration_ms,data_ms,gpu_ms,network_ms\nx,0,10,1,2,3\n"),
            "mine.csv:2: field gpus: found \"0\", expected at least one GPU"
        );
        assert!(wrong("model,gpus\n").contains("iteration_ms"));
    }
}
