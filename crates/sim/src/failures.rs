//! Node failures: from a list, or drawn from a seeded process.

use dovetail_model::{NodeId, Time};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use thiserror::Error;

/// One outage of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outage {
    /// Start.
    pub down: Time,
    /// The node.
    pub node: NodeId,
    /// End; `None` if the node does not return.
    pub up: Option<Time>,
}

/// Outages of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failures {
    /// Listed outages.
    pub outages: Vec<Outage>,
    /// Mean time between failures of one node; `None` for no random failures.
    pub mtbf: Option<Time>,
    /// Duration of a random failure.
    pub repair: Time,
}

/// An invalid line of a failure file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{file}:{line}: field {field}: found `{found}`, expected {expected}")]
pub struct FailureFileError {
    /// The file.
    pub file: String,
    /// Line number, from one.
    pub line: usize,
    /// The column.
    pub field: &'static str,
    /// The value found.
    pub found: String,
    /// The accepted values.
    pub expected: String,
}

impl Failures {
    /// Parses lines of `node,down_s,up_s`. A header is allowed, and an empty `up_s` if the node does not return. `node` is a
    /// name or a number.
    ///
    /// # Errors
    /// Names the file, line, field and accepted values.
    pub fn parse(text: &str, file: &str, node_names: &[String]) -> Result<Vec<Outage>, FailureFileError> {
        let mut outages = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') || (i == 0 && line.split(',').next() == Some("node"))
            {
                continue;
            }
            let bad = |field, found: &str, expected: String| FailureFileError {
                file: file.to_owned(),
                line: i + 1,
                field,
                found: found.to_owned(),
                expected,
            };
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            if !(2..=3).contains(&cells.len()) {
                return Err(bad("line", line, "node,down_s,up_s".to_owned()));
            }
            let by_number = || cells[0].parse::<usize>().ok().filter(|n| *n < node_names.len());
            let node = node_names
                .iter()
                .position(|n| n == cells[0])
                .or_else(by_number)
                .ok_or_else(|| {
                    bad(
                        "node",
                        cells[0],
                        format!("a node's name, or a number below {}", node_names.len()),
                    )
                })?;
            let seconds = |field, text: &str| match text.parse::<f64>() {
                Ok(s) if s.is_finite() && (0.0..=1e12).contains(&s) => Ok(Time::from_secs_f64(s)),
                _ => Err(bad(
                    field,
                    text,
                    "seconds from the start of the run, not negative".to_owned(),
                )),
            };
            let down = seconds("down_s", cells[1])?;
            let up = match cells.get(2).filter(|c| !c.is_empty()) {
                None => None,
                Some(text) => Some(seconds("up_s", text)?),
            };
            if up.is_some_and(|up| up <= down) {
                return Err(bad(
                    "up_s",
                    cells[2],
                    format!("a time after down_s ({})", cells[1]),
                ));
            }
            outages.push(Outage {
                down,
                node: NodeId(node as u32),
                up,
            });
        }
        outages.sort_unstable();
        Ok(outages)
    }
}

/// Draws random outages, one node after the other in time.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    generator: ChaCha8Rng,
    mtbf: Time,
    repair: Time,
}

impl Process {
    pub(crate) fn new(failures: &Failures, seed: u64) -> Option<Self> {
        let mtbf = failures.mtbf.filter(|m| *m > Time::ZERO)?;
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(7);
        Some(Self {
            generator,
            mtbf,
            repair: failures.repair,
        })
    }

    /// Draws the next outage of a node that is up at `now`.
    pub(crate) fn next(&mut self, node: NodeId, now: Time) -> Outage {
        let uniform = (self.generator.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let life = -libm::log(1.0 - uniform) * self.mtbf.0 as f64;
        let down = now.saturating_add(Time(life.min(1e17) as i64 + 1));
        Outage {
            down,
            node,
            up: Some(down.saturating_add(self.repair.max(Time(1)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> String {
        let names: Vec<String> = (0..2).map(|i| format!("node-{i}")).collect();
        match Failures::parse(text, "f.csv", &names) {
            Ok(outages) => format!("{} outages, first down at {:?}", outages.len(), outages[0].down),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn files_are_parsed_and_errors_name_the_field() {
        assert_eq!(
            check("node,down_s,up_s\nnode-1,20,30\n0,10,\n"),
            "2 outages, first down at Time(10000000)"
        );
        assert_eq!(
            check("node-9,1,2"),
            "f.csv:1: field node: found `node-9`, expected a node's name, or a number below 2"
        );
        assert_eq!(
            check("0,5,3"),
            "f.csv:1: field up_s: found `3`, expected a time after down_s (5)"
        );
        assert_eq!(
            check("0,soon"),
            "f.csv:1: field down_s: found `soon`, expected seconds from the start of the run, not negative"
        );
        assert_eq!(
            check("0"),
            "f.csv:1: field line: found `0`, expected node,down_s,up_s"
        );
    }
}
