//! Data that the policy needs and jobs do not have.

use std::fmt;

use dovetail_model::JobKey;

use crate::engine::Engine;
use crate::needs::{Need, PartNeed};
use crate::parts::Part;
use crate::runtime::Capabilities;

/// A datum that a part needs of a job and that is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingDatum {
    /// The need.
    pub need: Need,
    /// What happens to the job: it completes "it is …".
    pub without: &'static str,
}

/// Data that a part needs and that jobs, or the runtime, do not provide. The policy works, but not as described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataWarning {
    /// The need, and the part that has it.
    pub need: PartNeed,
    /// What happens to jobs without the datum: it completes "they are …".
    pub without: &'static str,
    /// Where the data are missing.
    pub missing: MissingData,
}

/// Where data are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingData {
    /// Some queued jobs have none.
    Jobs {
        /// Number of queued jobs without the datum.
        lacking: u32,
        /// Number of queued jobs that it concerns.
        queued: u32,
    },
    /// The runtime provides none.
    Runtime {
        /// Name of the runtime.
        runtime: &'static str,
        /// Why not.
        reason: &'static str,
    },
}

/// "srtf orders by remaining time; 12 of 40 queued jobs have none: they are ordered last".
impl fmt::Display for DataWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartNeed { kind, part, need } = &self.need;
        let verb = match *kind {
            "order" if *need == Need::RemainingTime => "orders by",
            _ => "needs",
        };
        write!(f, "{part} {verb} {need}; ")?;
        match self.missing {
            MissingData::Jobs { lacking: 1, queued } => {
                write!(f, "1 of {} has none: it is {}", queued_jobs(queued), self.without)
            }
            MissingData::Jobs { lacking, queued } => {
                write!(
                    f,
                    "{lacking} of {} have none: they are {}",
                    queued_jobs(queued),
                    self.without
                )
            }
            MissingData::Runtime { runtime, reason } => {
                write!(f, "{runtime} provides none ({reason}): jobs are {}", self.without)
            }
        }
    }
}

fn queued_jobs(number: u32) -> String {
    match number {
        1 => "1 queued job".to_owned(),
        n => format!("{n} queued jobs"),
    }
}

/// Looks for data that the policy of an engine needs and jobs do not have.
#[derive(Debug, Clone, Copy)]
pub struct DataCheck<'a> {
    engine: &'a Engine,
}

impl<'a> DataCheck<'a> {
    /// Returns the check of an engine.
    pub fn new(engine: &'a Engine) -> Self {
        Self { engine }
    }

    /// Returns the data that the policy needs and that queued jobs, or the runtime, do not provide.
    pub fn warnings(&self, runtime: &Capabilities) -> Vec<DataWarning> {
        let parts = self.engine.policy.parts().into_iter();
        parts
            .flat_map(|(kind, part)| self.part_warnings(kind, part, runtime))
            .collect()
    }

    fn part_warnings(&self, kind: &'static str, part: &dyn Part, runtime: &Capabilities) -> Vec<DataWarning> {
        let data = part.needs().iter().filter(|need| !need.is_mechanism());
        let warning = |need: Need| {
            let missing = match runtime.missing(need) {
                Some(reason) => MissingData::Runtime {
                    runtime: runtime.runtime,
                    reason,
                },
                None => self.count_missing(part, need)?,
            };
            Some(DataWarning {
                need: PartNeed {
                    kind,
                    part: part.name_with_need(need),
                    need,
                },
                without: part.without(need),
                missing,
            })
        };
        data.filter_map(warning).collect()
    }

    /// Counts the queued jobs without a datum that a part needs; none if all of them have it.
    fn count_missing(&self, part: &dyn Part, need: Need) -> Option<MissingData> {
        let waiting = self.engine.state.jobs().filter(|job| job.allocation.is_none());
        let concerned = waiting.filter(|job| part.needs_for(&job.spec).contains(need));
        let (mut lacking, mut queued) = (0, 0);
        for job in concerned {
            queued += 1;
            lacking += u32::from(need.is_missing_in(&job.spec, &self.engine.state.slowdowns));
        }
        (lacking > 0).then_some(MissingData::Jobs { lacking, queued })
    }

    /// Returns the data that the policy needs of a job and that are unknown, each once.
    pub fn of_job(&self, job: JobKey) -> Vec<MissingDatum> {
        let Some(job) = self.engine.state.find_job(job) else {
            return Vec::new();
        };
        let mut missing: Vec<MissingDatum> = Vec::new();
        for (_, part) in self.engine.policy.parts() {
            for need in part.needs_for(&job.spec).iter() {
                let is_missing = need.is_missing_in(&job.spec, &self.engine.state.slowdowns);
                if is_missing && !missing.iter().any(|known| known.need == need) {
                    let without = part.without(need);
                    missing.push(MissingDatum { need, without });
                }
            }
        }
        missing
    }
}
