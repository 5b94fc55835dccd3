//! Shared by the tests: a tiny run, extreme runs, and a checker of tags.
#![allow(dead_code, reason = "each test file uses its own part")]

use dovetail_model::run::{ClusterSize, JobRow, RunRecord, Segment, Summary, TenantSummary, TimelinePoint};
use dovetail_model::{JobKey, NodeId, Time, Work};
use proptest::prelude::*;

/// Two finished jobs and one that never started, on one node with two GPUs.
pub(crate) fn tiny() -> RunRecord {
    let row = |job: u32, gpus, work_s: f64, submit_s: f64, run: Option<(f64, f64)>| JobRow {
        job: JobKey(job),
        gpus,
        work: Work::from_secs_f64(work_s),
        submit: Time::from_secs_f64(submit_s),
        first_start: run.map(|r| Time::from_secs_f64(r.0)),
        finish: run.map(|r| Time::from_secs_f64(r.1)),
        held: run.map_or(Time::ZERO, |r| Time::from_secs_f64(r.1 - r.0)),
        preemptions: 0,
        rho: run.map(|_| 1.25),
    };
    let point = |start, end, busy_gpus, waiting| TimelinePoint {
        start: Time::from_secs(start),
        end: Time::from_secs(end),
        busy_gpus,
        up_gpus: 2.0,
        running: 1.0,
        waiting,
        waiting_gpus: waiting,
        fragmented_gpus: 1.0 / 3.0,
    };
    let segment = |job, slots: &[u32], start, end| Segment {
        job: JobKey(job),
        node: NodeId(0),
        slots: slots.into(),
        start: Time::from_secs(start),
        end: Time::from_secs(end),
    };
    RunRecord {
        summary: Summary {
            policy: "fifo".into(),
            trace: "tiny".into(),
            cluster: ClusterSize { nodes: 1, gpus: 2 },
            seed: 7,
            jobs: 3,
            finished: 2,
            avg_jct_s: 450.0,
            median_jct_s: 450.0,
            makespan_s: 600.0,
            avg_slowdown: 1.5,
            gpu_utilization: 0.75,
            jain_index: 0.9,
            lower_bound_avg_jct_s: 400.0,
            tenants: vec![TenantSummary {
                tenant: "a".into(),
                jobs: 3,
                ..TenantSummary::default()
            }],
            ..Summary::default()
        },
        rows: vec![
            row(4, 2, 300.0, 0.0, Some((0.0, 300.0))),
            row(5, 1, 299.5, 0.25, Some((300.0, 600.5))),
            row(6, 8, 10.0, 1.0, None),
        ],
        job_names: ["first", "second, of \"two\"", "too large"]
            .map(str::to_owned)
            .into(),
        tenant_names: ["a", "b", ""].map(str::to_owned).into(),
        timeline: vec![point(0, 300, 2.0, 1.5), point(300, 601, 1.0, 1.0)],
        segments: vec![segment(4, &[0, 1], 0, 300), segment(5, &[1], 300, 600)],
        node_slots: vec![2],
        moments: Vec::new(),
    }
}

/// Draws unrealistic runs, with numbers from the ends of their ranges.
pub(crate) fn wild() -> impl Strategy<Value = RunRecord> {
    let moment = || prop_oneof![any::<i64>(), -1_000_000i64..1_000_000_000_000].prop_map(Time);
    let number = || prop_oneof![any::<f64>(), 0.0..1e6];
    let row = (
        any::<u32>(),
        0u32..64,
        any::<u64>(),
        moment(),
        any::<Option<i64>>(),
        moment(),
    )
        .prop_map(|(job, gpus, work, submit, finish, held)| JobRow {
            job: JobKey(job),
            gpus,
            work: Work(work),
            submit,
            first_start: finish.map(Time),
            finish: finish.map(Time),
            held,
            preemptions: job,
            rho: finish.map(|f| (f as f64).abs()),
        });
    let point =
        (moment(), moment(), number(), number(), number()).prop_map(|(start, end, busy, up, waiting)| {
            TimelinePoint {
                start,
                end,
                busy_gpus: busy,
                up_gpus: up,
                running: busy,
                waiting,
                waiting_gpus: waiting,
                fragmented_gpus: up,
            }
        });
    let node = prop_oneof![0u32..200, any::<u32>()];
    let slots = prop::collection::vec(prop_oneof![0u32..8, any::<u32>()], 0..4);
    let segment =
        (0u32..50, node, slots, moment(), moment()).prop_map(|(job, node, slots, start, end)| Segment {
            job: JobKey(job),
            node: NodeId(node),
            slots,
            start,
            end,
        });
    (
        (".*", ".*", number(), number(), any::<u64>(), any::<u32>()),
        prop::collection::vec(row, 0..30),
        prop::collection::vec(".*", 0..30),
        prop::collection::vec(point, 0..40),
        prop::collection::vec(segment, 0..60),
        prop::collection::vec(any::<u32>(), 0..6),
    )
        .prop_map(
            |((policy, trace, x, y, n, size), rows, names, timeline, segments, node_slots)| RunRecord {
                summary: Summary {
                    tenants: vec![TenantSummary {
                        tenant: trace.clone(),
                        finished: n,
                        gpu_hours: x,
                        ..Default::default()
                    }],
                    policy,
                    trace,
                    cluster: ClusterSize {
                        nodes: size / 7,
                        gpus: size,
                    },
                    jobs: n,
                    finished: n / 2,
                    events: n,
                    avg_jct_s: x,
                    median_jct_s: y,
                    p99_jct_s: -x,
                    gpu_utilization: y,
                    lower_bound_avg_jct_s: x,
                    worst_ftf: y,
                    wall_ms: x,
                    ..Summary::default()
                },
                rows,
                job_names: names.clone(),
                tenant_names: names,
                timeline,
                segments,
                node_slots,
                moments: Vec::new(),
            },
        )
}

/// Checks that every tag is closed in order, attributes are quoted, and every coordinate is finite.
#[track_caller]
pub(crate) fn assert_well_formed(markup: &str) {
    const VOID: [&str; 2] = ["meta", "br"];
    let mut open: Vec<&str> = vec![];
    let mut rest = markup;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        if rest.starts_with('!') {
            rest = &rest[rest.find('>').expect("a declaration ends") + 1..];
            continue;
        }
        let (tag, after) = split_tag(rest);
        rest = after;
        let name = tag
            .trim_start_matches('/')
            .split([' ', '/', '\n'])
            .next()
            .unwrap_or_default();
        assert!(
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric()),
            "a tag named {name:?}"
        );
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closing tags match opening ones");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
            if name == "script" || name == "style" {
                rest = &rest[rest.find(&format!("</{name}>")).expect("raw text ends")..];
            }
        }
        for strange in ["NaN", "inf", "Infinity"] {
            for attribute in [
                " d=\"",
                " x=\"",
                " y=\"",
                " width=\"",
                " height=\"",
                " cx=\"",
                " cy=\"",
                "data-v=\"",
            ] {
                let value = tag
                    .split(attribute)
                    .nth(1)
                    .and_then(|v| v.split('"').next())
                    .unwrap_or_default();
                assert!(!value.contains(strange), "{tag}");
            }
        }
    }
    assert_eq!(open, Vec::<&str>::new(), "all tags are closed");
    assert!(
        markup.chars().all(|c| !c.is_control() || c == '\n'),
        "no control characters"
    );
}

/// Returns a tag up to its `>`; a `>` inside quotes does not end it.
fn split_tag(rest: &str) -> (&str, &str) {
    let mut quoted = false;
    for (i, c) in rest.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '>' if !quoted => return (&rest[..i], &rest[i + 1..]),
            '<' => panic!("a bare < inside a tag: {}", &rest[..i]),
            _ => {}
        }
    }
    panic!("a tag does not end: {rest}");
}
