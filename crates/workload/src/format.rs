//! The trace formats, and their detection by name, header and first bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::compression::uncompressed_name;
use crate::error::{TraceError, shorten};

/// A trace format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// The native format: CSV with `submit_s, duration_s, gpus` and more. JSON lines are accepted under this name too.
    Native,
    /// The native format as JSON lines.
    NativeJsonl,
    /// Microsoft's Philly `cluster_job_log`: a JSON array of jobs with attempts.
    Philly,
    /// Muri's CSV, times in milliseconds.
    Muri,
    /// Synergy's replay file without a header, or its per-job results with one.
    Synergy,
    /// Blox's workload: arrivals, iterations and time per iteration.
    Blox,
    /// Microsoft ITP clusters, as published with ElasticFlow.
    Itp,
    /// Philly as reduced for Pollux: dates, durations, GPUs and virtual cluster.
    Pollux,
    /// SenseTime's Helios, and Alibaba's PAI 2020 in the same four columns.
    Helios,
    /// Alibaba's openb 2023 pod lists.
    Openb,
    /// Gavel's and Shockwave's tab-separated traces of job types and steps.
    Gavel,
    /// Tiresias' CSV in seconds, and Chronus' with deadlines.
    Tiresias,
}

/// The columns by which a CSV header is recognised; the first format with all of them wins.
const HEADERS: &[(Format, &[&str])] = &[
    (Format::Native, &["submit_s", "duration_s", "gpus"]),
    (
        Format::Muri,
        &["num_gpu", "submit_time", "iterations", "iteration_time"],
    ),
    (
        Format::Tiresias,
        &["job_id", "num_gpu", "submit_time", "duration"],
    ),
    (
        Format::Synergy,
        &["model", "arrival_s", "total_iters", "gpu_demand"],
    ),
    (
        Format::Blox,
        &["arrival_s", "total_iterations", "iteration_time_s", "gpus"],
    ),
    (Format::Itp, &["submission_time", "duration", "num_gpu"]),
    (Format::Pollux, &["timestamp", "duration", "num_gpus"]),
    (Format::Pollux, &["time", "application", "num_replicas"]),
    (Format::Helios, &["arrival_s", "service_sec", "gpu_count"]),
    (Format::Helios, &["gpu_num", "submit_time", "duration"]),
    (
        Format::Openb,
        &["num_gpu", "gpu_milli", "creation_time", "deletion_time"],
    ),
];

impl Format {
    /// All formats.
    pub const ALL: [Format; 12] = [
        Self::Native,
        Self::NativeJsonl,
        Self::Philly,
        Self::Muri,
        Self::Synergy,
        Self::Blox,
        Self::Itp,
        Self::Pollux,
        Self::Helios,
        Self::Openb,
        Self::Gavel,
        Self::Tiresias,
    ];

    /// Returns the name of the format on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::NativeJsonl => "native-jsonl",
            Self::Philly => "philly",
            Self::Muri => "muri",
            Self::Synergy => "synergy",
            Self::Blox => "blox",
            Self::Itp => "itp",
            Self::Pollux => "pollux",
            Self::Helios => "helios",
            Self::Openb => "openb",
            Self::Gavel => "gavel",
            Self::Tiresias => "tiresias",
        }
    }

    /// Returns the native format of a file with this name: JSONL if it ends in `.jsonl`, compressed or not.
    pub fn native_for(name: &str) -> Self {
        match uncompressed_name(name).ends_with(".jsonl") {
            true => Self::NativeJsonl,
            false => Self::Native,
        }
    }

    /// Returns all names as text.
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Detects the format of a file that begins with `head`, by its first bytes, its header or the shape of its first line.
    pub fn detect(file: &str, head: &[u8]) -> Result<Format, TraceError> {
        let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
        let Some(first) = head.iter().find(|b| !b.is_ascii_whitespace()) else {
            return Err(TraceError::Empty {
                file: file.to_owned(),
            });
        };
        match first {
            b'[' => return Ok(Self::Philly),
            b'{' => return Ok(Self::NativeJsonl),
            _ => {}
        }
        let text = String::from_utf8_lossy(head);
        let line = text.trim_start().lines().next().unwrap_or_default();
        if matches!(line.split('\t').count(), 7 | 10 | 12) {
            return Ok(Self::Gavel);
        }
        let fields: Vec<&str> = line.split(',').map(|f| f.trim().trim_matches('"')).collect();
        by_header(&fields)
            .or_else(|| by_shape(&fields))
            .or_else(|| by_partial_header(&fields))
            .ok_or_else(|| TraceError::UnknownFormat {
                file: file.to_owned(),
                seen: format!("the file begins with {:?}", shorten(line)),
            })
    }
}

fn by_header(fields: &[&str]) -> Option<Format> {
    let has_all = |columns: &&[&str]| columns.iter().all(|c| fields.contains(c));
    HEADERS
        .iter()
        .find(|(_, columns)| has_all(columns))
        .map(|(format, _)| *format)
}

/// Recognises Synergy's replay files, which have no header: id, model, arrival, iterations, GPUs.
fn by_shape(fields: &[&str]) -> Option<Format> {
    let number = |i: usize| fields[i].parse::<f64>().is_ok();
    (fields.len() == 5 && number(0) && !number(1) && number(2) && number(3) && number(4))
        .then_some(Format::Synergy)
}

/// Returns the format of a header that lacks some of its columns; the reader reports which.
fn by_partial_header(fields: &[&str]) -> Option<Format> {
    let share = |columns: &[&str]| {
        let present = columns.iter().filter(|c| fields.contains(c)).count();
        present * 1000 / columns.len()
    };
    let (best, format) = HEADERS
        .iter()
        .map(|(f, c)| (share(c), *f))
        .max_by_key(|(share, _)| *share)?;
    (best >= 500).then_some(format)
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An unknown format name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("found trace format {found:?}, expected one of {}{}", Format::names(), did_you_mean(.found))]
pub struct UnknownFormatName {
    /// The name given.
    pub found: String,
}

fn did_you_mean(word: &str) -> String {
    match dovetail_model::suggest::nearest(word, Format::ALL.map(Format::name)).first() {
        Some(near) => format!(" (did you mean {near}?)"),
        None => String::new(),
    }
}

impl FromStr for Format {
    type Err = UnknownFormatName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|f| f.name() == name);
        known.ok_or_else(|| UnknownFormatName {
            found: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(head: &str) -> Option<Format> {
        Format::detect("x", head.as_bytes()).ok()
    }

    #[test]
    fn formats_are_detected_by_their_first_lines() {
        assert_eq!(
            detect("gpus,submit_s,duration_s,colour\n1,2,3,4\n"),
            Some(Format::Native)
        );
        assert_eq!(detect("{\"submit_s\": 1}\n"), Some(Format::NativeJsonl));
        assert_eq!(detect("\u{feff}[{\"vc\": 1}]"), Some(Format::Philly));
        assert_eq!(
            detect("job_id,num_gpu,submit_time,iterations,model_name,duration,iteration_time"),
            Some(Format::Muri)
        );
        assert_eq!(
            detect("job_id,num_gpu,submit_time,iterations,model_name,duration,interval"),
            Some(Format::Tiresias)
        );
        assert_eq!(detect("0,alexnet,8,23349,1"), Some(Format::Synergy));
        assert_eq!(detect("a\tb\tc\t1\t2\t3\t4"), Some(Format::Gavel));
        assert_eq!(
            detect("submit_s,runtime,gpus"),
            Some(Format::Native),
            "two of three columns are enough"
        );
        assert_eq!(detect("a,b,c"), None);
    }

    #[test]
    fn names_are_parsed_back() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        insta::assert_snapshot!("filly".parse::<Format>().unwrap_err(), @r#"found trace format "filly", expected one of native, native-jsonl, philly, muri, synergy, blox, itp, pollux, helios, openb, gavel, tiresias (did you mean philly?)"#);
    }
}
