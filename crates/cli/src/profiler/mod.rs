//! Measures how fast a real command iterates on a number of CPUs.
//!
//! The command runs bound to as many CPUs as it is given and tells its progress in lines, or in a file. Once the time
//! is over it is ended, with everything it started.

mod count;
mod machine;
mod tree;

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use dovetail_model::CpuSet;
use dovetail_workload::profiling::Measured;

pub use count::{Counting, Said, Source};
pub use machine::{Machine, memory_gbps};

/// How a command is measured.
#[derive(Debug, Clone)]
pub struct Trial<'a> {
    /// The program and its arguments.
    pub command: &'a [String],
    /// How its progress is told.
    pub counting: &'a Counting,
    /// How long it is watched, from its first progress on.
    pub watch: Duration,
    /// How long its first progress may take.
    pub patience: Duration,
}

/// What one run of the command showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Its rate.
    pub measured: Measured,
    /// The most memory its processes had at the end, in GB.
    pub memory_gb: f64,
    /// It ended by itself before the time was over.
    pub ended_early: bool,
}

impl Trial<'_> {
    /// Runs the command bound to these CPUs.
    ///
    /// # Errors
    /// When it cannot be started, fails, or tells no progress.
    pub fn run(&self, cpus: &CpuSet) -> anyhow::Result<Seen> {
        let mut child = self.start(cpus)?;
        let said = listen(&mut child);
        let watched = self.watch_it(&mut child, &said);
        let memory_gb = tree::memory_gb(child.id());
        tree::end(&mut child);
        let (moments, ended_early, last_words) = watched?;
        let what = || {
            let words = if last_words.is_empty() {
                String::new()
            } else {
                format!("; its last words: {}", last_words.join(" | "))
            };
            format!(
                "{} told of its progress {} times, which is too few to measure: {}{words}",
                self.command[0],
                moments.len(),
                self.counting.expected()
            )
        };
        let measured = Measured::of(&moments).ok_or_else(|| anyhow!(what()))?;
        Ok(Seen {
            measured,
            memory_gb,
            ended_early,
        })
    }

    /// Starts it from a thread that is bound to the CPUs, as what a thread starts is bound like itself.
    fn start(&self, cpus: &CpuSet) -> anyhow::Result<Child> {
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .env("DOVETAIL_CPUS", cpus.count().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.counting.reset()?;
        let bound = std::thread::scope(|scope| {
            let start = || -> anyhow::Result<Child> {
                machine::bind(cpus)?;
                command
                    .spawn()
                    .with_context(|| format!("cannot start {}", self.command[0]))
            };
            scope.spawn(start).join()
        });
        bound.map_err(|_| anyhow!("the thread that starts the command broke down"))?
    }

    /// Moments with the iterations done by then, whether it ended early, and its last words.
    fn watch_it(&self, child: &mut Child, said: &Receiver<Said>) -> anyhow::Result<Watched> {
        let start = Instant::now();
        let mut counter = self.counting.counter(start);
        let mut words: Vec<String> = Vec::new();
        let mut exited = None;
        loop {
            let now = Instant::now();
            let first = counter
                .moments()
                .first()
                .map(|m| start + Duration::from_secs_f64(m.0));
            let end = first.map_or(start + self.patience, |first| first + self.watch);
            if now >= end {
                break;
            }
            match said.recv_timeout((end - now).min(Duration::from_millis(20))) {
                Ok(line) => {
                    if line.source == Source::Err {
                        words.push(line.text.clone());
                        words.drain(..words.len().saturating_sub(3));
                    }
                    counter.hear(&line)?;
                }
                Err(gone) => {
                    counter.look()?;
                    exited = child.try_wait()?;
                    if exited.is_some() {
                        break;
                    }
                    if gone == RecvTimeoutError::Disconnected {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
            }
        }
        if let Some(status) = exited.filter(|status| !status.success()) {
            let words = words.join(" | ");
            return Err(anyhow!("{} failed with {status}: {words}", self.command[0]));
        }
        Ok((counter.into_moments(), exited.is_some(), words))
    }
}

type Watched = (Vec<(f64, f64)>, bool, Vec<String>);

/// Passes on what the command says, line by line, with the moment it was said.
fn listen(child: &mut Child) -> Receiver<Said> {
    let (send, receive) = channel();
    if let Some(out) = child.stdout.take() {
        count::pass_on(out, Source::Out, send.clone());
    }
    if let Some(err) = child.stderr.take() {
        count::pass_on(err, Source::Err, send);
    }
    receive
}
