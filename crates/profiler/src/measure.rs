//! Measures a command at several numbers of CPUs.

use std::time::Duration;

use dovetail_console as console;
use dovetail_workload::profiling::CpuWalk;

use crate::{IterationSource, Machine, Observation, Options, ProfilerError, Trial};

/// Rates at several numbers of CPUs.
pub(crate) struct Measurements {
    /// Observations by number of CPUs, from the largest downwards.
    pub(crate) points: Vec<(u32, Observation)>,
    /// Why no more points were measured.
    pub(crate) ended: String,
}

/// Measures one point after the other. The first point is run twice, because the first run warms up caches.
pub(crate) fn measure(
    options: &Options,
    iterations: &IterationSource,
    machine: &Machine,
) -> Result<Measurements, ProfilerError> {
    let trial = Trial {
        command: &options.command,
        iterations,
        duration: Duration::from_secs_f64(options.seconds),
        patience: Duration::from_secs_f64(options.patience),
    };
    let mut requested = options.cpus.clone();
    requested.sort_unstable_by(|a, b| b.cmp(a));
    requested.dedup();
    let mut walk = CpuWalk::new(machine.cpus(), options.gpus);
    let mut points: Vec<(u32, Observation)> = Vec::new();
    let bar = console::progress_bar(0, "measuring", options.quiet);
    loop {
        let next = match requested.is_empty() {
            true => walk.next(),
            false => requested.get(points.len()).copied(),
        };
        let Some(cpus) = next else { break };
        let chosen = machine
            .choose(cpus)
            .ok_or_else(|| ProfilerError::CpusOutOfRange {
                found: cpus,
                available: machine.cpus(),
            })?;
        if points.is_empty() {
            bar.set_message(format!("warming up on {cpus} CPUs"));
            trial.run(&chosen)?;
        }
        bar.set_message(format!("measuring on {cpus} CPUs"));
        let observation = trial.run(&chosen)?;
        walk.measured(cpus, observation.measured.rate);
        points.push((cpus, observation));
        bar.set_position(points.len() as u64);
    }
    bar.finish_and_clear();
    let ended = match requested.is_empty() {
        true => format!("measured {} points: {}", points.len(), walk.ended),
        false => format!("measured {} points, as requested", points.len()),
    };
    points.sort_by_key(|(cpus, _)| std::cmp::Reverse(*cpus));
    Ok(Measurements { points, ended })
}
