//! Completion times from a job file: the native one, or one of Muri's layouts, detected by column names.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::csv_in::Table;
use crate::error::{ReportError, quoted};

/// Submissions and completions of the jobs in a file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Completions {
    /// Completion times in seconds, ascending.
    pub jct_s: Vec<f64>,
    /// Number of jobs that did not finish.
    pub unfinished: u64,
    /// The earliest submission, in seconds, of all jobs.
    pub first_submit_s: f64,
    /// The latest end, in seconds.
    pub last_end_s: f64,
}

/// A metric of a job file.
#[derive(Debug, Clone, Copy)]
pub struct CompletionMetric {
    /// Heading in a table.
    pub heading: &'static str,
    /// Key in JSON.
    pub key: &'static str,
    /// How it is computed, in seconds.
    pub value: fn(&Completions) -> f64,
}

/// The metrics of a job file, in the order of a table.
pub const COMPLETION_METRICS: [CompletionMetric; 5] = [
    CompletionMetric {
        heading: "avg JCT",
        key: "avg_jct_s",
        value: Completions::mean_s,
    },
    CompletionMetric {
        heading: "median",
        key: "median_jct_s",
        value: Completions::median_s,
    },
    CompletionMetric {
        heading: "p99",
        key: "p99_jct_s",
        value: Completions::p99_s,
    },
    CompletionMetric {
        heading: "makespan",
        key: "makespan_s",
        value: |c| c.last_end_s,
    },
    CompletionMetric {
        heading: "from first submit",
        key: "relative_makespan_s",
        value: Completions::span_s,
    },
];

impl CompletionMetric {
    /// Returns the ratio to the same metric of another file; `None` if that is zero.
    pub fn ratio(&self, of: &Completions, to: &Completions) -> Option<f64> {
        let to = (self.value)(to);
        (to > 0.0).then(|| (self.value)(of) / to)
    }
}

/// Names of the columns in one layout.
struct Layout {
    submit: &'static str,
    end: &'static str,
    jct: &'static str,
}

const LAYOUTS: [Layout; 2] = [
    Layout {
        submit: "submit_time",
        end: "end_time",
        jct: "JCT",
    },
    Layout {
        submit: "submit_s",
        end: "finish_s",
        jct: "jct_s",
    },
];

/// Parses a job file. `path` is used in errors only.
///
/// # Errors
/// Names the file, line and column, the value found and the accepted ones.
pub fn parse_completions(path: &Path, bytes: &[u8]) -> Result<Completions, ReportError> {
    let table = Table::parse(path, bytes, &[])?;
    let Some(layout) = LAYOUTS.iter().find(|l| table.has(l.submit) && table.has(l.end)) else {
        return Err(ReportError::Invalid {
            path: path.into(),
            line: 1,
            field: "header".into(),
            found: match table.names() {
                names if names.is_empty() => "nothing".into(),
                names => quoted(&names),
            },
            accepted: "a job file with the columns submit_time,end_time and optionally JCT (job.csv of Muri or `--emit muri`), \
                       or submit_s,finish_s and optionally jct_s (jobs.csv of a run)"
                .into(),
        });
    };
    let mut found = Completions {
        first_submit_s: f64::INFINITY,
        last_end_s: f64::NEG_INFINITY,
        ..Completions::default()
    };
    for row in table.rows() {
        let submit = row.number(layout.submit)?;
        found.first_submit_s = found.first_submit_s.min(submit);
        let end = match row.text(layout.end)?.trim() {
            "" => {
                found.unfinished += 1;
                continue;
            }
            _ => row.number(layout.end)?,
        };
        let jct = if row.has(layout.jct) {
            row.number(layout.jct)?
        } else {
            end - submit
        };
        if jct < 0.0 {
            let column = if row.has(layout.jct) {
                layout.jct
            } else {
                layout.end
            };
            return Err(row.invalid(
                column,
                row.text(column)?.trim(),
                "a time not before the submission",
            ));
        }
        found.last_end_s = found.last_end_s.max(end);
        found.jct_s.push(jct);
    }
    if found.jct_s.is_empty() {
        return Err(ReportError::Invalid {
            path: path.into(),
            line: 1,
            field: "rows".into(),
            found: format!("{} jobs, none of them finished", found.unfinished),
            accepted: "at least one finished job".into(),
        });
    }
    found.jct_s.sort_unstable_by(f64::total_cmp);
    Ok(found)
}

impl Completions {
    /// Returns all metrics of a file as JSON, with ratios to another file.
    pub fn to_json(&self, file: &str, first: &Completions) -> Value {
        let mut object = Map::new();
        object.insert("file".to_owned(), json!(file));
        object.insert("jobs".to_owned(), json!(self.jct_s.len()));
        object.insert("unfinished".to_owned(), json!(self.unfinished));
        let mut ratios = Map::new();
        for metric in COMPLETION_METRICS {
            object.insert(metric.key.to_owned(), json!((metric.value)(self)));
            let name = metric.key.trim_end_matches("_s").to_owned();
            ratios.insert(name, json!(metric.ratio(self, first)));
        }
        object.insert("ratio_to_first".to_owned(), Value::Object(ratios));
        Value::Object(object)
    }

    /// Returns the mean completion time.
    pub fn mean_s(&self) -> f64 {
        self.jct_s.iter().sum::<f64>() / self.jct_s.len() as f64
    }

    /// Returns the median.
    pub fn median_s(&self) -> f64 {
        let n = self.jct_s.len();
        (self.jct_s[(n - 1) / 2] + self.jct_s[n / 2]) / 2.0
    }

    /// Returns the 99th percentile as in Muri's script: the value at index 0.99 n, rounded down.
    pub fn p99_s(&self) -> f64 {
        self.jct_s[(self.jct_s.len() * 99 / 100).min(self.jct_s.len() - 1)]
    }

    /// Returns the time from the first submission to the last end.
    pub fn span_s(&self) -> f64 {
        self.last_end_s - self.first_submit_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str) -> String {
        match parse_completions(Path::new("job.csv"), text.as_bytes()) {
            Ok(c) => format!(
                "{} jobs, mean {}, median {}, p99 {}, end {}, span {}, unfinished {}",
                c.jct_s.len(),
                c.mean_s(),
                c.median_s(),
                c.p99_s(),
                c.last_end_s,
                c.span_s(),
                c.unfinished
            ),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn layouts_are_detected_by_column_names() {
        let same = "3 jobs, mean 20, median 20, p99 30, end 45, span 40, unfinished 0";
        assert_eq!(
            check("job_id,submit_time,end_time\n1,5,15\n2,10,30\n3,15,45\n"),
            same
        );
        assert_eq!(
            check(
                "JCT,duration,resume,end_time,submit_time\n10.0,1,0,15,5\n20.0,1,0,30,10\n30.0,1,0,45,15\n"
            ),
            same
        );
        assert_eq!(
            check("job_id,submit_s,finish_s,jct_s\na,5,15,10\nb,10,30,20\nc,15,45,30\nd,20,,\n"),
            same.replace("unfinished 0", "unfinished 1")
        );
    }

    #[test]
    fn errors_name_line_column_and_accepted_values() {
        let header = "expected a job file with the columns submit_time,end_time and optionally JCT (job.csv of Muri or \
                      `--emit muri`), or submit_s,finish_s and optionally jct_s (jobs.csv of a run)";
        assert_eq!(
            check("a,b\n1,2\n"),
            format!("job.csv:1: header: found \"a,b\", {header}")
        );
        assert_eq!(check(""), format!("job.csv:1: header: found nothing, {header}"));
        for (text, message) in [
            (
                "submit_time,end_time\n1,x\n",
                "job.csv:2: column end_time: found \"x\", expected a finite number",
            ),
            (
                "submit_time,end_time\n1,2\n5,4\n",
                "job.csv:3: column end_time: found \"4\", expected a time not before the submission",
            ),
            (
                "submit_time,end_time\n",
                "job.csv:1: rows: found 0 jobs, none of them finished, expected at least one finished job",
            ),
            (
                "submit_time,end_time,JCT\n1,2,nan\n",
                "job.csv:2: column JCT: found \"nan\", expected a finite number",
            ),
        ] {
            assert_eq!(check(text), message);
        }
    }
}
