//! Scenario files: replayed with the configurations in a folder, and with explanations of pending pods.

use std::io;
use std::path::{Path, PathBuf};

use dovetail_cells::{Layout, ReconfiguredGroup};

use crate::answer::{Answer, UserError};
use crate::config::read_config;
use crate::explain::explanation_lines;
use crate::scenario::{Scenario, ScenarioError, ScenarioReport, Step};
use crate::scheduler::GroupScheduler;

/// A scenario file that cannot be read or replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file is not a scenario.
    #[error("{}: not a scenario: {source}; expected JSON with name, config and steps", file.display())]
    Syntax {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The scenario cannot be replayed.
    #[error("{}: {source}", file.display())]
    Scenario {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: ScenarioError,
    },
}

/// A scenario file that was read.
#[derive(Debug, Clone)]
pub struct ScenarioFile {
    path: PathBuf,
    /// The scenario.
    pub scenario: Scenario,
}

/// The result of replaying a scenario file.
#[derive(Debug, Clone)]
pub struct Replay {
    /// How the answers agree with those of HiveD.
    pub report: ScenarioReport,
    /// Why pods are pending, line by line.
    pub explanations: Vec<String>,
    /// The first step that does not agree, and in what.
    pub difference: Option<String>,
}

impl ScenarioFile {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// Names the file.
    pub fn read(file: &Path) -> Result<Self, ReplayError> {
        let path = file.to_owned();
        let bytes = std::fs::read(file).map_err(|source| ReplayError::Open {
            file: path.clone(),
            source,
        })?;
        match serde_json::from_slice(&bytes) {
            Ok(scenario) => Ok(Self { path, scenario }),
            Err(source) => Err(ReplayError::Syntax { file: path, source }),
        }
    }

    /// Replays the scenario with the configurations in a folder, by default `configs` beside the folder of the file.
    ///
    /// # Errors
    /// When a configuration cannot be used, or a step cannot be taken.
    pub fn replay(&self, configs: Option<&Path>) -> Result<Replay, ReplayError> {
        let folder = match configs {
            Some(folder) => folder.to_owned(),
            None => self.path.parent().unwrap_or(Path::new(".")).join("../configs"),
        };
        let mut explanations = Vec::new();
        let result = self.scenario.replay(
            &mut |name| Ok(read_config(&folder.join(name))?.1.layout),
            &mut |at, scheduler, step, answer| {
                explanations.extend(pending_lines(at, scheduler, step, answer))
            },
        );
        let report = result.map_err(|source| self.error(source))?;
        let mismatch = report.mismatch.as_ref();
        Ok(Replay {
            difference: mismatch.map(|(at, m)| self.describe_step(*at, &m.to_string())),
            report,
            explanations,
        })
    }

    /// Replays the scenario with one configuration, and returns what happens to its groups under another, with their
    /// names.
    ///
    /// # Errors
    /// When a step cannot be taken.
    pub fn reconfigure(
        &self,
        before: &Layout,
        after: &Layout,
    ) -> Result<Vec<(String, ReconfiguredGroup)>, ReplayError> {
        let mut last: Option<GroupScheduler> = None;
        let result = self
            .scenario
            .replay(&mut |_| Ok(before.clone()), &mut |_, scheduler, _, _| {
                last = Some(scheduler.clone())
            });
        result.map_err(|source| self.error(source))?;
        let groups = last.map(|mut scheduler| scheduler.reconfigure(after.clone()));
        Ok(groups.unwrap_or_default())
    }

    fn error(&self, source: ScenarioError) -> ReplayError {
        ReplayError::Scenario {
            file: self.path.clone(),
            source,
        }
    }

    fn describe_step(&self, at: usize, what: &str) -> String {
        let step = &self.scenario.steps[at];
        let subject = if step.pod.is_empty() {
            &step.node
        } else {
            &step.pod
        };
        format!(
            "{}, step {at} ({} {subject}): {what}",
            self.scenario.name, step.op
        )
    }
}

/// Returns why a pod is pending, as lines of text.
fn pending_lines(
    at: usize,
    scheduler: &GroupScheduler,
    step: &Step,
    answer: Option<&Result<Answer, UserError>>,
) -> Vec<String> {
    let Some(spec) = &step.spec else { return Vec::new() };
    match answer {
        Some(Ok(Answer::Wait { reason: None })) => {
            vec![format!(
                "step {at}: {} is pending: its group is being preempted",
                step.pod
            )]
        }
        Some(Ok(Answer::Wait { reason: Some(_) })) => {
            let Some(explanation) = scheduler.explain(&step.pod, spec, step.suggested_nodes.as_deref())
            else {
                return Vec::new();
            };
            let name = |key: u64| scheduler.name_of(key).to_owned();
            let lines = explanation_lines(&explanation, scheduler.cells(), &spec.virtual_cluster, &name);
            let head = format!("step {at}: {} is pending", step.pod);
            std::iter::once(head)
                .chain(lines.into_iter().map(|l| format!("  {l}")))
                .collect()
        }
        Some(Err(error)) => vec![format!("step {at}: {} is rejected: {error}", step.pod)],
        Some(Ok(Answer::Bind { .. } | Answer::Preempt { .. })) | None => Vec::new(),
    }
}
