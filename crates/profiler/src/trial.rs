//! One run of the command, bound to a set of CPUs.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use dovetail_model::CpuSet;
use dovetail_workload::profiling::Measurement;

use crate::iterations::{IterationSource, OutputLine, Stream, send_lines};
use crate::{ProfilerError, machine, process_tree};

/// Interval at which the progress file and the state of the command are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Lines of standard error that are kept for messages.
const KEPT_LINES: usize = 3;

/// How a command is measured.
#[derive(Debug, Clone)]
pub struct Trial<'a> {
    /// The program and its arguments.
    pub command: &'a [String],
    /// Where it reports its iterations.
    pub iterations: &'a IterationSource,
    /// How long it is measured, from its first iteration on.
    pub duration: Duration,
    /// How long its first iteration may take.
    pub patience: Duration,
}

/// The result of one run of the command.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Its rate.
    pub measured: Measurement,
    /// Sum of the peak memory of its processes, in GB.
    pub memory_gb: f64,
    /// Whether it ended before the measurement did.
    pub ended_early: bool,
}

/// The output of a command until the measurement ended.
struct Progress {
    /// Seconds since the start, and the number of iterations done by then.
    samples: Vec<(f64, f64)>,
    ended_early: bool,
    /// Its last lines on standard error.
    last_lines: Vec<String>,
}

impl Trial<'_> {
    /// Runs the command bound to these CPUs, and ends it with everything it started.
    ///
    /// # Errors
    /// Fails when the command cannot be started, fails, or reports too few iterations.
    pub fn run(&self, cpus: &CpuSet) -> Result<Observation, ProfilerError> {
        let mut child = self.start(cpus)?;
        let lines = output_lines(&mut child);
        let watched = self.watch(&mut child, &lines);
        let memory_gb = process_tree::peak_memory_gb(child.id());
        process_tree::terminate(&mut child);
        let progress = watched?;
        let measured = Measurement::of(&progress.samples).ok_or_else(|| ProfilerError::TooFewIterations {
            program: self.program(),
            reports: progress.samples.len(),
            expected: self.iterations.expected(),
            output: match progress.last_lines.as_slice() {
                [] => String::new(),
                lines => format!("; last output: {}", lines.join(" | ")),
            },
        })?;
        Ok(Observation {
            measured,
            memory_gb,
            ended_early: progress.ended_early,
        })
    }

    fn program(&self) -> String {
        self.command[0].clone()
    }

    /// Starts the command from a thread that is bound to the CPUs, because a process inherits the affinity of the
    /// thread that starts it.
    fn start(&self, cpus: &CpuSet) -> Result<Child, ProfilerError> {
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .env("DOVETAIL_CPUS", cpus.count().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.iterations.reset()?;
        std::thread::scope(|scope| {
            let start = || {
                machine::bind(cpus)?;
                command.spawn().map_err(|source| ProfilerError::Start {
                    program: self.program(),
                    source,
                })
            };
            scope
                .spawn(start)
                .join()
                .expect("starting a process does not panic")
        })
    }

    /// Counts iterations until the measurement is complete or the command ends.
    fn watch(&self, child: &mut Child, lines: &Receiver<OutputLine>) -> Result<Progress, ProfilerError> {
        let start = Instant::now();
        let mut counter = self.iterations.counter(start);
        let mut last_lines: Vec<String> = Vec::new();
        let mut exited: Option<ExitStatus> = None;
        while exited.is_none() {
            let now = Instant::now();
            let first = counter
                .samples()
                .first()
                .map(|(seconds, _)| start + Duration::from_secs_f64(*seconds));
            let end = first.map_or(start + self.patience, |first| first + self.duration);
            if now >= end {
                break;
            }
            match lines.recv_timeout((end - now).min(POLL_INTERVAL)) {
                Ok(line) => {
                    if line.stream == Stream::Err {
                        last_lines.push(line.text.clone());
                        last_lines.drain(..last_lines.len().saturating_sub(KEPT_LINES));
                    }
                    counter.count_line(&line)?;
                }
                Err(error) => {
                    counter.poll_file();
                    exited = child.try_wait().map_err(|source| ProfilerError::Wait {
                        program: self.program(),
                        source,
                    })?;
                    if exited.is_none() && error == RecvTimeoutError::Disconnected {
                        std::thread::sleep(POLL_INTERVAL);
                    }
                }
            }
        }
        if let Some(status) = exited.filter(|status| !status.success()) {
            return Err(ProfilerError::CommandFailed {
                program: self.program(),
                status,
                output: last_lines.join(" | "),
            });
        }
        Ok(Progress {
            samples: counter.into_samples(),
            ended_early: exited.is_some(),
            last_lines,
        })
    }
}

/// Returns the lines that a command prints, as they are printed.
fn output_lines(child: &mut Child) -> Receiver<OutputLine> {
    let (sender, receiver) = channel();
    if let Some(out) = child.stdout.take() {
        send_lines(out, Stream::Out, sender.clone());
    }
    if let Some(err) = child.stderr.take() {
        send_lines(err, Stream::Err, sender);
    }
    receiver
}
