//! What happened in a small cluster, moment by moment.

use std::collections::BTreeMap;
use std::path::Path;

use dovetail_engine::Explanation;
use dovetail_model::run::RunRecord;
use dovetail_model::{Change, Command, Event, JobId, NodeId, Reason, StopReason, Time, Work};
use dovetail_policies::tenancy::{CellMap, SharedCells};
use dovetail_policies::{Overrides, build};
use dovetail_report::{Figure, gantt};
use dovetail_sim::{Journal, SimConfig, simulate_with};
use dovetail_workload::{JobLabel, PaiJob, PaiRole, TraceJob, Workload, parse_cluster, read_hived};
use serde_json::{Value, json};

use super::lab6::Submission;
use crate::failure::{Blame, Failure};
use crate::show;
use crate::words::Words;

/// A job on a machine for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) node: String,
    pub(super) start: Time,
    pub(super) end: Time,
}

/// One thing that happened. At one moment they are told in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Ends,
    Comes,
    Refused,
    Stops,
    Starts,
    Waits,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Ends => "ends",
            Self::Comes => "comes",
            Self::Refused => "is refused",
            Self::Stops => "is stopped",
            Self::Starts => "starts",
            Self::Waits => "waits",
        }
    }
}

struct Line {
    at: Time,
    kind: Kind,
    job: JobId,
    what: String,
    nodes: Vec<NodeId>,
}

/// A run, and what happened in it.
pub(super) struct Story {
    record: RunRecord,
    nodes: Vec<String>,
    lines: Vec<Line>,
}

impl Story {
    /// Runs what was submitted on the cluster of a HiveD file, by priority, then first come, first served.
    pub(super) fn tell(config: &Path, submissions: &[Submission], trains: Time) -> Result<Self, Failure> {
        let (file, compiled) = read_hived(config).or_request()?;
        let name = config.display().to_string();
        let cluster = parse_cluster(&name).or_request()?;
        let skus = &file.sku_types;
        let workload = workload(submissions, trains, &name, |role| {
            let least = skus.values().filter_map(|sku| role.leaves(sku)).max();
            least.ok_or_else(|| {
                Failure::request(format!(
                    "{name}: no skuTypes entry has what role {} asks for",
                    role.name
                ))
            })
        })?;
        let tenants: Vec<String> = workload.names.tenants.values().cloned().collect();
        let map = CellMap::new(compiled.layout, &cluster, &tenants).or_request()?;
        let overrides = Overrides {
            order: Some("fifo:priority=true".to_owned()),
            discipline: Some("preempt".to_owned()),
            tenancy: Some(format!("cells:{name}")),
            cells: Some(SharedCells::new(map)),
            tenants,
            ..Overrides::default()
        };
        let (policy, needs) = build("fifo", &overrides).or_work()?;
        let nodes: Vec<String> = cluster.nodes.values().map(|n| n.name.clone()).collect();
        let mut config = SimConfig::new(cluster);
        (config.check, config.saves_on_stop) = (true, false);
        let mut journal = Journal {
            asks: workload
                .jobs
                .iter()
                .enumerate()
                .map(|(i, _)| JobId(i as u32))
                .collect(),
            ..Journal::default()
        };
        let record =
            simulate_with(&workload, policy, needs, &config, Some(&mut journal), &mut |_| {}).or_work()?;
        let words = Words::new(&workload, &nodes);
        let lines = lines(&journal, &workload, submissions, &words);
        Ok(Self { record, nodes, lines })
    }

    /// Where and when jobs ran whose names are wanted.
    pub(super) fn pieces(&self, wanted: impl Fn(&str) -> bool) -> Vec<Piece> {
        let segments = self.record.segments.iter();
        let of_job = segments.filter(|s| wanted(self.name(s.job)));
        of_job
            .map(|s| Piece {
                node: self.nodes[s.node.0 as usize].clone(),
                start: s.start,
                end: s.end,
            })
            .collect()
    }

    /// Where and when one job ran.
    pub(super) fn of(&self, job: &str) -> Vec<Piece> {
        let mut pieces = self.pieces(|name| name == job);
        pieces.sort_by_key(|p| p.start);
        pieces
    }

    fn name(&self, job: JobId) -> &str {
        &self.record.job_names[job.0 as usize]
    }

    fn told(&self, job: &str, kind: Kind) -> impl Iterator<Item = &Line> {
        let is_job = move |l: &&Line| l.kind == kind && self.name(l.job) == job;
        self.lines.iter().filter(is_job).collect::<Vec<_>>().into_iter()
    }

    /// How often the job was started.
    pub(super) fn attempts(&self, job: &str) -> usize {
        self.told(job, Kind::Starts).count()
    }

    /// Why the job waited, each time that changed.
    pub(super) fn waits(&self, job: &str) -> Vec<String> {
        self.told(job, Kind::Waits).map(|l| l.what.clone()).collect()
    }

    /// Why the job was refused, if it was.
    pub(super) fn refusal(&self, job: &str) -> Option<String> {
        self.told(job, Kind::Refused).next().map(|l| l.what.clone())
    }

    /// The timeline: what happens, and who is on which machine from then on.
    pub(super) fn table(&self) -> comfy_table::Table {
        let mut headings = vec!["time", "job", "what happens"];
        headings.extend(self.nodes.iter().map(String::as_str));
        let mut table = show::table(&headings);
        let mut holders: BTreeMap<NodeId, JobId> = BTreeMap::new();
        for (i, line) in self.lines.iter().enumerate() {
            match line.kind {
                Kind::Ends | Kind::Stops => holders.retain(|_, job| *job != line.job),
                Kind::Starts => holders.extend(line.nodes.iter().map(|n| (*n, line.job))),
                Kind::Comes | Kind::Refused | Kind::Waits => {}
            }
            let last = self.lines.get(i + 1).is_none_or(|next| next.at != line.at);
            let first = i == 0 || self.lines[i - 1].at != line.at;
            let what = match line.what.as_str() {
                "" => line.kind.word().to_owned(),
                what if line.kind == Kind::Waits || line.kind == Kind::Refused => {
                    format!("{}: {what}", line.kind.word())
                }
                what => format!("{} {what}", line.kind.word()),
            };
            let time = if first { clock(line.at) } else { String::new() };
            let mut row = vec![time, self.name(line.job).to_owned(), what];
            for node in 0..self.nodes.len() as u32 {
                let holder = holders.get(&NodeId(node)).map_or("–", |job| self.name(*job));
                row.push(if last { holder.to_owned() } else { String::new() });
            }
            table.add_row(row);
        }
        table
    }

    /// Who was on which machine, drawn.
    pub(super) fn figure(&self) -> Figure {
        gantt(&self.record)
    }

    pub(super) fn json(&self) -> Value {
        let line = |l: &Line| {
            json!({
                "at_s": l.at.as_secs_f64(),
                "job": self.name(l.job),
                "event": l.kind.word(),
                "what": l.what,
                "nodes": l.nodes.iter().map(|n| &self.nodes[n.0 as usize]).collect::<Vec<_>>(),
            })
        };
        json!({ "timeline": self.lines.iter().map(line).collect::<Vec<_>>() })
    }
}

/// A gang is one job, instances on their own are one each.
fn workload(
    submissions: &[Submission],
    trains: Time,
    source: &str,
    leaves: impl Fn(&PaiRole) -> Result<u32, Failure>,
) -> Result<Workload, Failure> {
    let mut workload = Workload {
        source: source.to_owned(),
        ..Workload::default()
    };
    for Submission { at, user, job } in submissions {
        let names = &mut workload.names;
        let tenant = id_of(&mut names.tenants, &job.virtual_cluster);
        let user_id = id_of(&mut names.users, user);
        let [role] = &job.roles[..] else {
            return Err(Failure::request(format!(
                "{}: it has {} task roles; expected one",
                job.name,
                job.roles.len()
            )));
        };
        let (each, run_s) = (leaves(role)?, trains.as_secs_f64() as u64 + role.sleeps_s());
        let parts: Vec<(String, u32)> = match job.gang {
            true => vec![(format!("{user}~{}", job.name), role.instances)],
            false => (0..role.instances)
                .map(|i| (format!("{user}~{}/{}-{i}", job.name, role.name), 1))
                .collect(),
        };
        for (label, instances) in parts {
            let gpus = instances * each;
            let mut one = TraceJob::new(JobLabel::Text(label.into()), *at, Work(run_s * 1_000_000), gpus);
            (one.tenant, one.user, one.priority) = (tenant, user_id, job.priority);
            one.cpu_milli_per_gpu = role.cpu_milli / each;
            one.memory_mib_per_gpu = role.memory_mib / u64::from(each);
            workload.jobs.push(one);
        }
    }
    Ok(workload)
}

/// The id of a name, which is added if it is new.
fn id_of<I: dovetail_model::ids::Id>(names: &mut dovetail_model::IdVec<I, String>, name: &str) -> I {
    let known = names.iter().find(|(_, n)| *n == name).map(|(id, _)| id);
    known.unwrap_or_else(|| names.push(name.to_owned()))
}

fn lines(journal: &Journal, workload: &Workload, submissions: &[Submission], words: &Words<'_>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut tell = |at: Time, kind: Kind, job: JobId, what: String, nodes: Vec<NodeId>| {
        lines.push(Line {
            at,
            kind,
            job,
            what,
            nodes,
        });
    };
    for (at, event) in &journal.events {
        match event {
            Event::Submitted(spec) => {
                let job = &workload.jobs[spec.id.0 as usize];
                tell(
                    *at,
                    Kind::Comes,
                    spec.id,
                    arrival(job, workload, submissions),
                    Vec::new(),
                );
            }
            Event::Exited { job, .. } => tell(*at, Kind::Ends, *job, String::new(), Vec::new()),
            _ => {}
        }
    }
    for (at, command) in &journal.commands {
        match command {
            Command::Launch {
                job,
                generation,
                allocation,
            } => {
                let nodes: Vec<NodeId> = allocation.shares.iter().map(|s| s.node).collect();
                let names: Vec<&str> = nodes.iter().map(|n| words.node(*n)).collect();
                let again = match generation.0 {
                    0 | 1 => String::new(),
                    n => format!(", attempt {n}"),
                };
                tell(
                    *at,
                    Kind::Starts,
                    *job,
                    format!("on {}{again}", names.join(" and ")),
                    nodes.clone(),
                );
            }
            Command::Stop { job, reason, .. } => {
                let why = match reason {
                    StopReason::Preempted => "to make room",
                    _ => "to be placed anew",
                };
                tell(*at, Kind::Stops, *job, why.to_owned(), Vec::new());
            }
            Command::Reject { job, reason } => {
                tell(*at, Kind::Refused, *job, words.reason(reason), Vec::new());
            }
            Command::Resize { .. } => {}
        }
    }
    for (at, job, answer) in &journal.answers {
        if let Explanation::Waiting { reasons, .. } = answer {
            let why: Vec<String> = telling(reasons).map(|r| words.reason(r)).collect();
            tell(*at, Kind::Waits, *job, why.join("; "), Vec::new());
        }
    }
    lines.sort_by_key(|l| (l.at, l.kind, l.job));
    lines
}

/// Reasons that say something new in a timeline: who could end is named as the holder, and what a tenant owns says more
/// than a sum.
fn telling(reasons: &[Reason]) -> impl Iterator<Item = &Reason> {
    let counted = reasons.iter().any(|r| matches!(r, Reason::CellsOwned { .. }));
    let says_nothing = move |reason: &Reason| match reason {
        Reason::CellsInUse { .. } => counted,
        Reason::WouldStart(Change::JobsEnd(_)) => true,
        _ => false,
    };
    reasons.iter().filter(move |r| !says_nothing(r))
}

/// What a job asks for when it comes.
fn arrival(job: &TraceJob, workload: &Workload, submissions: &[Submission]) -> String {
    let class = submissions
        .iter()
        .map(|s| &s.job)
        .find(|j| j.priority == job.priority)
        .map_or("test", PaiJob::class);
    let gpus = if job.gpus == 1 {
        "1 GPU".to_owned()
    } else {
        format!("{} GPUs together", job.gpus)
    };
    format!("to {} as {class}: {gpus}", workload.names.tenants[job.tenant])
}

/// So many minutes.
pub(super) fn minutes(n: i64) -> Time {
    Time(n * 60_000_000)
}

/// A time as minutes and seconds.
pub(super) fn clock(at: Time) -> String {
    let seconds = at.0 / 1_000_000;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
