//! The timeline of a small cluster, event by event.

use std::collections::BTreeMap;
use std::path::Path;

use comfy_table::Table;
use dovetail_console::{self as console, Names};
use dovetail_hived::read_config;
use dovetail_model::run::RunRecord;
use dovetail_model::{JobKey, NodeId, Time};
use dovetail_policies::tenancy::{CellMap, SharedCells};
use dovetail_policies::{Overrides, build};
use dovetail_report::{Figure, gantt};
use dovetail_sim::{Journal, SimConfig, simulate_with};
use dovetail_workload::parse_cluster;
use serde_json::{Value, json};

use super::entries::{Entry, EventKind, entries};
use super::submissions::{Submission, workload};
use crate::ReproduceError;

/// A job on a machine from one time to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) node: String,
    pub(super) start: Time,
    pub(super) end: Time,
}

/// A run with its entries.
pub(super) struct Timeline {
    record: RunRecord,
    nodes: Vec<String>,
    entries: Vec<Entry>,
}

impl Timeline {
    /// Runs the submitted jobs on the cluster of a HiveD configuration, by priority, then first come, first served.
    pub(super) fn run(
        config: &Path,
        submissions: &[Submission],
        training: Time,
    ) -> Result<Self, ReproduceError> {
        let (file, compiled) = read_config(config)?;
        let name = config.display().to_string();
        let cluster = parse_cluster(&name)?;
        let workload = workload(submissions, training, &name, |role| {
            let leaves = file.sku_types.values().filter_map(|sku| role.leaves(sku)).max();
            leaves.ok_or_else(|| ReproduceError::NoSku {
                config: name.clone(),
                role: role.name.clone(),
            })
        })?;
        let tenants: Vec<String> = workload.names.tenants.values().cloned().collect();
        let map = CellMap::new(compiled.layout, &cluster, &tenants)?;
        let overrides = Overrides {
            order: Some("fifo:priority=true".to_owned()),
            discipline: Some("preempt".to_owned()),
            tenancy: Some(format!("cells:{name}")),
            cells: Some(SharedCells::new(map)),
            tenants,
            ..Overrides::default()
        };
        let (policy, needs) = build("fifo", &overrides)?;
        let nodes: Vec<String> = cluster.nodes.values().map(|n| n.name.clone()).collect();
        let mut config = SimConfig::new(cluster);
        (config.check, config.saves_on_stop) = (true, false);
        let mut journal = Journal {
            followed: (0..workload.jobs.len()).map(|i| JobKey(i as u32)).collect(),
            ..Journal::default()
        };
        let record = simulate_with(&workload, policy, needs, &config, Some(&mut journal), &mut |_| {})?;
        let names = Names::new(&workload, &nodes);
        let entries = entries(&journal, &workload, submissions, &names);
        Ok(Self {
            record,
            nodes,
            entries,
        })
    }

    /// Returns where and when jobs ran whose names match.
    pub(super) fn segments(&self, matches: impl Fn(&str) -> bool) -> Vec<Segment> {
        let mut segments: Vec<Segment> = self
            .record
            .segments
            .iter()
            .filter(|segment| matches(self.name(segment.job)))
            .map(|segment| Segment {
                node: self.nodes[segment.node.0 as usize].clone(),
                start: segment.start,
                end: segment.end,
            })
            .collect();
        segments.sort_by_key(|segment| segment.start);
        segments
    }

    /// Returns where and when one job ran.
    pub(super) fn segments_of(&self, job: &str) -> Vec<Segment> {
        self.segments(|name| name == job)
    }

    fn name(&self, job: JobKey) -> &str {
        &self.record.job_names[job.0 as usize]
    }

    /// Returns the details of a job's entries of one kind.
    fn details(&self, job: &str, kind: EventKind) -> Vec<&str> {
        self.entries
            .iter()
            .filter(|entry| entry.kind == kind && self.name(entry.job) == job)
            .map(|entry| entry.detail.as_str())
            .collect()
    }

    /// Returns how often the job was started.
    pub(super) fn attempts(&self, job: &str) -> usize {
        self.details(job, EventKind::Starts).len()
    }

    /// Returns why the job waited, each time that changed.
    pub(super) fn waiting_reasons(&self, job: &str) -> Vec<&str> {
        self.details(job, EventKind::Waits)
    }

    /// Returns whether the job was rejected.
    pub(super) fn is_rejected(&self, job: &str) -> bool {
        !self.details(job, EventKind::Rejected).is_empty()
    }

    /// Returns a row for each entry, with the jobs on each machine at the end of each time.
    pub(super) fn table(&self) -> Table {
        let mut headings = vec!["time", "job", "event"];
        headings.extend(self.nodes.iter().map(String::as_str));
        let mut table = console::table(&headings);
        let mut holders: BTreeMap<NodeId, JobKey> = BTreeMap::new();
        for (i, entry) in self.entries.iter().enumerate() {
            match entry.kind {
                EventKind::Ends | EventKind::Stopped => holders.retain(|_, job| *job != entry.job),
                EventKind::Starts => holders.extend(entry.nodes.iter().map(|n| (*n, entry.job))),
                EventKind::Submitted | EventKind::Rejected | EventKind::Waits => {}
            }
            let is_first = i == 0 || self.entries[i - 1].at != entry.at;
            let is_last = self.entries.get(i + 1).is_none_or(|next| next.at != entry.at);
            let time = if is_first { clock(entry.at) } else { String::new() };
            let mut row = vec![time, self.name(entry.job).to_owned(), entry.text()];
            for node in 0..self.nodes.len() as u32 {
                let holder = holders.get(&NodeId(node)).map_or("–", |job| self.name(*job));
                row.push(if is_last { holder.to_owned() } else { String::new() });
            }
            table.add_row(row);
        }
        table
    }

    /// Draws which job was on which machine.
    pub(super) fn figure(&self) -> Figure {
        gantt(&self.record)
    }

    pub(super) fn to_json(&self) -> Value {
        let entry = |entry: &Entry| {
            json!({
                "at_s": entry.at.as_secs_f64(),
                "job": self.name(entry.job),
                "event": entry.kind.text(),
                "what": entry.detail,
                "nodes": entry.nodes.iter().map(|n| &self.nodes[n.0 as usize]).collect::<Vec<_>>(),
            })
        };
        json!({ "timeline": self.entries.iter().map(entry).collect::<Vec<_>>() })
    }
}

/// Formats a time as minutes and seconds.
pub(super) fn clock(at: Time) -> String {
    let seconds = at.0 / 1_000_000;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
