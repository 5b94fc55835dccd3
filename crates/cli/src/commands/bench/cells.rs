//! `dovetail bench cells`: what decisions about cells cost, beside what they cost HiveD.
//!
//! The rows, topologies and workloads are those HiveD was measured with: machines of eight GPUs (2-4-8), flat (`pool`)
//! or in racks of ten (`rack`), five virtual clusters that own all of them. HiveD's figures are CPU time of its
//! algorithm on a two-core machine; wall time of single calls where only that is known. Ours are medians of the wall
//! time of single calls, CPU time for the churn, and a row is a whole group: its decision, and the decision kept.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use dovetail_cells::{
    CellType, Cells, Config, GroupId, LeafType, MachineId, PhysicalCell, Request, Terms, VcId, VirtualCells,
    VirtualCluster,
};
use serde::Serialize;

use super::cpu_seconds;
use crate::args::BenchArgs;
use crate::failure::{Blame, Failure};
use crate::show;

/// One row, in microseconds.
#[derive(Debug, Serialize)]
struct Row {
    what: String,
    topology: String,
    ours_us: f64,
    hived_us: Option<f64>,
    ratio: Option<f64>,
    goal_us: Option<f64>,
}

/// Measures and shows.
pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (nodes, racked, hived) in HIVED {
        rows.extend(measure(nodes, racked, &hived));
    }
    rows.extend(measure(5_000, false, &[None; ROWS]));
    if !args.short {
        for racked in [false, true] {
            rows.extend(measure(12_500, racked, &[None; ROWS]));
        }
    }
    let shared = std::env::var_os("DOVETAIL_SHARED").map_or_else(|| "../shared".into(), PathBuf::from);
    for (name, nodes, racked, hived) in [
        ("pool-100", 100, false, 939.0),
        ("rack-100", 100, true, 778.0),
        ("pool-1000", 1000, false, 1517.0),
    ] {
        let path = shared.join(format!("data/hived/bench/churn-{name}.jsonl.gz"));
        if path.is_file() {
            rows.push(churn(&path, nodes, racked, hived)?);
        } else {
            eprintln!("SKIPPED: {} is not there (set DOVETAIL_SHARED)", path.display());
        }
    }
    if args.json {
        return show::print(serde_json::to_string_pretty(&rows).or_work()?);
    }
    let mut table = show::table(&[
        "what",
        "topology",
        "ours, µs",
        "HiveD, µs",
        "times faster",
        "goal, µs",
    ]);
    for row in &rows {
        let dash = || "–".to_owned();
        table.add_row([
            row.what.clone(),
            row.topology.clone(),
            format!("{:.2}", row.ours_us),
            row.hived_us.map_or_else(dash, |h| format!("{h:.0}")),
            row.ratio.map_or_else(dash, |r| format!("{r:.0}")),
            row.goal_us.map_or_else(dash, |g| format!("≤ {g:.0}")),
        ]);
    }
    show::align_numbers(&mut table);
    show::print(table)
}

/// Rows of one topology.
const ROWS: usize = 16;

/// What is measured, with the goal if there is one.
const WHAT: [(&str, Option<f64>); ROWS] = [
    ("cold start", Some(500_000.0)),
    ("1 pod × 1 GPU, load 0", Some(5.0)),
    ("1 pod × 1 GPU, load 90 %", Some(5.0)),
    ("1 pod × 8 GPUs, load 50 %", None),
    ("gang 16 × 8, load 0", None),
    ("gang 16 × 8, load 50 %", None),
    ("gang 64 × 8, load 0", Some(50.0)),
    ("gang 64 × 1, load 0", Some(50.0)),
    ("opportunistic 1 × 1, load 50 %", Some(5.0)),
    ("opportunistic 16 × 8, load 0", None),
    ("waits, 1 × 1, load 100 %", Some(5.0)),
    ("waits, 16 × 8, load 100 %", None),
    ("preempts, 16 × 8, load 100 %", None),
    ("ends, 1 × 8, load 0", None),
    ("ends, 16 × 8, load 0", None),
    ("a machine goes bad, load 50 %", Some(1000.0)),
];

type Figures = [Option<f64>; ROWS];

/// HiveD's figures for each topology: machines, in racks or not, a figure for each row.
#[rustfmt::skip]
const HIVED: [(u32, bool, Figures); 5] = [
    (100, false, [None, Some(350.0), Some(393.0), Some(451.0), Some(30_844.0), None, None, Some(151_660.0), Some(315.0),
        Some(22_874.0), Some(127.0), Some(118.0), Some(506.0), Some(259.0), Some(56_592.0), Some(15.0)]),
    (100, true, [None, Some(351.0), Some(155.0), Some(214.0), Some(29_096.0), None, None, Some(138_622.0), Some(143.0),
        Some(23_030.0), Some(72.0), Some(49.0), Some(438.0), Some(145.0), Some(54_596.0), Some(10.0)]),
    (1000, false, [Some(2_500_000.0), Some(1_243.0), Some(839.0), Some(1_401.0), Some(43_608.0), Some(28_173.0),
        Some(431_152.0), Some(140_653.0), Some(608.0), Some(18_897.0), Some(318.0), Some(698.0), Some(1_151.0),
        Some(31_649.0), Some(510_241.0), Some(62.0)]),
    (1000, true, [Some(740_000.0), Some(562.0), Some(618.0), Some(638.0), Some(46_246.0), Some(28_102.0),
        Some(395_334.0), Some(195_996.0), Some(829.0), Some(22_959.0), Some(678.0), Some(341.0), Some(1_260.0),
        Some(143.0), Some(34_110.0), Some(104.0)]),
    (5000, true, [Some(58_800_000.0), Some(3_218.0), Some(1_971.0), Some(9_047.0), Some(157_076.0), Some(168_796.0),
        Some(690_933.0), Some(295_896.0), Some(4_936.0), Some(25_721.0), Some(2_053.0), Some(2_138.0), Some(19_990.0),
        Some(215.0), Some(38_428.0), Some(26_637.0)]),
];

/// The topologies HiveD was measured with.
fn config(nodes: u32, racked: bool) -> Config {
    let mut config = Config::default();
    let mut add = |name: &str, child: &str, children, is_node| {
        let child = child.to_owned();
        config.cell_types.insert(
            name.to_owned(),
            CellType {
                child,
                children,
                is_node,
            },
        );
    };
    add("G2", "GPU", 2, false);
    add("G4", "G2", 2, false);
    add("NODE", "G4", 2, true);
    let (top, width) = if racked { ("RACK", 10) } else { ("POOL", nodes) };
    add(top, "NODE", width, false);
    for first in (0..nodes).step_by(width as usize) {
        let children = (first..first + width).map(|n| PhysicalCell {
            address: Some(format!("node-{n:05}")),
            ..PhysicalCell::default()
        });
        config.physical_cells.push(PhysicalCell {
            cell_type: Some(top.to_owned()),
            children: children.collect(),
            ..PhysicalCell::default()
        });
    }
    for vc in 0..5 {
        let cells = |path: &str, number| VirtualCells {
            path: path.to_owned(),
            number,
        };
        let owned = if racked {
            let racks = nodes / 10 / 5;
            let whole = racks.div_ceil(2);
            vec![cells("RACK", whole), cells("RACK.NODE", (racks - whole) * 10)]
        } else {
            vec![cells("POOL.NODE", nodes / 5)]
        };
        let vc_spec = VirtualCluster {
            cells: owned,
            ..VirtualCluster::default()
        };
        config.virtual_clusters.insert(format!("vc{vc}"), vc_spec);
    }
    config
}

/// A cluster under load, and a workload that goes on.
struct Bench {
    cells: Cells,
    key: u64,
    filled: Vec<GroupId>,
}

impl Bench {
    fn request(&mut self, vc: u32, priority: i16, pods: u32, size: u32) -> Request {
        self.key += 1;
        Request::gang(self.key, VcId(vc), priority, LeafType(0), pods, size)
    }

    /// Fills this share of the machines, 1 × 8 at priority 10.
    fn fill(&mut self, share: f64) {
        let wanted = (self.cells.layout().machines.len() as f64 * share) as usize;
        while self.filled.len() < wanted {
            let request = self.request((self.filled.len() % 5) as u32, 10, 1, 8);
            match self.cells.attempt(&request, &Terms::default()) {
                Ok(attempt) => self.filled.push(attempt.commit()),
                Err(_) => break,
            }
        }
    }

    fn empty(&mut self) {
        for id in std::mem::take(&mut self.filled) {
            self.cells.release(id);
        }
    }

    /// Median time of a decision that is kept, and of the end of the group, in microseconds.
    fn decide(&mut self, priority: i16, pods: u32, size: u32) -> (f64, f64) {
        let (mut decided, mut ended) = (Vec::new(), Vec::new());
        for round in 0..rounds(pods) {
            let request = self.request(round % 5, priority, pods, size);
            let mut id = None;
            decided.push(timed(|| {
                let attempt = self.cells.attempt(&request, &Terms::default());
                id = attempt.ok().map(|a| a.commit());
            }));
            if let Some(id) = id {
                ended.push(timed(|| self.cells.release(id)));
            }
        }
        (median(&mut decided), median(&mut ended))
    }

    /// Median time of a decision that is not kept.
    fn ask(&mut self, priority: i16, pods: u32, size: u32) -> f64 {
        let mut asked = Vec::new();
        for round in 0..rounds(pods) {
            let request = self.request(round % 5, priority, pods, size);
            asked.push(timed(|| drop(self.cells.attempt(&request, &Terms::default()))));
        }
        median(&mut asked)
    }
}

fn rounds(pods: u32) -> u32 {
    if pods > 1 { 101 } else { 1001 }
}

/// Microseconds something takes; single calls are too short for the clock of the kernel.
fn timed(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64() * 1e6
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

/// All rows of one topology.
fn measure(nodes: u32, racked: bool, hived: &Figures) -> Vec<Row> {
    let config = config(nodes, racked);
    let mut ours = [f64::NAN; ROWS];
    let mut cells = None;
    for _ in 0..3 {
        let took = timed(|| cells = Some(start(&config, nodes)));
        ours[0] = took.min(if ours[0].is_nan() { f64::INFINITY } else { ours[0] });
    }
    let cells = cells.expect("it was started three times");
    let mut bench = Bench {
        cells,
        key: 0,
        filled: Vec::new(),
    };
    (ours[1], _) = bench.decide(10, 1, 1);
    (_, ours[13]) = bench.decide(10, 1, 8);
    (ours[4], ours[14]) = bench.decide(10, 16, 8);
    if nodes / 5 >= 64 {
        (ours[6], _) = bench.decide(10, 64, 8);
    }
    (ours[7], _) = bench.decide(10, 64, 1);
    (ours[9], _) = bench.decide(-1, 16, 8);
    bench.fill(0.5);
    (ours[3], _) = bench.decide(10, 1, 8);
    if nodes / 10 >= 16 {
        (ours[5], _) = bench.decide(10, 16, 8);
    }
    (ours[8], _) = bench.decide(-1, 1, 1);
    ours[15] = bad_machines(&mut bench);
    bench.fill(0.9);
    (ours[2], _) = bench.decide(10, 1, 1);
    bench.fill(1.0);
    ours[10] = bench.ask(10, 1, 1);
    ours[11] = bench.ask(10, 16, 8);
    ours[12] = bench.ask(20, 16, 8);
    bench.empty();
    let topology = format!("{} {nodes}", if racked { "rack" } else { "pool" });
    (0..ROWS)
        .filter(|at| ours[*at].is_finite())
        .map(|at| Row {
            what: WHAT[at].0.to_owned(),
            topology: topology.clone(),
            ours_us: ours[at],
            hived_us: hived[at],
            ratio: hived[at].map(|h| h / ours[at]),
            goal_us: WHAT[at].1,
        })
        .collect()
}

/// As HiveD starts: every machine is bad until it is heard of.
fn start(config: &Config, nodes: u32) -> Cells {
    let layout = config.compile().map(|c| c.layout).expect("the topology is sound");
    let mut cells = Cells::new(layout);
    for machine in 0..nodes {
        cells.set_health(MachineId(machine), false);
    }
    for machine in 0..nodes {
        cells.set_health(MachineId(machine), true);
    }
    cells
}

/// Median time for a machine to go bad; it comes back unmeasured.
fn bad_machines(bench: &mut Bench) -> f64 {
    let machines = bench.cells.layout().machines.len() as u32;
    let mut samples = Vec::new();
    for round in 0..501u32 {
        let machine = MachineId(round.wrapping_mul(7919) % machines);
        samples.push(timed(|| bench.cells.set_health(machine, false)));
        bench.cells.set_health(machine, true);
    }
    median(&mut samples)
}

/// Replays a churn that was recorded with HiveD: CPU time for each pod.
fn churn(path: &Path, nodes: u32, racked: bool, hived: f64) -> Result<Row, Failure> {
    let file = std::fs::File::open(path).or_request()?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .or_request()?;
    let steps: Vec<serde_json::Value> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .or_request()?;
    let layout = config(nodes, racked)
        .compile()
        .map(|c| c.layout)
        .expect("the topology is sound");
    let mut best = f64::INFINITY;
    let mut pods = 0u64;
    for _ in 0..5 {
        let mut cells = Cells::new(layout.clone());
        let mut running: std::collections::BTreeMap<&str, GroupId> = Default::default();
        pods = 0;
        let before = cpu_seconds();
        for (key, step) in steps.iter().enumerate() {
            let group = step["group"].as_str().unwrap_or_default();
            if step["op"] == "delete" {
                if let Some(id) = running.remove(group) {
                    cells.release(id);
                }
                continue;
            }
            let number = |name: &str| step[name].as_i64().unwrap_or(0);
            let vc = cells.layout().vc_named(step["vc"].as_str().unwrap_or_default());
            let (size, count) = (number("gpus") as u32, number("pods") as u32);
            pods += u64::from(count);
            let priority = number("priority") as i16;
            let request = Request::gang(
                key as u64,
                vc.unwrap_or_default(),
                priority,
                LeafType(0),
                count,
                size,
            );
            if let Ok(attempt) = cells.attempt(&request, &Terms::default())
                && *attempt.outcome() == dovetail_cells::Outcome::Placed
            {
                running.insert(group, attempt.commit());
            }
        }
        best = best.min(cpu_seconds() - before);
    }
    let ours = best * 1e6 / pods.max(1) as f64;
    Ok(Row {
        what: "churn as recorded, for each pod".to_owned(),
        topology: format!("{} {nodes}", if racked { "rack" } else { "pool" }),
        ours_us: ours,
        hived_us: Some(hived),
        ratio: Some(hived / ours),
        goal_us: None,
    })
}
