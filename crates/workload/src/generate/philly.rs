//! Figures of the public Philly trace, from which the philly-like generator draws.
//!
//! Counted from the 82,247 usable jobs of "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads"
//! (Jeon et al., USENIX ATC 2019), published by Microsoft as msr-fiddle/philly-traces under CC-BY-4.0, in the reduction
//! made for Pollux (submission, duration, GPUs, virtual cluster). They cover 108.9 days from September 2017.
//!
//! Wide jobs run far longer than narrow ones: 93 % of the jobs request one GPU but use 18 % of the GPU time, and the 2 %
//! with eight use 48 %. So durations and tenants are kept by width. One table for all would halve the demand.

use super::random::{Random, Weights};

/// Jobs in the trace for each hour of the trace.
pub(super) const JOBS_PER_HOUR: f64 = 31.47;

/// Jobs submitted in each hour of the day.
pub(super) const BY_HOUR: [f64; 24] = [
    4367.0, 3374.0, 3835.0, 3780.0, 2400.0, 3950.0, 5732.0, 7159.0, 3802.0, 3447.0, 3510.0, 2979.0, 2567.0,
    2415.0, 2185.0, 2224.0, 3021.0, 2289.0, 2744.0, 2496.0, 3483.0, 3142.0, 3885.0, 3461.0,
];

/// Requested GPUs, and the number of jobs that request them.
pub(super) const BY_GPUS: [(u32, u32); 10] = [
    (1, 76_627),
    (2, 1_818),
    (4, 1_870),
    (8, 1_643),
    (12, 7),
    (16, 199),
    (24, 7),
    (32, 67),
    (64, 6),
    (128, 3),
];

/// Virtual clusters in the trace.
pub(super) const TENANTS: usize = 15;

/// The shares of jobs below which the durations of [`Class::seconds`] lie.
const LEVELS: [f64; 30] = [
    0.0, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8,
    0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.9995, 1.0,
];

/// Jobs of about the same width.
struct Class {
    /// The widest of them.
    gpus_max: u32,
    /// Quantiles of their run time at [`LEVELS`].
    seconds: [u32; LEVELS.len()],
    /// Jobs of each virtual cluster, the busiest of all first.
    tenants: [u32; TENANTS],
}

#[rustfmt::skip]
const CLASSES: [Class; 6] = [
    Class {
        gpus_max: 1,
        seconds: [1, 30, 44, 52, 62, 69, 76, 122, 215, 385, 600, 855, 1_117, 1_446, 1_728, 2_054, 2_464, 2_716, 3_754, 5_342,
            8_512, 12_340, 19_137, 44_233, 68_252, 135_399, 266_914, 502_224, 1_447_517, 3_256_045],
        tenants: [40_841, 14_607, 9_054, 7_237, 1_571, 597, 1_090, 1_137, 204, 64, 215, 2, 4, 1, 3],
    },
    Class {
        gpus_max: 2,
        seconds: [2, 5, 7, 9, 11, 13, 15, 16, 17, 18, 19, 20, 21, 23, 25, 28, 33, 76, 149, 22_255,
            72_740, 137_838, 197_062, 267_687, 343_862, 523_316, 808_064, 1_398_359, 1_618_289, 2_582_803],
        tenants: [50, 1_415, 37, 3, 33, 109, 164, 0, 0, 4, 3, 0, 0, 0, 0],
    },
    Class {
        gpus_max: 4,
        seconds: [3, 36, 52, 75, 138, 179, 405, 773, 1_696, 4_458, 7_468, 13_087, 17_410, 26_251, 36_288, 56_846, 78_660,
            89_394, 106_284, 151_448, 184_435, 206_450, 273_968, 449_497, 533_378, 907_376, 1_205_990, 1_862_334,
            2_648_713, 2_750_674],
        tenants: [144, 40, 396, 72, 330, 266, 181, 0, 329, 10, 102, 0, 0, 0, 0],
    },
    Class {
        gpus_max: 8,
        seconds: [1, 33, 72, 125, 216, 464, 785, 1_876, 4_011, 7_266, 12_382, 16_651, 23_683, 36_595, 65_014, 105_941,
            140_721, 173_248, 203_050, 242_252, 351_982, 424_129, 525_618, 667_789, 795_161, 1_060_498, 2_000_448,
            2_232_762, 3_011_314, 4_628_226],
        tenants: [191, 10, 455, 51, 0, 420, 0, 0, 179, 293, 36, 6, 0, 2, 0],
    },
    Class {
        gpus_max: 16,
        seconds: [2, 20, 32, 40, 62, 123, 277, 393, 634, 2_449, 7_921, 16_038, 37_188, 58_559, 72_685, 97_904, 139_766,
            162_017, 184_816, 238_215, 338_082, 443_601, 505_394, 599_401, 654_329, 1_139_333, 1_364_439, 1_570_929,
            1_675_714, 1_710_643],
        tenants: [0, 19, 11, 58, 0, 96, 0, 0, 11, 0, 11, 0, 0, 0, 0],
    },
    Class {
        gpus_max: u32::MAX,
        seconds: [1, 2, 4, 5, 330, 419, 815, 874, 1_103, 1_258, 1_665, 2_650, 3_718, 8_194, 30_676, 46_070, 47_498, 50_800,
            53_638, 55_848, 59_596, 71_481, 77_355, 113_637, 124_276, 144_112, 178_707, 199_464, 209_843, 213_302],
        tenants: [0, 0, 0, 2, 0, 23, 0, 0, 0, 51, 7, 0, 0, 0, 0],
    },
];

fn class_of(gpus: u32) -> usize {
    CLASSES
        .iter()
        .position(|c| gpus <= c.gpus_max)
        .unwrap_or(CLASSES.len() - 1)
}

/// Draws run times by width.
pub(super) struct DurationTable {
    /// Logarithms of the quantiles.
    logs: Vec<[f64; LEVELS.len()]>,
}

impl DurationTable {
    pub(super) fn new() -> Self {
        let logs = CLASSES
            .iter()
            .map(|class| class.seconds.map(|s| libm::log(f64::from(s))))
            .collect();
        Self { logs }
    }

    /// Returns the run time in seconds of a job with this many GPUs; between quantiles the logarithm grows evenly.
    pub(super) fn draw(&self, random: &mut Random, gpus: u32) -> f64 {
        let share = random.unit();
        let logs = &self.logs[class_of(gpus)];
        let above = LEVELS
            .partition_point(|level| *level <= share)
            .clamp(1, LEVELS.len() - 1);
        let (low, high) = (LEVELS[above - 1], LEVELS[above]);
        let part = (share - low) / (high - low);
        libm::exp(logs[above - 1] + (logs[above] - logs[above - 1]) * part).round()
    }
}

/// Draws tenants by width.
pub(super) struct TenantTable {
    weights: Vec<Weights>,
}

impl TenantTable {
    pub(super) fn new() -> Self {
        let weights = CLASSES
            .iter()
            .map(|class| Weights::new(class.tenants.map(f64::from)));
        Self {
            weights: weights.collect(),
        }
    }

    pub(super) fn draw(&self, random: &mut Random, gpus: u32) -> usize {
        self.weights[class_of(gpus)].draw(random)
    }
}
