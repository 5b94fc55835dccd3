//! `dovetail usage --interval`: the utilization of nodes over time.

use std::collections::BTreeMap;
use std::time::Duration;

use dovetail_client::{Client, block_on, percent_encode};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_model::Time;
use dovetail_report::format::grouped;
use dovetail_server::parse_positive_span;
use dovetail_web::views::NodeUtilization;
use serde::Serialize;

use crate::live::args::{Output, UsageArgs};
use crate::live::show::{Listing, clock, now};

/// The columns of the table and of CSV.
const HEADINGS: [&str; 11] = [
    "Time",
    "Node",
    "GPU %",
    "SM %",
    "CPU %",
    "Disk read MB/s",
    "Disk write MB/s",
    "Network in MB/s",
    "Network out MB/s",
    "Memory MiB",
    "GPU memory MiB",
];
/// Number of columns in a narrow table.
const NARROW: usize = 9;
/// Time between two questions for new intervals.
const POLL: Duration = Duration::from_secs(5);

/// A node over one interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Interval {
    node: String,
    /// End of the interval, in microseconds since 1970.
    at_us: i64,
    interval_s: i64,
    /// Mean over all GPUs, in percent.
    gpu: Option<f64>,
    /// Mean SM activity of all GPUs, in percent.
    sm: Option<f64>,
    cpu: f64,
    disk_read_mb_s: f64,
    disk_write_mb_s: f64,
    network_in_mb_s: f64,
    network_out_mb_s: f64,
    /// Largest values.
    memory_mib: u64,
    gpu_memory_mib: Option<u64>,
}

/// Prints the utilization of nodes.
///
/// # Errors
/// If the interval is invalid, or the scheduler is unreachable or rejects the request.
pub fn run(args: &UsageArgs, interval: &str) -> Result<(), Failure> {
    let interval = parse_positive_span(interval, "--interval").or_request()?;
    let last = parse_positive_span(&args.last, "--last").or_request()?;
    let step = dovetail_cluster::LoadPoint::INTERVAL;
    if interval.0 % step.0 != 0 {
        return Err(Failure::request(
            "--interval: expected a multiple of 30s: the scheduler keeps averages over 30 seconds",
        ));
    }
    let client = Client::open(args.client.config.as_deref())?;
    let form = args.output.form();
    block_on(async {
        // Intervals begin at multiples of their length.
        let begin = Time((now().0 - last.0).div_euclid(interval.0) * interval.0);
        let mut shown: BTreeMap<String, i64> = BTreeMap::new();
        let mut is_first = true;
        loop {
            let oldest = shown.values().min().map_or(begin.0, |at| at - interval.0);
            let mut path = format!("/api/v1/utilization?from={}", oldest.max(begin.0));
            if let Some(node) = &args.node {
                path += &format!("&node={}", percent_encode(node));
            }
            let points: Vec<NodeUtilization> = client.get(&path).await?;
            let mut rows = intervals(&points, interval);
            rows.retain(|row| shown.get(&row.node).is_none_or(|at| row.at_us > *at));
            shown.extend(rows.iter().map(|row| (row.node.clone(), row.at_us)));
            if is_first || !rows.is_empty() {
                print(&rows, form, is_first, args.follow)?;
            }
            if !args.follow {
                return Ok(());
            }
            is_first &= rows.is_empty() && form != Output::Csv;
            tokio::time::sleep(POLL).await;
        }
    })
}

/// Prints intervals: as a table, as CSV, or as one JSON object per line.
fn print(rows: &[Interval], form: Output, is_first: bool, follow: bool) -> Result<(), Failure> {
    let mut text = match form {
        Output::Json => {
            let lines: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
            lines.or_work()?.join("\n")
        }
        _ => {
            let listing = Listing {
                headings: &HEADINGS,
                narrow: NARROW,
                rows: rows.iter().map(|row| cells(row, form)).collect(),
                value: &rows,
                none: if follow {
                    ""
                } else {
                    "No intervals have ended in this time; the scheduler keeps them until it restarts, for at most half a day."
                },
            };
            listing.text(form)?
        }
    };
    if form == Output::Csv && !is_first {
        text = text
            .split_once('\n')
            .map_or(String::new(), |(_, rows)| rows.to_owned());
    }
    match text.is_empty() {
        true => Ok(()),
        false => console::print(text),
    }
}

fn cells(row: &Interval, form: Output) -> Vec<String> {
    let percent = |value: Option<f64>| value.map_or_else(|| unknown(form), |v| grouped(v, 1));
    let time = match form {
        Output::Csv => dovetail_model::rfc3339::seconds_time(row.at_us),
        _ => clock(Time(row.at_us)),
    };
    vec![
        time,
        row.node.clone(),
        percent(row.gpu),
        percent(row.sm),
        percent(Some(row.cpu)),
        format!("{:.3}", row.disk_read_mb_s),
        format!("{:.3}", row.disk_write_mb_s),
        format!("{:.3}", row.network_in_mb_s),
        format!("{:.3}", row.network_out_mb_s),
        row.memory_mib.to_string(),
        row.gpu_memory_mib
            .map_or_else(|| unknown(form), |mib| mib.to_string()),
    ]
}

fn unknown(form: Output) -> String {
    match form {
        Output::Csv => String::new(),
        _ => "–".to_owned(),
    }
}

/// Combines measurements to intervals of this length, oldest first. The last interval of a node is left out if it has not ended.
fn intervals(points: &[NodeUtilization], length: Time) -> Vec<Interval> {
    let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
    let mut groups: BTreeMap<(i64, &str), Vec<&NodeUtilization>> = BTreeMap::new();
    for point in points {
        let end = ((point.at.0 - 1).div_euclid(length.0) + 1) * length.0;
        groups.entry((end, &point.node)).or_default().push(point);
        let newest = newest.entry(&point.node).or_insert(i64::MIN);
        *newest = (*newest).max(point.at.0);
    }
    groups
        .into_iter()
        .filter(|((end, node), _)| newest.get(node).is_some_and(|at| at >= end))
        .map(|((end, _), points)| combine(end, length, &points))
        .collect()
}

fn combine(end: i64, length: Time, points: &[&NodeUtilization]) -> Interval {
    let seconds: f64 = points.iter().map(|p| f64::from(p.interval_s)).sum();
    let rate = |bytes: fn(&NodeUtilization) -> u64| {
        let sum: u64 = points.iter().map(|p| bytes(p)).sum();
        sum as f64 / 1e6 / seconds.max(1.0)
    };
    let mean = |values: fn(&NodeUtilization) -> &[f64]| {
        let all: Vec<f64> = points.iter().flat_map(|p| values(p).iter().copied()).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let gpu_memory = |p: &&NodeUtilization| p.gpu_memory_mib.iter().map(|mib| u64::from(*mib)).sum();
    let has_memory = points.iter().any(|p| !p.gpu_memory_mib.is_empty());
    Interval {
        node: points.first().map_or_else(String::new, |p| p.node.clone()),
        at_us: end,
        interval_s: length.0 / 1_000_000,
        gpu: mean(|p| &p.gpu),
        sm: mean(|p| &p.sm),
        cpu: points.iter().map(|p| p.cpu).sum::<f64>() / points.len().max(1) as f64,
        disk_read_mb_s: rate(|p| p.disk_read_bytes),
        disk_write_mb_s: rate(|p| p.disk_written_bytes),
        network_in_mb_s: rate(|p| p.network_received_bytes),
        network_out_mb_s: rate(|p| p.network_sent_bytes),
        memory_mib: points.iter().map(|p| p.memory_mib).max().unwrap_or(0),
        gpu_memory_mib: points.iter().map(gpu_memory).max().filter(|_| has_memory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_combined_to_intervals_that_have_ended() {
        let point = |node: &str, at: i64, gpu: &[f64], sm: &[f64]| NodeUtilization {
            node: node.to_owned(),
            at: Time::from_secs(at),
            interval_s: 30,
            cpu: 50.0,
            memory_mib: 10 + at as u64,
            gpu: gpu.to_vec(),
            sm: sm.to_vec(),
            gpu_memory_mib: vec![1; gpu.len()],
            disk_read_bytes: 3_000_000,
            disk_written_bytes: 0,
            network_received_bytes: 0,
            network_sent_bytes: 30_000_000,
        };
        let points = [
            point("a", 30, &[10.0, 30.0], &[5.0, 7.0]),
            point("a", 60, &[20.0, 40.0], &[]),
            point("a", 90, &[90.0, 90.0], &[]),
            point("b", 60, &[], &[]),
        ];
        let rows = intervals(&points, Time::from_secs(60));
        // The second minute of node a has not ended.
        assert_eq!(rows.len(), 2, "{rows:?}");
        let a = &rows[0];
        assert_eq!((a.node.as_str(), a.at_us), ("a", 60_000_000));
        assert_eq!((a.gpu, a.sm, a.gpu_memory_mib), (Some(25.0), Some(6.0), Some(2)));
        assert_eq!(
            (a.disk_read_mb_s, a.network_out_mb_s, a.memory_mib),
            (0.1, 1.0, 70)
        );
        assert_eq!(
            (rows[1].node.as_str(), rows[1].gpu, rows[1].gpu_memory_mib),
            ("b", None, None)
        );
        assert_eq!(intervals(&points, Time::from_secs(30)).len(), 4);
        assert_eq!(cells(a, Output::Csv)[0], "1970-01-01T00:01:00Z");
        assert_eq!(cells(&rows[1], Output::Csv)[2], "");
    }
}
