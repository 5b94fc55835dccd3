//! The rows that are measured on each topology.

use std::time::Instant;

use dovetail_cells::{Cells, Config, GroupId, LeafType, MachineId, PlacementOptions, Request, VcId};

use super::CellMeasurement;
use super::topology::{Topology, VIRTUAL_CLUSTERS};
use crate::measurement::median;

/// Rows of one topology.
const ROWS: usize = 16;
/// A figure for each row, in microseconds; `None` where nothing is known.
pub(super) type Figures = [Option<f64>; ROWS];
/// Figures of a topology that HiveD was not measured with.
pub(super) const NO_FIGURES: Figures = [None; ROWS];

/// Names of the rows, with their goals in microseconds.
const NAMES: [(&str, Option<f64>); ROWS] = [
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
    ("machine fails, load 50 %", Some(1000.0)),
];

/// HiveD's figures for each topology.
#[rustfmt::skip]
pub(super) const HIVED: [(Topology, Figures); 5] = [
    (Topology::pool(100), [None, Some(350.0), Some(393.0), Some(451.0), Some(30_844.0), None, None, Some(151_660.0), Some(315.0),
        Some(22_874.0), Some(127.0), Some(118.0), Some(506.0), Some(259.0), Some(56_592.0), Some(15.0)]),
    (Topology::racks(100), [None, Some(351.0), Some(155.0), Some(214.0), Some(29_096.0), None, None, Some(138_622.0), Some(143.0),
        Some(23_030.0), Some(72.0), Some(49.0), Some(438.0), Some(145.0), Some(54_596.0), Some(10.0)]),
    (Topology::pool(1000), [Some(2_500_000.0), Some(1_243.0), Some(839.0), Some(1_401.0), Some(43_608.0), Some(28_173.0),
        Some(431_152.0), Some(140_653.0), Some(608.0), Some(18_897.0), Some(318.0), Some(698.0), Some(1_151.0),
        Some(31_649.0), Some(510_241.0), Some(62.0)]),
    (Topology::racks(1000), [Some(740_000.0), Some(562.0), Some(618.0), Some(638.0), Some(46_246.0), Some(28_102.0),
        Some(395_334.0), Some(195_996.0), Some(829.0), Some(22_959.0), Some(678.0), Some(341.0), Some(1_260.0),
        Some(143.0), Some(34_110.0), Some(104.0)]),
    (Topology::racks(5000), [Some(58_800_000.0), Some(3_218.0), Some(1_971.0), Some(9_047.0), Some(157_076.0), Some(168_796.0),
        Some(690_933.0), Some(295_896.0), Some(4_936.0), Some(25_721.0), Some(2_053.0), Some(2_138.0), Some(19_990.0),
        Some(215.0), Some(38_428.0), Some(26_637.0)]),
];

/// Measures all rows on a topology.
pub(super) fn measure(topology: Topology, hived: &Figures) -> Vec<CellMeasurement> {
    let ours = measure_rows(topology);
    (0..ROWS)
        .filter(|row| ours[*row].is_finite())
        .map(|row| CellMeasurement {
            name: NAMES[row].0.to_owned(),
            topology: topology.to_string(),
            ours_us: ours[row],
            hived_us: hived[row],
            ratio: hived[row].map(|hived| hived / ours[row]),
            goal_us: NAMES[row].1,
        })
        .collect()
}

/// Returns microseconds of each row; not a number where the topology is too small for it.
fn measure_rows(topology: Topology) -> [f64; ROWS] {
    let machines_of_vc = topology.machines / VIRTUAL_CLUSTERS;
    let mut ours = [f64::NAN; ROWS];
    let mut cluster;
    (ours[0], cluster) = LoadedCluster::start(topology);
    (ours[1], _) = cluster.decide(10, 1, 1);
    (_, ours[13]) = cluster.decide(10, 1, 8);
    (ours[4], ours[14]) = cluster.decide(10, 16, 8);
    if machines_of_vc >= 64 {
        (ours[6], _) = cluster.decide(10, 64, 8);
    }
    (ours[7], _) = cluster.decide(10, 64, 1);
    (ours[9], _) = cluster.decide(-1, 16, 8);
    cluster.fill(0.5);
    (ours[3], _) = cluster.decide(10, 1, 8);
    if machines_of_vc / 2 >= 16 {
        (ours[5], _) = cluster.decide(10, 16, 8);
    }
    (ours[8], _) = cluster.decide(-1, 1, 1);
    ours[15] = cluster.fail_machines();
    cluster.fill(0.9);
    (ours[2], _) = cluster.decide(10, 1, 1);
    cluster.fill(1.0);
    ours[10] = cluster.try_place(10, 1, 1);
    ours[11] = cluster.try_place(10, 16, 8);
    ours[12] = cluster.try_place(20, 16, 8);
    ours
}

/// A cluster under load, and requests on top of it.
struct LoadedCluster {
    cells: Cells,
    /// Key of the last request.
    key: u64,
    /// Groups that make up the load.
    load: Vec<GroupId>,
}

impl LoadedCluster {
    /// Starts an empty cluster three times, and returns the shortest time in microseconds.
    fn start(topology: Topology) -> (f64, Self) {
        let config = topology.config();
        let mut shortest = f64::INFINITY;
        let mut cells = None;
        for _ in 0..3 {
            let start = Instant::now();
            cells = Some(cold_start(&config));
            shortest = shortest.min(microseconds(start));
        }
        let cluster = Self {
            cells: cells.expect("the cluster was started three times"),
            key: 0,
            load: Vec::new(),
        };
        (shortest, cluster)
    }

    fn request(&mut self, vc: u32, priority: i16, pods: u32, size: u32) -> Request {
        self.key += 1;
        Request::gang(self.key, VcId(vc), priority, LeafType(0), pods, size)
    }

    /// Fills a share of the machines with groups of 1 × 8 at priority 10.
    fn fill(&mut self, share: f64) {
        let target = (self.cells.layout().machines.len() as f64 * share) as usize;
        while self.load.len() < target {
            let vc = self.load.len() as u32 % VIRTUAL_CLUSTERS;
            let request = self.request(vc, 10, 1, 8);
            match self.cells.try_place(&request, &PlacementOptions::default()) {
                Ok(placement) => self.load.push(placement.commit()),
                Err(_) => break,
            }
        }
    }

    /// Returns the median time of a committed decision and of the end of the group, in microseconds.
    fn decide(&mut self, priority: i16, pods: u32, size: u32) -> (f64, f64) {
        let (mut decided, mut ended) = (Vec::new(), Vec::new());
        for round in 0..rounds(pods) {
            let request = self.request(round % VIRTUAL_CLUSTERS, priority, pods, size);
            let start = Instant::now();
            let placement = self.cells.try_place(&request, &PlacementOptions::default());
            let group = placement.ok().map(|placement| placement.commit());
            decided.push(microseconds(start));
            if let Some(group) = group {
                let start = Instant::now();
                self.cells.release(group);
                ended.push(microseconds(start));
            }
        }
        (median_or_nan(decided), median_or_nan(ended))
    }

    /// Returns the median time of a decision that is not committed, in microseconds.
    fn try_place(&mut self, priority: i16, pods: u32, size: u32) -> f64 {
        let mut times = Vec::new();
        for round in 0..rounds(pods) {
            let request = self.request(round % VIRTUAL_CLUSTERS, priority, pods, size);
            let start = Instant::now();
            drop(self.cells.try_place(&request, &PlacementOptions::default()));
            times.push(microseconds(start));
        }
        median_or_nan(times)
    }

    /// Returns the median time of a machine's failure in microseconds. Its recovery is not measured.
    fn fail_machines(&mut self) -> f64 {
        let machines = self.cells.layout().machines.len() as u32;
        let mut times = Vec::new();
        for round in 0..501u32 {
            let machine = MachineId(round.wrapping_mul(7919) % machines);
            let start = Instant::now();
            self.cells.set_health(machine, false);
            times.push(microseconds(start));
            self.cells.set_health(machine, true);
        }
        median_or_nan(times)
    }
}

/// Starts as HiveD does: every machine is bad until it reports.
fn cold_start(config: &Config) -> Cells {
    let layout = config
        .compile()
        .map(|compiled| compiled.layout)
        .expect("the configuration is valid");
    let machines = layout.machines.len() as u32;
    let mut cells = Cells::new(layout);
    for healthy in [false, true] {
        for machine in 0..machines {
            cells.set_health(MachineId(machine), healthy);
        }
    }
    cells
}

fn rounds(pods: u32) -> u32 {
    if pods > 1 { 101 } else { 1001 }
}

fn microseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

fn median_or_nan(times: Vec<f64>) -> f64 {
    if times.is_empty() { f64::NAN } else { median(times) }
}
