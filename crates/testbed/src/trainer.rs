//! What the jobs run: the PyTorch workloads, or a synthetic trainer.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::plan::SelectedJob;
use crate::{LiveOptions, TestbedError};

/// The synthetic trainer, passed to Python as an argument, so that nodes need no copy of it.
const SYNTHETIC: &str = include_str!("trainer.py");
/// Stage times of the synthetic trainer relative to those of the trace.
const STAGE_SCALE: f64 = 0.1;
/// The workloads below the root of the project.
const WORKLOADS: &str = "examples/workloads/train.py";
/// Time in which a synthetic job is measured, in seconds.
const CALIBRATION_S: f64 = 2.5;
/// Number of steps in which a job with PyTorch is measured.
const CALIBRATION_STEPS: u64 = 40;

/// What the jobs run.
#[derive(Debug, Clone)]
pub(crate) enum Trainer {
    /// Steps that wait for as long as the stages of the trace take, scaled.
    Synthetic {
        python: PathBuf,
        /// Prefix of the folder with the locks of the virtual GPUs.
        folder: String,
        /// Why PyTorch is not used.
        reason: String,
    },
    /// The tiny models of `examples/workloads`.
    PyTorch { python: PathBuf, script: PathBuf },
}

impl Trainer {
    /// Chooses the PyTorch workloads if they can run here, unless the synthetic trainer is asked for.
    pub(crate) fn choose(options: &LiveOptions, scratch: &Path) -> Result<Self, TestbedError> {
        if let Some(path) = options.trainer.as_ref().filter(|path| !path.is_file()) {
            return Err(TestbedError::MissingFile {
                flag: "trainer",
                path: path.clone(),
            });
        }
        let candidates: Vec<PathBuf> = match &options.python {
            Some(python) => vec![python.clone()],
            None => ["python3", "/usr/bin/python3"].map(PathBuf::from).into(),
        };
        let folder = match options.cluster {
            Some(_) => "/tmp/dovetail-testbed".to_owned(),
            None => scratch.join("devices").display().to_string(),
        };
        let python = candidates.iter().find(|python| runs(python, "").is_ok());
        let python = python.ok_or(TestbedError::NoPython)?;
        let synthetic = |reason: &str| {
            Ok(Self::Synthetic {
                python: python.clone(),
                folder: folder.clone(),
                reason: reason.to_owned(),
            })
        };
        if options.synthetic {
            return synthetic("as asked");
        }
        let Some(script) = options.trainer.clone().or_else(find_workloads) else {
            return synthetic(&format!("{WORKLOADS} is not here; name it with --trainer"));
        };
        let script = std::path::absolute(&script).unwrap_or(script);
        if let Some(python) = candidates.iter().find(|p| runs(p, "import torch").is_ok()) {
            return Ok(Self::PyTorch {
                python: python.clone(),
                script,
            });
        }
        let reason = runs(python, "import torch").err().unwrap_or_default();
        match options.trainer {
            Some(_) => Err(TestbedError::NoTorch {
                python: python.clone(),
                reason,
            }),
            None => synthetic("PyTorch is not installed"),
        }
    }

    /// Returns a description for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Synthetic { reason, .. } => format!(
                "synthetic ({reason}): steps wait for a tenth of the stages of the trace, the gpu stage on virtual GPUs that one \
                 process at a time can use"
            ),
            Self::PyTorch { script, .. } => {
                format!("{} with --size tiny, on CPUs", script.display())
            }
        }
    }

    /// Returns the command of a job with this number of steps.
    pub(crate) fn command(&self, job: &SelectedJob, steps: u64) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        match self {
            Self::Synthetic { python, folder, .. } => {
                let stages = stages_ms(job).map(|ms| format!("{ms:.3}"));
                let mut command = vec![text(python), "-c".to_owned(), SYNTHETIC.to_owned()];
                command.extend(stages);
                command.extend([steps.to_string(), folder.clone()]);
                command
            }
            Self::PyTorch { python, script } => {
                let mut command = vec![text(python), text(script)];
                let mut put = |flag: &str, value: String| command.extend([flag.to_owned(), value]);
                put("--model", job.kind.model.clone());
                put("--size", "tiny".to_owned());
                put("--steps", steps.to_string());
                if let Some(batch_size) = job.batch_size {
                    put("--batch-size", batch_size.to_string());
                }
                command
            }
        }
    }

    /// Returns the stages that are stated with a job: those of the trace, if the trainer has them.
    pub(crate) fn stated_stages(&self, job: &SelectedJob) -> Option<String> {
        let [data, gpu, net] = stages_ms(job);
        match self {
            Self::Synthetic { .. } => Some(format!("data={data:.3}ms,gpu={gpu:.3}ms,net={net:.3}ms")),
            Self::PyTorch { .. } => None,
        }
    }

    /// Returns the number of steps in which a job is measured.
    pub(crate) fn calibration_steps(&self, job: &SelectedJob) -> u64 {
        match self {
            Self::Synthetic { .. } => {
                let step_s = stages_ms(job).iter().sum::<f64>() / 1e3;
                ((CALIBRATION_S / step_s).ceil() as u64).clamp(10, 500)
            }
            Self::PyTorch { .. } => CALIBRATION_STEPS,
        }
    }
}

/// Returns the stages of the synthetic trainer, in milliseconds.
fn stages_ms(job: &SelectedJob) -> [f64; 3] {
    job.trace_stages_ms.map(|ms| ms * STAGE_SCALE)
}

/// Runs a line of Python; returns the last line of its errors if it fails.
fn runs(python: &Path, line: &str) -> Result<(), String> {
    let output = Command::new(python).args(["-c", line]).output();
    let output = output.map_err(|error| error.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(errors.lines().last().unwrap_or_default().to_owned()),
    }
}

/// Searches for the workloads in the current folder, and in the folders above it and above this program.
fn find_workloads() -> Option<PathBuf> {
    let starts = [std::env::current_dir().ok(), std::env::current_exe().ok()];
    let folders = starts.iter().flatten().flat_map(|start| start.ancestors());
    folders
        .map(|folder| folder.join(WORKLOADS))
        .find(|path| path.is_file())
}
