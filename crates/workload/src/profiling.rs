//! Optimistic profiling: few measurements, the rest is computed (Synergy, OSDI'22).
//!
//! Only CPU is measured, from the largest number downwards ([`CpuWalk`]). The effect of memory is computed: it caches the
//! data set, and what is not cached is read from disk in every epoch ([`DataSet`]).

use dovetail_model::sensitivity::{Points, SensitivityError};
use dovetail_model::{Rate, Sensitivity};

/// Speeds that differ by less than this count as equal: measuring between them adds nothing.
const EQUAL: f64 = 0.10;
/// Tolerance for speeds in proportion to CPUs.
const PROPORTIONAL: f64 = 0.05;

/// A measured rate with its 95 % confidence interval, in iterations per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement {
    /// The mean.
    pub rate: f64,
    /// Half the width of the interval.
    pub plus_minus: f64,
    /// Number of iterations counted.
    pub iterations: f64,
    /// Duration of these iterations, in seconds.
    pub seconds: f64,
}

impl Measurement {
    /// Computes the rate from moments (in seconds) with the number of iterations done by then. The time before the first
    /// moment is start-up and does not count. `None` for fewer than two moments, or without progress.
    pub fn of(moments: &[(f64, f64)]) -> Option<Self> {
        let (first, last) = (moments.first()?, moments.last()?);
        let (seconds, iterations) = (last.0 - first.0, last.1 - first.1);
        if seconds <= 0.0 || iterations <= 0.0 {
            return None;
        }
        // Slices of equal time, because neighbouring iterations are correlated and slices hardly are.
        let slices = ((moments.len() - 1) / 4).clamp(1, 10);
        let each = seconds / slices as f64;
        let done_by = |time: f64| {
            let above = moments.partition_point(|m| m.0 < time).min(moments.len() - 1);
            let (b, a) = (moments[above], moments[above.saturating_sub(1)]);
            if b.0 <= a.0 {
                return b.1;
            }
            a.1 + (b.1 - a.1) * ((time - a.0) / (b.0 - a.0)).clamp(0.0, 1.0)
        };
        let rate_in = |i: usize| {
            let from = first.0 + each * i as f64;
            (done_by(from + each) - done_by(from)) / each
        };
        let rates: Vec<f64> = (0..slices).map(rate_in).collect();
        let rate = iterations / seconds;
        Some(Self {
            rate,
            plus_minus: half_width(&rates).unwrap_or(rate),
            iterations,
            seconds,
        })
    }
}

/// Returns half the width of the 95 % confidence interval of a mean; `None` for fewer than two values.
fn half_width(values: &[f64]) -> Option<f64> {
    /// Student's t for 1 to 9 degrees of freedom.
    const T: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];
    let n = values.len() as f64;
    let t = T.get(values.len().checked_sub(2)?)?;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some(t * (variance / n).sqrt())
}

/// Selects the numbers of CPUs to measure, from the largest downwards.
#[derive(Debug, Clone)]
pub struct CpuWalk {
    step: u32,
    last: Option<(u32, f64)>,
    next: Option<u32>,
    /// The number of CPUs to continue at after measuring the knee.
    after_knee: Option<Option<u32>>,
    /// Why the walk ended.
    pub ended: &'static str,
}

impl CpuWalk {
    /// Starts with the most CPUs. Each step removes `step` of them (one per GPU), or half of all if the last step made no
    /// difference. If halving went too far, the number at which speed should begin to decrease is measured too.
    pub fn new(most: u32, step: u32) -> Self {
        Self {
            step: step.max(1),
            last: None,
            next: (most > 0).then_some(most),
            after_knee: None,
            ended: "",
        }
    }

    /// Returns the number of CPUs to measure next; `None` when more points would add nothing.
    pub fn next(&self) -> Option<u32> {
        self.next
    }

    /// Records the rate measured with this number of CPUs.
    pub fn measured(&mut self, cpus: u32, rate: f64) {
        if let Some(next) = self.after_knee.take() {
            self.next = next;
            return;
        }
        let before = self.last.replace((cpus, rate));
        let less = |n: u32| cpus.checked_sub(n).filter(|left| *left > 0);
        self.next = match before {
            None => less(self.step),
            Some((_, r)) if rate >= r * (1.0 - EQUAL) => less(cpus.div_ceil(2)),
            Some((c, r)) => {
                let expected = r * f64::from(cpus) / f64::from(c);
                if (rate - expected).abs() <= expected * PROPORTIONAL && cpus > self.step {
                    self.ended = "speed is proportional to CPUs from here down";
                    None
                } else {
                    less(self.step)
                }
            }
        };
        if let Some((c, r)) = before.filter(|(c, r)| c - cpus > self.step && rate < r * (1.0 - EQUAL)) {
            let knee = (f64::from(cpus) * r / rate).ceil() as u32;
            if knee > cpus && knee < c {
                self.after_knee = Some(self.next);
                self.next = Some(knee);
            }
        }
        if self.next.or(self.after_knee.flatten()).is_none() && self.ended.is_empty() {
            self.ended = "reached the fewest CPUs";
        }
    }
}

/// The data that a job reads in each epoch, and the bandwidths of disk and cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataSet {
    /// Size, in GB.
    pub gb: f64,
    /// Iterations in which all of it is read once.
    pub epoch_iterations: f64,
    /// Bandwidth of the disk, in MB/s.
    pub disk_mbps: f64,
    /// Bandwidth of the cache in memory, in GB/s.
    pub memory_gbps: f64,
}

impl DataSet {
    /// Returns the iterations per second with `cached_gb` of the data cached, if computing alone would allow `compute`.
    pub fn rate(&self, compute: f64, cached_gb: f64) -> f64 {
        let cached = cached_gb.clamp(0.0, self.gb);
        let from_cache = cached / self.memory_gbps;
        let from_disk = (self.gb - cached) * 1024.0 / self.disk_mbps;
        let computing = self.epoch_iterations / compute;
        self.epoch_iterations / computing.max(from_cache + from_disk)
    }
}

/// Measurements of a job: iterations per second by number of CPUs, and the data it reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// GPUs it ran on; amounts in the result are per GPU.
    pub gpus: u32,
    /// CPUs and iterations per second, in any order.
    pub rates: Vec<(u32, f64)>,
    /// Memory it needs for itself, in GB.
    pub working_gb: f64,
    /// The data; `None` if it is small or generated, so that more memory does not matter.
    pub data: Option<DataSet>,
    /// Shares of the data set that a cache could hold, ascending from 0 to 1.
    pub cached: Vec<f64>,
}

impl Curve {
    /// Returns rates by CPUs, ascending. A lower rate with more CPUs is noise and is raised.
    fn monotone(&self) -> Vec<(u32, f64)> {
        let mut rates = self.rates.clone();
        rates.sort_by_key(|(cpus, _)| *cpus);
        rates.dedup_by_key(|(cpus, _)| *cpus);
        let mut most = 0.0f64;
        for (_, rate) in &mut rates {
            most = most.max(*rate);
            *rate = most;
        }
        rates
    }

    /// Returns the amounts of memory in the result, in GB, and how much of each is cache.
    fn memory_axis(&self) -> Vec<(f64, f64)> {
        match &self.data {
            None => vec![(self.working_gb, 0.0)],
            Some(data) => {
                let cached = self.cached.iter().map(|share| share * data.gb);
                cached.map(|gb| (self.working_gb + gb, gb)).collect()
            }
        }
    }

    /// Returns iterations per second by CPUs and memory: measured along CPUs, computed along memory.
    pub fn grid(&self) -> Vec<(u32, Vec<(f64, f64)>)> {
        let row = |compute: f64| {
            let cell = |(memory, cached): (f64, f64)| {
                let rate = self.data.map_or(compute, |data| data.rate(compute, cached));
                (memory, rate)
            };
            self.memory_axis().into_iter().map(cell).collect()
        };
        self.monotone()
            .into_iter()
            .map(|(cpus, rate)| (cpus, row(rate)))
            .collect()
    }

    /// Returns the speeds relative to the rate `full`, per GPU.
    ///
    /// # Errors
    /// If there are no points.
    pub fn sensitivity(&self, full: f64) -> Result<Sensitivity, SensitivityError> {
        let gpus = f64::from(self.gpus.max(1));
        let grid = self.grid();
        let rates = grid.iter().flat_map(|(_, row)| row.iter());
        let axis = self.memory_axis();
        Sensitivity::try_from(Points {
            cpu_milli: grid
                .iter()
                .map(|(cpus, _)| (f64::from(*cpus) * 1000.0 / gpus).round() as u32)
                .collect(),
            memory_mib: axis
                .iter()
                .map(|(gb, _)| (gb * 1024.0 / gpus).round() as u64)
                .collect(),
            rates: rates.map(|(_, rate)| Rate::from_factor(rate / full)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(most: u32, step: u32, rate: impl Fn(u32) -> f64) -> (Vec<u32>, &'static str) {
        let mut walk = CpuWalk::new(most, step);
        let mut visited = Vec::new();
        while let Some(cpus) = walk.next() {
            visited.push(cpus);
            walk.measured(cpus, rate(cpus));
        }
        (visited, walk.ended)
    }

    #[test]
    fn cpus_are_halved_while_they_make_no_difference() {
        assert_eq!(walk(24, 1, |_| 5.0).0, [24, 23, 11, 5, 2, 1]);
        let saturated = |cpus: u32| f64::from(cpus.min(6));
        let (visited, ended) = walk(24, 1, saturated);
        assert_eq!(visited, [24, 23, 11, 5, 6, 4]);
        assert_eq!(ended, "speed is proportional to CPUs from here down");
    }

    #[test]
    fn a_job_in_proportion_to_cpus_needs_two_points() {
        assert_eq!(walk(16, 1, f64::from).0, [16, 15, 7]);
        assert_eq!(walk(8, 1, f64::from).0, [8, 7]);
        assert_eq!(walk(2, 1, f64::from).0, [2, 1]);
        assert_eq!(walk(1, 1, f64::from).0, [1]);
        assert_eq!(walk(8, 4, |c| f64::from(c).sqrt()).0, [8, 4]);
    }

    #[test]
    fn steady_iterations_have_a_narrow_interval_and_uneven_ones_a_wide_one() {
        let steady: Vec<(f64, f64)> = (0..100)
            .map(|i| (f64::from(i) * 0.1 + 7.0, f64::from(i)))
            .collect();
        let found = Measurement::of(&steady).unwrap();
        assert!(
            (found.rate - 10.0).abs() < 1e-9 && found.plus_minus < 1e-6,
            "{found:?}"
        );
        let uneven: Vec<(f64, f64)> = (0..100)
            .map(|i| (f64::from(i).powi(2) * 1e-3, f64::from(i)))
            .collect();
        let found = Measurement::of(&uneven).unwrap();
        assert!(found.plus_minus > 0.2 * found.rate, "{found:?}");
        assert_eq!(Measurement::of(&[(0.0, 1.0)]), None);
        assert_eq!(Measurement::of(&[(0.0, 1.0), (1.0, 1.0)]), None);
        let two = Measurement::of(&[(0.0, 1.0), (0.5, 2.0)]).unwrap();
        assert_eq!((two.rate, two.plus_minus), (2.0, 2.0));
    }

    #[test]
    fn an_epoch_takes_as_long_as_the_slower_of_computing_and_reading() {
        let data = DataSet {
            gb: 100.0,
            epoch_iterations: 1000.0,
            disk_mbps: 512.0,
            memory_gbps: 10.0,
        };
        // All from disk takes 200 s, half of it 100 s and 5 s for the cache, nothing 10 s.
        assert_eq!(data.rate(1000.0, 0.0), 5.0);
        assert_eq!(data.rate(1000.0, 50.0), 1000.0 / 105.0);
        assert_eq!(data.rate(1000.0, 500.0), 100.0);
        assert_eq!(data.rate(2.0, 0.0), 2.0);
    }

    #[test]
    fn a_curve_is_converted_to_monotone_speeds() {
        let curve = Curve {
            gpus: 2,
            rates: vec![(8, 99.0), (4, 100.0), (2, 50.0)],
            working_gb: 2.0,
            data: Some(DataSet {
                gb: 100.0,
                epoch_iterations: 1000.0,
                disk_mbps: 512.0,
                memory_gbps: 1000.0,
            }),
            cached: vec![0.0, 0.5, 1.0],
        };
        let found = curve.sensitivity(100.0).unwrap();
        let points = found.points();
        assert_eq!(points.cpu_milli, [1000, 2000, 4000]);
        assert_eq!(points.memory_mib, [1024, 26 * 1024, 51 * 1024]);
        assert_eq!(found.top(), Rate::FULL);
        assert_eq!(points.rates[0], Rate::from_factor(0.05), "bound by the disk");
        assert_eq!(found.ideal().cpu_milli, 2000);
    }
}
