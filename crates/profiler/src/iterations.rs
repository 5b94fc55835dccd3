//! How the iterations of a command are counted.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Instant;

use regex_lite::Regex;

use crate::ProfilerError;

/// Where a command reports its iterations.
#[derive(Debug, Clone)]
pub enum IterationSource {
    /// Each line of standard output is an iteration.
    Lines,
    /// Each matching line of standard output or error is an iteration; a capture group is the number of iterations
    /// so far.
    Pattern(Regex),
    /// The last number in this file is the number of iterations so far.
    File(PathBuf),
}

impl IterationSource {
    /// Describes what the command is expected to do.
    pub fn expected(&self) -> String {
        match self {
            Self::Lines => "expected a line on standard output for each iteration".to_owned(),
            Self::Pattern(regex) => format!("expected lines that match {:?}", regex.as_str()),
            Self::File(path) => format!("expected a growing number in {}", path.display()),
        }
    }

    /// Removes what an earlier run has left.
    pub(crate) fn reset(&self) -> Result<(), ProfilerError> {
        match self {
            Self::File(path) if path.exists() => {
                std::fs::write(path, "").map_err(|source| ProfilerError::ResetProgress {
                    path: path.clone(),
                    source,
                })
            }
            _ => Ok(()),
        }
    }

    /// Returns a counter without iterations. Times are relative to `start`.
    pub(crate) fn counter(&self, start: Instant) -> IterationCounter<'_> {
        IterationCounter {
            source: self,
            start,
            samples: Vec::new(),
        }
    }
}

/// An output stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A line that a process printed.
#[derive(Debug, Clone)]
pub(crate) struct OutputLine {
    /// When it was read.
    pub(crate) at: Instant,
    pub(crate) stream: Stream,
    pub(crate) text: String,
}

/// The iterations counted so far.
pub(crate) struct IterationCounter<'a> {
    source: &'a IterationSource,
    start: Instant,
    /// Seconds since the start, and the number of iterations done by then.
    samples: Vec<(f64, f64)>,
}

impl IterationCounter<'_> {
    /// Returns seconds since the start with the number of iterations done by then.
    pub(crate) fn samples(&self) -> &[(f64, f64)] {
        &self.samples
    }

    pub(crate) fn into_samples(self) -> Vec<(f64, f64)> {
        self.samples
    }

    /// Counts a line, if it is an iteration.
    pub(crate) fn count_line(&mut self, line: &OutputLine) -> Result<(), ProfilerError> {
        let done = match self.source {
            IterationSource::Lines if line.stream == Stream::Out => None,
            IterationSource::Pattern(regex) => match regex.captures(&line.text) {
                None => return Ok(()),
                Some(found) => found
                    .get(1)
                    .map(|group| parse_number(group.as_str()))
                    .transpose()?,
            },
            _ => return Ok(()),
        };
        let one_more = self.samples.last().map_or(1.0, |sample| sample.1 + 1.0);
        self.add(line.at, done.unwrap_or(one_more));
        Ok(())
    }

    /// Reads the progress file, if there is one. A file that is missing or half written is read again next time.
    pub(crate) fn poll_file(&mut self) {
        let IterationSource::File(path) = self.source else {
            return;
        };
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if let Some(done) = text.split_whitespace().last().and_then(|n| n.parse::<f64>().ok())
            && self.samples.last().is_none_or(|sample| sample.1 < done)
        {
            self.add(Instant::now(), done);
        }
    }

    fn add(&mut self, at: Instant, done: f64) {
        let seconds = at.saturating_duration_since(self.start).as_secs_f64();
        self.samples.push((seconds, done));
    }
}

fn parse_number(text: &str) -> Result<f64, ProfilerError> {
    let plain = text.replace(['_', ','], "");
    let number = plain.parse::<f64>().ok().filter(|n| n.is_finite());
    number.ok_or_else(|| ProfilerError::NotANumber {
        found: text.to_owned(),
    })
}

/// Sends the lines of a stream from a thread of its own until the stream ends. A carriage return ends a line as well,
/// because progress bars print them.
pub(crate) fn send_lines(from: impl Read + Send + 'static, stream: Stream, sender: Sender<OutputLine>) {
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
            let output = OutputLine {
                at: Instant::now(),
                stream,
                text: String::from_utf8_lossy(&line).into_owned(),
            };
            if sender.send(output).is_err() {
                return;
            }
            line.clear();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(stream: Stream, text: &str) -> OutputLine {
        OutputLine {
            at: Instant::now(),
            stream,
            text: text.to_owned(),
        }
    }

    fn counts(source: &IterationSource, lines: &[OutputLine]) -> Vec<f64> {
        let mut counter = source.counter(Instant::now());
        for line in lines {
            counter.count_line(line).expect("every line can be counted");
        }
        counter.into_samples().into_iter().map(|(_, done)| done).collect()
    }

    #[test]
    fn every_line_of_standard_output_is_an_iteration() {
        let lines = [
            line(Stream::Out, "a"),
            line(Stream::Err, "warning"),
            line(Stream::Out, "b"),
        ];
        assert_eq!(counts(&IterationSource::Lines, &lines), [1.0, 2.0]);
    }

    #[test]
    fn a_capture_group_is_the_number_of_iterations_so_far() {
        let source = IterationSource::Pattern(Regex::new(r"step ([\d,_]+)").expect("a valid pattern"));
        let lines = [
            line(Stream::Err, "step 1,000"),
            line(Stream::Out, "no match"),
            line(Stream::Out, "step 1_005"),
        ];
        assert_eq!(counts(&source, &lines), [1000.0, 1005.0]);
    }

    #[test]
    fn a_carriage_return_ends_a_line() {
        let (sender, receiver) = std::sync::mpsc::channel();
        send_lines(&b"10%\r20%\r\n\nend"[..], Stream::Out, sender);
        let texts: Vec<String> = receiver.iter().map(|line| line.text).collect();
        assert_eq!(texts, ["10%", "20%"]);
    }
}
