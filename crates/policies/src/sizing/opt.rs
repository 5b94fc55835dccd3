//! Opt: as `tune`, but the rest of a node is divided optimally.
//!
//! Synergy's optimum is a program in two phases: first a point (CPU, memory) for every job that maximizes the sum of speeds
//! as if the cluster were one machine, then the placement of jobs on servers. The first phase is [`cluster_bound`]: no
//! division among the same jobs does better. Here the order is reversed, since jobs are already placed: floors make sure
//! that a job can start wherever GPUs are free, and for the jobs of each node the program is solved exactly.

use std::collections::BTreeMap;

use dovetail_engine::{Ask, Cluster, Job, Need, NeedSet, NodeFilling, NodeJob, NodeState, Part, Sizing};
use dovetail_model::run::SolverStats;
use dovetail_model::{JobSpec, Sensitivity, Share};
pub use dovetail_solve::choice::BUDGET;
use dovetail_solve::choice::{Choice, Kind, Point, choose};

use super::share::{ENOUGH, ask_for, enough, floor, percent};
use crate::knobs::Knob;
use crate::registry::{self, Entry};

/// Step between points that were not measured: a whole CPU.
const CORE_MILLI: u32 = 1000;
/// Number of steps between two measured amounts of memory.
const MEMORY_STEPS: u64 = 4;

pub(super) const ENTRY: Entry<dyn Sizing> = Entry {
    name: "opt",
    what: "as tune, but on every node the rest is divided so that the sum of speeds is largest (exact)",
    source: "Synergy (OSDI'22), Synergy-OPT, node by node",
    key: "largest sum of speeds, each times its GPUs",
    companions: &[(registry::Kind::Placement, "complement")],
    knobs: &[
        Knob {
            name: "weight",
            default: "gpus",
            what: "weight of a job's speed in the sum: gpus (its number of GPUs) or jobs (one)",
        },
        Knob {
            name: "budget",
            default: "65536",
            what: "partial solutions kept per node, over all jobs; if too small, the result may not be optimal",
        },
        ENOUGH,
    ],
    build: |knobs| {
        let weight = match knobs.text("weight") {
            "gpus" => Weight::Gpus,
            "jobs" => Weight::Jobs,
            _ => return Err(knobs.invalid("weight", "gpus or jobs")),
        };
        Ok(Box::new(Opt {
            weight,
            budget: knobs.get("budget", "a whole number")?,
            enough: percent(knobs)?,
            solved: SolverStats::default(),
            name: knobs.name(),
        }))
    },
};

/// Weight of a job's speed in the sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// Its number of GPUs.
    Gpus,
    /// One.
    Jobs,
}

impl Weight {
    fn of(self, gpus: u32) -> u64 {
        match self {
            Self::Gpus => gpus.into(),
            Self::Jobs => 1,
        }
    }
}

/// Floors for all jobs, the rest divided optimally.
#[derive(Debug, Clone)]
struct Opt {
    weight: Weight,
    budget: usize,
    enough: u32,
    solved: SolverStats,
    name: String,
}

impl Part for Opt {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn needs(&self) -> NeedSet {
        [Need::CpuCurve, Need::Resize].into()
    }
}

impl Sizing for Opt {
    fn ask(&self, job: &Job, cluster: &Cluster) -> Ask {
        ask_for(job, floor(&job.spec, cluster.least_share()))
    }

    fn asks_by_shape(&self) -> bool {
        true
    }

    fn solver_stats(&self) -> SolverStats {
        self.solved
    }

    fn filling(&mut self) -> Option<&mut dyn NodeFilling> {
        Some(self)
    }
}

impl NodeFilling for Opt {
    fn starts_with_headroom_first(&self) -> bool {
        self.enough > 0
    }

    fn headroom(&self, job: &Job, cluster: &Cluster) -> Option<Share> {
        enough(&job.spec, cluster, self.enough)
    }

    fn fill(&mut self, node: &NodeState, left: Share, jobs: &[NodeJob<'_>]) -> Vec<Share> {
        let fair = node.spec.proportional();
        let mut rest = left;
        let mut portions: Vec<Portion> = jobs
            .iter()
            .map(|job| Portion::at_floor(job, fair, &mut rest))
            .collect();
        let options: Vec<Vec<(Share, Point)>> = jobs
            .iter()
            .zip(&portions)
            .map(|(job, portion)| portion.options(job, node, rest, self.weight))
            .collect();
        let kind = |options: &Vec<(Share, Point)>| Kind {
            count: 1,
            points: options.iter().map(|(_, point)| *point).collect(),
            floor: 0,
        };
        let kinds: Vec<Kind> = options.iter().map(kind).collect();
        let capacity = [u64::from(rest.cpu_milli), rest.memory_mib];
        if let Some(choice) = choose(&kinds, capacity, self.budget) {
            self.solved.add(choice.gap_ppm(), choice.exact);
            for ((portion, options), chosen) in portions.iter_mut().zip(&options).zip(&choice.chosen) {
                let point = chosen.iter().position(|count| *count > 0).unwrap_or(0);
                portion.per_gpu = options[point].0;
            }
        }
        portions
            .iter()
            .map(|p| p.per_gpu.times(p.gpus).plus(p.remainder))
            .collect()
    }
}

/// CPU and memory of a job on a node.
struct Portion {
    gpus: u32,
    /// CPU and memory per GPU.
    per_gpu: Share,
    /// The part of the promised share that is not a multiple of the GPUs.
    remainder: Share,
}

impl Portion {
    /// Starts with the floor on this node, or with the cap that another of the job's nodes sets, if the rest suffices.
    fn at_floor(node_job: &NodeJob<'_>, fair: Share, rest: &mut Share) -> Self {
        let promised = node_job.promised.over(node_job.gpus);
        let target = node_job.cap.unwrap_or_else(|| floor(&node_job.job.spec, fair));
        let more = target.at_least(promised).minus(promised);
        let per_gpu = if rest.covers(more.times(node_job.gpus)) {
            *rest = rest.minus(more.times(node_job.gpus));
            promised.plus(more)
        } else {
            promised
        };
        Self {
            gpus: node_job.gpus,
            per_gpu,
            remainder: node_job.promised.minus(promised.times(node_job.gpus)),
        }
    }

    /// The shares the job could have, its present one first, each with its cost in CPU and memory and its gain.
    fn options(
        &self,
        node_job: &NodeJob<'_>,
        node: &NodeState,
        rest: Share,
        weight: Weight,
    ) -> Vec<(Share, Point)> {
        let curve = node_job
            .job
            .spec
            .sensitivity
            .as_deref()
            .filter(|_| node_job.cap.is_none());
        let gain = |share| curve.map_or(0, |c| u64::from(c.rate(share).0) * weight.of(self.gpus));
        let now = Point {
            weight: [0; 2],
            gain: gain(self.per_gpu),
        };
        let mut options = vec![(self.per_gpu, now)];
        let Some(curve) = curve else { return options };
        let whole = Share::new(node.spec.cpu_milli, node.spec.memory_mib).over(self.gpus);
        for share in shares_above(curve, self.per_gpu, whole) {
            let more = share.minus(self.per_gpu).times(self.gpus);
            if rest.covers(more) && gain(share) > now.gain {
                let point = Point {
                    weight: [u64::from(more.cpu_milli), more.memory_mib],
                    gain: gain(share),
                };
                options.push((share, point));
            }
        }
        options
    }
}

/// Shares from `least` to the ideal, within `most`: measured amounts, and whole CPUs and parts of memory between them.
fn shares_above(curve: &Sensitivity, least: Share, most: Share) -> Vec<Share> {
    let ideal = curve.ideal().at_most(most).at_least(least);
    let cores = (least.cpu_milli / CORE_MILLI + 1)..=(ideal.cpu_milli / CORE_MILLI);
    let mut cpus: Vec<u32> = cores.map(|c| c * CORE_MILLI).collect();
    cpus.extend([least.cpu_milli, ideal.cpu_milli]);
    cpus.sort_unstable();
    cpus.dedup();
    let between = |m: &u64| *m > least.memory_mib && *m < ideal.memory_mib;
    let measured = curve.points().memory_mib.iter().copied().filter(between);
    let mut known: Vec<u64> = measured.chain([least.memory_mib, ideal.memory_mib]).collect();
    known.sort_unstable();
    let steps = |pair: &[u64]| {
        let (low, high) = (pair[0], pair[1]);
        (0..MEMORY_STEPS).map(move |i| low + (high - low) * i / MEMORY_STEPS)
    };
    let mut memories: Vec<u64> = known.windows(2).flat_map(steps).collect();
    memories.push(ideal.memory_mib);
    memories.dedup();
    cpus.iter()
        .flat_map(|cpu| memories.iter().map(|memory| Share::new(*cpu, *memory)))
        .collect()
}

/// The largest sum of speeds that these jobs could have if the cluster were one machine with `capacity` CPU and memory, no
/// job being slower than with the proportional share `fair`, and none having a larger share per GPU than the one given with
/// it. `None` if their floors do not fit. `budget` is as in [`choose`].
///
/// Jobs without a curve count with full speed and their proportional share.
pub fn cluster_bound<'a>(
    jobs: impl IntoIterator<Item = (&'a JobSpec, Share)>,
    capacity: [u64; 2],
    fair: Share,
    weight: Weight,
    budget: usize,
) -> Option<Choice> {
    choose(&cluster_program(jobs, fair, weight), capacity, budget)
}

/// The program that [`cluster_bound`] solves: jobs with the same curve and width are one kind.
pub fn cluster_program<'a>(
    jobs: impl IntoIterator<Item = (&'a JobSpec, Share)>,
    fair: Share,
    weight: Weight,
) -> Vec<Kind> {
    type Shape = (Option<u64>, u32, Share, Share);
    let mut counts: BTreeMap<Shape, (&JobSpec, u32)> = BTreeMap::new();
    for (job, most) in jobs {
        let curve = job.sensitivity.as_deref().map(Sensitivity::fingerprint);
        let key = (curve, job.gpus, floor(job, fair), most);
        counts.entry(key).or_insert((job, 0)).1 += 1;
    }
    counts
        .into_iter()
        .map(|((_, gpus, least, most), (job, count))| {
            let full = u64::from(dovetail_model::Rate::FULL.0);
            let point = |share: Share| Point {
                weight: [
                    u64::from(share.cpu_milli) * u64::from(gpus),
                    share.memory_mib * u64::from(gpus),
                ],
                gain: weight.of(gpus)
                    * job
                        .sensitivity
                        .as_ref()
                        .map_or(full, |c| u64::from(c.rate(share).0)),
            };
            let mut points = vec![point(least)];
            if let Some(curve) = &job.sensitivity {
                points.extend(shares_below_and_above(curve, least, most).into_iter().map(point));
            }
            let slowest = points[0].gain;
            points.retain(|p| p.gain >= slowest);
            Kind {
                count,
                points,
                floor: 0,
            }
        })
        .collect()
}

/// All shares up to the ideal one: a job may trade memory for CPU as long as it is no slower.
fn shares_below_and_above(curve: &Sensitivity, floor: Share, most: Share) -> Vec<Share> {
    let first = curve.points();
    let least = Share::new(
        first.cpu_milli[0].min(floor.cpu_milli),
        first.memory_mib[0].min(floor.memory_mib),
    );
    let mut shares = shares_above(curve, least, most);
    shares.extend(shares_above(curve, floor, most));
    shares
}
