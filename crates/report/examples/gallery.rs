//! Generates a few runs with a toy queue and writes every figure and page for inspection.
//!
//! `cargo run -p dovetail-report --example gallery -- DIR [JOBS]`
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use dovetail_model::run::{ClusterSize, JobRow, RunRecord, Segment, Summary, TenantSummary, TimelinePoint};
use dovetail_model::{JobKey, NodeId, Time, Work};
use dovetail_report::stats::{jct_s, quantile, wait_s};
use dovetail_report::{
    BarSeries, LineChart, Series, grouped_bars, html_with, lines, write_comparison, write_run,
};

const NODES: usize = 32;
const SLOTS: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "gallery".into()));
    let jobs = args.next().map_or(Ok(3000), |n| n.parse())?;
    let workload = workload(jobs);
    let orders: [(&str, Order); 6] = [
        ("fifo", |j| j.submit as f64),
        ("srtf", |j| j.work as f64),
        ("srsf", |j| j.work as f64 * j.gpus as f64),
        ("las", |j| j.work as f64 * (0.6 + j.noise)),
        ("tiresias, placement=consolidated", |j| {
            j.work as f64 * (0.3 + 2.0 * j.noise) + j.submit as f64 * 0.02
        }),
        ("drf", |j| j.submit as f64 * 0.4 + j.noise * 60_000.0),
    ];
    let records: Vec<RunRecord> = orders
        .iter()
        .map(|(name, order)| simulate(name, &workload, *order))
        .collect();
    let mut files = write_comparison(&dir.join("compare"), &records)?;
    files.extend(write_run(&dir.join("single"), &records[3])?);
    let figures = reproduction();
    for figure in &figures {
        files.push(dovetail_report::files::write_file(
            &dir.join(format!("{}.svg", figure.name)),
            figure.svg().as_bytes(),
        )?);
    }
    let page = html_with(&records[..2], "Published figures next to ours", &figures);
    files.push(dovetail_report::files::write_file(
        &dir.join("reproduction.html"),
        page.as_bytes(),
    )?);
    for file in files {
        println!("{:>9} {}", std::fs::metadata(&file)?.len(), file.display());
    }
    Ok(())
}

fn reproduction() -> Vec<dovetail_report::Figure> {
    let curve = |k: f64, bend: f64| (2..=8).map(move |x| (f64::from(x), k + (f64::from(x) - 1.0).powf(bend)));
    let ours =
        Series::new("fifo", curve(3.0, 2.0)).with_errors(curve(3.0, 2.0).map(|(_, y)| (y * 0.93, y * 1.06)));
    let chart = LineChart {
        name: "load",
        title: "Average JCT against load",
        caption: "Eight jobs per hour keep all GPUs busy.",
        x_label: "jobs per hour",
        y_label: "average JCT (h)",
        ..LineChart::default()
    };
    let paired = [
        ours,
        Series::published("fifo", curve(2.7, 2.03)),
        Series::new("las", curve(2.5, 1.6)),
        Series::published("las", curve(2.2, 1.62)),
        Series::new("tiresias", curve(1.0, 1.2)),
    ];
    let close = ["a", "b", "c", "d"].map(|name| Series::new(format!("policy {name}"), curve(2.0, 1.5)));
    let values = |factor: f64| {
        [
            Some(3.2 * factor),
            Some(12.6),
            None,
            Some(128.0 * factor),
            Some(44.1),
        ]
    };
    let groups = ["fifo", "srtf", "las", "tiresias-with-a-long-name", "muri-s"];
    let bars = [
        BarSeries::published("published", values(1.0)),
        BarSeries::ours("ours", values(1.07)),
    ];
    vec![
        chart.draw(&paired),
        lines(
            "Lines that end together get a legend",
            "jobs per hour",
            "average JCT (h)",
            &close,
        ),
        grouped_bars("Speed-up over fifo", "times faster", &groups, &bars),
    ]
}

type Order = fn(&Job) -> f64;

struct Job {
    submit: i64,
    work: i64,
    gpus: usize,
    noise: f64,
    tenant: usize,
}

/// A small random generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as f64 + 0.5) / (1u64 << 31) as f64
    }
}

fn workload(jobs: usize) -> Vec<Job> {
    let mut dice = Dice(42);
    let mut now = 0.0;
    (0..jobs)
        .map(|_| {
            let day = 1.0 + 0.7 * (now / 86_400.0 * std::f64::consts::TAU).sin();
            now += -dice.roll().ln() * 320.0 / day;
            let work = 60.0 * (-(dice.roll().ln()) * 2.6).exp().min(2000.0) + 20.0;
            let gpus = [1, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8, 16][(dice.roll() * 12.0) as usize];
            let tenant = (dice.roll() * dice.roll() * 4.0) as usize;
            Job {
                submit: now as i64,
                work: work as i64 + 1,
                gpus,
                noise: dice.roll(),
                tenant,
            }
        })
        .collect()
}

/// Simulates a queue that starts all jobs that fit, in the given order, without preemption.
fn simulate(policy: &str, workload: &[Job], order: Order) -> RunRecord {
    let mut free_at = vec![[0i64; SLOTS]; NODES];
    let mut ends: BTreeMap<(i64, usize), ()> = BTreeMap::new();
    let mut waiting: Vec<usize> = vec![];
    let mut starts = vec![0i64; workload.len()];
    let mut segments = vec![];
    let mut points: Vec<(i64, f64, f64, f64)> = vec![];
    let mut next = 0;
    let mut now = 0;
    while next < workload.len() || !waiting.is_empty() {
        let arrival = workload.get(next).map_or(i64::MAX, |j| j.submit);
        let end = ends.keys().next().map_or(i64::MAX, |(end, _)| *end);
        now = now.max(arrival.min(end));
        while workload.get(next).is_some_and(|j| j.submit <= now) {
            waiting.push(next);
            next += 1;
        }
        while ends.first_key_value().is_some_and(|((end, _), ())| *end <= now) {
            ends.pop_first();
        }
        waiting.sort_by(|a, b| order(&workload[*a]).total_cmp(&order(&workload[*b])));
        let mut blocked = 0;
        waiting.retain(|&job| {
            if blocked > 3 {
                return true;
            }
            let spec = &workload[job];
            let free: usize = free_at.iter().flatten().filter(|at| **at <= now).count();
            if free < spec.gpus {
                blocked += 1;
                return true;
            }
            starts[job] = now;
            place(&mut free_at, spec, job, now, &mut segments);
            ends.insert((now + spec.work, job), ());
            false
        });
        let busy = free_at.iter().flatten().filter(|at| **at > now).count() as f64;
        points.push((now, busy, ends.len() as f64, waiting.len() as f64));
    }
    let last = ends.last_key_value().map_or(now, |((end, _), ())| *end);
    record(policy, workload, &starts, points, segments, last)
}

fn place(free_at: &mut [[i64; SLOTS]], spec: &Job, job: usize, now: i64, segments: &mut Vec<Segment>) {
    let mut left = spec.gpus;
    let mut nodes: Vec<usize> = (0..free_at.len()).collect();
    nodes.sort_by_key(|n| {
        let free = free_at[*n].iter().filter(|at| **at <= now).count();
        if free >= left { free } else { 100 - free }
    });
    for node in nodes {
        let slots: Vec<u32> = (0..SLOTS as u32)
            .filter(|s| free_at[node][*s as usize] <= now)
            .take(left)
            .collect();
        if slots.is_empty() || left == 0 {
            continue;
        }
        left -= slots.len();
        slots
            .iter()
            .for_each(|s| free_at[node][*s as usize] = now + spec.work);
        let (start, end) = (Time::from_secs(now), Time::from_secs(now + spec.work));
        segments.push(Segment {
            job: JobKey(job as u32),
            node: NodeId(node as u32),
            slots,
            start,
            end,
        });
    }
}

fn record(
    policy: &str,
    workload: &[Job],
    starts: &[i64],
    points: Vec<(i64, f64, f64, f64)>,
    mut segments: Vec<Segment>,
    last: i64,
) -> RunRecord {
    let rows: Vec<JobRow> = workload
        .iter()
        .enumerate()
        .map(|(i, job)| JobRow {
            job: JobKey(i as u32),
            gpus: job.gpus as u32,
            work: Work(job.work as u64 * 1_000_000),
            submit: Time::from_secs(job.submit),
            first_start: Some(Time::from_secs(starts[i])),
            finish: Some(Time::from_secs(starts[i] + job.work)),
            held: Time::from_secs(job.work),
            preemptions: 0,
            rho: None,
        })
        .collect();
    let gpus = (NODES * SLOTS) as f64;
    let timeline: Vec<TimelinePoint> = points
        .windows(2)
        .filter(|w| w[1].0 > w[0].0)
        .map(|w| TimelinePoint {
            start: Time::from_secs(w[0].0),
            end: Time::from_secs(w[1].0),
            busy_gpus: w[0].1,
            up_gpus: if (200_000..300_000).contains(&w[0].0) {
                gpus.min(w[0].1.max(gpus - 8.0))
            } else {
                gpus
            },
            running: w[0].2,
            waiting: w[0].3,
            waiting_gpus: w[0].3 * 2.0,
            fragmented_gpus: 1.0,
        })
        .collect();
    segments.truncate(40_000);
    RunRecord {
        summary: summary(policy, workload, &rows, last),
        job_names: (0..rows.len()).map(|i| format!("j{i}")).collect(),
        tenant_names: workload.iter().map(|j| tenant(j.tenant)).collect(),
        rows,
        timeline,
        segments,
        node_slots: vec![SLOTS as u32; NODES],
        moments: Vec::new(),
    }
}

fn tenant(i: usize) -> String {
    ["vision", "language", "speech", "ads & ranking"][i.min(3)].to_owned()
}

fn summary(policy: &str, workload: &[Job], rows: &[JobRow], last: i64) -> Summary {
    let sorted = |value: fn(&JobRow) -> Option<f64>, only: Option<usize>| -> Vec<f64> {
        let mine = |i: &usize| only.is_none_or(|t| workload[*i].tenant.min(3) == t);
        let mut all: Vec<f64> = (0..rows.len())
            .filter(mine)
            .filter_map(|i| value(&rows[i]))
            .collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let at = |values: &[f64], q| quantile(values, q).unwrap_or(0.0);
    let (jct, wait) = (sorted(jct_s, None), sorted(wait_s, None));
    let slowdown = sorted(|row| row.slowdown(), None);
    let gpu_s = |only: Option<usize>| -> f64 {
        let mine = workload
            .iter()
            .filter(|j| only.is_none_or(|t| j.tenant.min(3) == t));
        mine.map(|j| (j.work * j.gpus as i64) as f64).sum()
    };
    let tenants = (0..4).map(|t| {
        let (jct, wait, slow) = (
            sorted(jct_s, Some(t)),
            sorted(wait_s, Some(t)),
            sorted(|r| r.slowdown(), Some(t)),
        );
        TenantSummary {
            tenant: tenant(t),
            jobs: jct.len() as u64,
            finished: jct.len() as u64,
            avg_jct_s: mean(&jct),
            p99_jct_s: at(&jct, 0.99),
            avg_wait_s: mean(&wait),
            avg_slowdown: mean(&slow),
            gpu_hours: gpu_s(Some(t)) / 3600.0,
        }
    });
    let work = mean(&workload.iter().map(|j| j.work as f64).collect::<Vec<_>>());
    Summary {
        policy: policy.into(),
        trace: "toy day-and-night workload".into(),
        cluster: ClusterSize {
            nodes: NODES as u32,
            gpus: (NODES * SLOTS) as u32,
        },
        seed: 42,
        jobs: rows.len() as u64,
        finished: rows.len() as u64,
        avg_jct_s: mean(&jct),
        median_jct_s: at(&jct, 0.5),
        p95_jct_s: at(&jct, 0.95),
        p99_jct_s: at(&jct, 0.99),
        makespan_s: (last - workload[0].submit) as f64,
        avg_wait_s: mean(&wait),
        median_wait_s: at(&wait, 0.5),
        avg_slowdown: mean(&slowdown),
        preemptions: (slowdown.len() as f64 * mean(&slowdown).fract()) as u64,
        gpu_utilization: gpu_s(None) / (last as f64 * (NODES * SLOTS) as f64),
        worst_ftf: at(&slowdown, 0.999).sqrt(),
        jain_index: 1.0 / mean(&slowdown).max(1.0).powf(0.3),
        lower_bound_avg_jct_s: work,
        events: rows.len() as u64 * 3,
        rounds: rows.len() as u64 * 2,
        wall_ms: 840.0,
        tenants: tenants.collect(),
        ..Summary::default()
    }
}
