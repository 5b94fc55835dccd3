//! Opt: as `tune`, but what is left on a node is shared out in the best way there is.
//!
//! Synergy's optimum is a program in two phases: a point (CPU, memory) for every job, the most speed in all, as if the
//! cluster were one machine; then jobs onto servers. The first phase is [`cluster_bound`]: no division of the same jobs
//! does better. Here the second phase comes first, since jobs are where they are: floors make sure that a job can start
//! wherever GPUs are free, and on every node the program is solved for the jobs that are there, exactly.

use std::collections::BTreeMap;

use dovetail_engine::{Ask, Cluster, Job, NodeFilling, NodeJob, NodeState, Part, Sizing};
use dovetail_model::run::SolverStats;
use dovetail_model::{JobSpec, Sensitivity, Share};
pub use dovetail_solve::choice::BUDGET;
use dovetail_solve::choice::{Choice, Kind, Point, choose};

use super::share::{ENOUGH, ask_for, enough, floor, percent};
use crate::knobs::Knob;
use crate::registry::{self, Entry};

/// Points between the measured ones are a whole CPU apart.
const CORE_MILLI: u32 = 1000;
/// Between two measured amounts of memory so many steps are tried.
const MEMORY_STEPS: u64 = 4;

pub(super) const ENTRY: Entry<dyn Sizing> = Entry {
    name: "opt",
    what: "as tune, but on every node the rest is shared out so that the sum of speeds is largest; exact",
    source: "Synergy (OSDI'22), Synergy-OPT, node by node",
    key: "largest sum of speeds, each times its GPUs",
    companions: &[(registry::Kind::Placement, "complement")],
    knobs: &[
        Knob {
            name: "weight",
            default: "gpus",
            what: "what a job's speed counts for in the sum: gpus (as many times as it has GPUs) or jobs (once)",
        },
        Knob {
            name: "budget",
            default: "65536",
            what: "partial answers kept on a node, all jobs together; with too few the answer is good, not best",
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
            budget: knobs.get("budget", "a number of partial answers")?,
            enough: percent(knobs)?,
            solved: SolverStats::default(),
            name: knobs.name(),
        }))
    },
};

/// What the speed of a job counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// As many times as it has GPUs.
    Gpus,
    /// Once.
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

/// Floors for all, the rest in the best way.
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

    fn fill(&mut self, node: &NodeState, left: Share, guests: &[NodeJob<'_>]) -> Vec<Share> {
        let fair = node.spec.proportional();
        let mut rest = left;
        let mut seats: Vec<Seat> = guests.iter().map(|g| Seat::new(g, fair, &mut rest)).collect();
        let options: Vec<Vec<(Share, Point)>> = guests
            .iter()
            .zip(&seats)
            .map(|(guest, seat)| seat.options(guest, node, rest, self.weight))
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
            for ((seat, options), chosen) in seats.iter_mut().zip(&options).zip(&choice.chosen) {
                let point = chosen.iter().position(|count| *count > 0).unwrap_or(0);
                seat.each = options[point].0;
            }
        }
        seats.iter().map(|s| s.each.times(s.gpus).plus(s.odd)).collect()
    }
}

/// A job on a node.
struct Seat {
    gpus: u32,
    /// For each GPU.
    each: Share,
    /// What was promised beyond that, where GPUs do not divide it.
    odd: Share,
}

impl Seat {
    /// With its floor on this node, or what another of its nodes leaves it to, as far as there is enough.
    fn new(guest: &NodeJob<'_>, fair: Share, rest: &mut Share) -> Self {
        let promised = guest.promised.over(guest.gpus);
        let wanted = guest.cap.unwrap_or_else(|| floor(&guest.job.spec, fair));
        let more = wanted.at_least(promised).minus(promised);
        let each = if rest.covers(more.times(guest.gpus)) {
            *rest = rest.minus(more.times(guest.gpus));
            promised.plus(more)
        } else {
            promised
        };
        Self {
            gpus: guest.gpus,
            each,
            odd: guest.promised.minus(promised.times(guest.gpus)),
        }
    }

    /// What it could have, as it is now first, each with what that takes of the rest and brings.
    fn options(
        &self,
        guest: &NodeJob<'_>,
        node: &NodeState,
        rest: Share,
        weight: Weight,
    ) -> Vec<(Share, Point)> {
        let curve = guest
            .job
            .spec
            .sensitivity
            .as_deref()
            .filter(|_| guest.cap.is_none());
        let gain = |share| curve.map_or(0, |c| u64::from(c.rate(share).0) * weight.of(self.gpus));
        let now = Point {
            weight: [0; 2],
            gain: gain(self.each),
        };
        let mut options = vec![(self.each, now)];
        let Some(curve) = curve else { return options };
        let whole = Share::new(node.spec.cpu_milli, node.spec.memory_mib).over(self.gpus);
        for share in shares_above(curve, self.each, whole) {
            let more = share.minus(self.each).times(self.gpus);
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

/// The most speed these jobs could have together if the cluster were one machine with so much CPU and memory (summed over
/// its nodes), none of them slower than with the proportional share `fair`, and each with no more beside a GPU than what
/// is named with it. None where their floors do not fit. `budget` as in [`choose`].
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

/// The program that [`cluster_bound`] solves: jobs of the same curve and width are one kind.
pub fn cluster_program<'a>(
    jobs: impl IntoIterator<Item = (&'a JobSpec, Share)>,
    fair: Share,
    weight: Weight,
) -> Vec<Kind> {
    type Alike = (Option<u64>, u32, Share, Share);
    let mut counts: BTreeMap<Alike, (&JobSpec, u32)> = BTreeMap::new();
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

/// All amounts up to the ideal: a job may give up memory for CPU as long as it is no slower.
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
