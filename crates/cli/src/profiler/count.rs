//! What a command says of its progress.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Instant;

use anyhow::{Context, anyhow};
use regex_lite::Regex;

/// How progress is told.
#[derive(Debug, Clone)]
pub enum Counting {
    /// Each line of standard output is an iteration.
    Lines,
    /// Each line of either output that matches is one; with a group, the group is the number of iterations so far.
    Pattern(Regex),
    /// The last number in this file is the number of iterations so far.
    File(PathBuf),
}

impl Counting {
    /// What the command was expected to do.
    pub fn expected(&self) -> String {
        match self {
            Self::Lines => "expected a line on standard output for each iteration".to_owned(),
            Self::Pattern(regex) => format!("expected lines that match {:?}", regex.as_str()),
            Self::File(path) => format!("expected a number that grows in {}", path.display()),
        }
    }

    /// Forgets what an earlier run left behind.
    pub(super) fn reset(&self) -> anyhow::Result<()> {
        match self {
            Self::File(path) if path.exists() => {
                std::fs::write(path, "").with_context(|| format!("cannot empty {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn counter(&self, start: Instant) -> Counter<'_> {
        Counter {
            counting: self,
            start,
            moments: Vec::new(),
        }
    }
}

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A line a command wrote.
#[derive(Debug, Clone)]
pub struct Said {
    /// When it was read.
    pub at: Instant,
    /// Where.
    pub source: Source,
    /// The line.
    pub text: String,
}

/// Moments of progress so far.
pub(super) struct Counter<'a> {
    counting: &'a Counting,
    start: Instant,
    moments: Vec<(f64, f64)>,
}

impl Counter<'_> {
    pub(super) fn moments(&self) -> &[(f64, f64)] {
        &self.moments
    }

    pub(super) fn into_moments(self) -> Vec<(f64, f64)> {
        self.moments
    }

    /// Takes in a line.
    pub(super) fn hear(&mut self, said: &Said) -> anyhow::Result<()> {
        let done = match self.counting {
            Counting::Lines if said.source == Source::Out => None,
            Counting::Pattern(regex) => match regex.captures(&said.text) {
                None => return Ok(()),
                Some(found) => found.get(1).map(|group| number(group.as_str())).transpose()?,
            },
            _ => return Ok(()),
        };
        let one_more = self.moments.last().map_or(1.0, |m| m.1 + 1.0);
        self.note(said.at, done.unwrap_or(one_more));
        Ok(())
    }

    /// Looks into the file.
    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        let Counting::File(path) = self.counting else {
            return Ok(());
        };
        // Not there yet, or half written: there will be another look.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if let Some(done) = text.split_whitespace().last().and_then(|n| n.parse::<f64>().ok())
            && self.moments.last().is_none_or(|m| m.1 < done)
        {
            self.note(Instant::now(), done);
        }
        Ok(())
    }

    fn note(&mut self, at: Instant, done: f64) {
        let seconds = at.saturating_duration_since(self.start).as_secs_f64();
        self.moments.push((seconds, done));
    }
}

fn number(text: &str) -> anyhow::Result<f64> {
    let plain = text.replace(['_', ','], "");
    let number = plain.parse::<f64>().ok().filter(|n| n.is_finite());
    number.ok_or_else(|| anyhow!("the group of --pattern matched {text:?}, expected a number of iterations"))
}

/// Reads lines in a thread of their own until there are no more. A carriage return ends a line too, for progress bars.
pub(super) fn pass_on(from: impl Read + Send + 'static, source: Source, send: Sender<Said>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            let (read, ended) = match reader.fill_buf() {
                Ok([]) | Err(_) => return,
                Ok(bytes) => {
                    let end = bytes.iter().position(|b| *b == b'\r' || *b == b'\n');
                    let read = end.unwrap_or(bytes.len());
                    line.extend_from_slice(&bytes[..read]);
                    (end.map_or(read, |end| end + 1), end.is_some())
                }
            };
            reader.consume(read);
            if !ended || line.is_empty() {
                continue;
            }
            let said = Said {
                at: Instant::now(),
                source,
                text: String::from_utf8_lossy(&line).into_owned(),
            };
            if send.send(said).is_err() {
                return;
            }
            line.clear();
        }
    });
}
