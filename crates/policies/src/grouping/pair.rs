//! Pairs: a job without free GPUs starts beside running jobs, at most two on one GPU.
//!
//! Unlike Muri's groups, pairs need not be of equal width: a job may share some of its GPUs and have the others to itself.
//! No job is moved for it. One of three rules decides which GPUs it gets:
//!
//! - `ffs`, first-fit sharing: idle GPUs first, then those with one job, on the least loaded node.
//! - `bsbf`, best sharing benefit first: next to the job B with which the mean time to the end of both is shortest, and
//!   only if that is less than running one after the other. With slowdowns ξ and run times left L, if `ξa·La >= ξb·Lb`
//!   that mean is `La/2 + (1 − 1/(2ξa))·ξb·Lb`, else the same with a and b exchanged; one after the other it is
//!   `Lb + La/2`. If run times are unknown, both count as equally long, and the slowdowns decide.
//! - `antman`: jobs of priority zero and above are guaranteed: no other guaranteed job is on their GPUs, and they are not
//!   slowed down. Others are opportunistic: they run anywhere with at most one other job, least loaded first.

use std::collections::BTreeMap;

use dovetail_engine::cluster::NodeState;
use dovetail_engine::{Ask, Claim, Feature, Grouping, Job, Need, NeedSet, Occupancy, Part};
use dovetail_model::stages::Contention;
use dovetail_model::{Allocation, GpuSet, GpuTypeId, JobKey, NodeId, NodeShare, SharingTerms, Speeds, Time};

use crate::knobs::Knob;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn Grouping> = Entry {
    name: "pair",
    what: "a job without free GPUs starts beside running jobs of any width, at most two on a GPU",
    source: "SJF-FFS and SJF-BSBF (wise resource sharing, 2024), AntMan (OSDI'20)",
    key: "bsbf: shortest mean time to the end of both, if less than one after the other; ffs, antman: least loaded",
    companions: &[
        (Kind::Discipline, "share"),
        (Kind::Discipline, "share:preempt=true"),
    ],
    knobs: &[
        Knob {
            name: "by",
            default: "bsbf",
            what: "ffs: first fit; bsbf: best sharing benefit first; antman: guaranteed and opportunistic jobs",
        },
        Knob {
            name: "mps",
            default: "false",
            what: "true: kernels of both jobs run at once (NVIDIA MPS), so sharing costs less",
        },
        Knob {
            name: "consolidate",
            default: "true",
            what: "true: fewest nodes before best partners; false: best partners anywhere",
        },
    ],
    build: |knobs| {
        let by = match knobs.text("by") {
            "ffs" => Rule::FirstFit,
            "bsbf" => Rule::Benefit,
            "antman" => Rule::Guarantee,
            _ => return Err(knobs.invalid("by", "ffs, bsbf or antman")),
        };
        Ok(Box::new(Pair {
            by,
            mps: knobs.get("mps", "true or false")?,
            consolidate: knobs.get("consolidate", "true or false")?,
            contention: Contention::default(),
            name: knobs.name(),
        }))
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    FirstFit,
    Benefit,
    Guarantee,
}

/// At most two jobs on a GPU.
#[derive(Debug, Clone)]
struct Pair {
    by: Rule,
    mps: bool,
    consolidate: bool,
    contention: Contention,
    name: String,
}

impl Part for Pair {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn needs(&self) -> NeedSet {
        NeedSet::from(Need::Sharing).and_if(self.by == Rule::Benefit, Need::Slowdowns)
    }

    fn hints(&self) -> NeedSet {
        match self.by {
            Rule::Benefit => [Need::RemainingTime, Need::Rate, Need::Stages].into(),
            Rule::FirstFit | Rule::Guarantee => NeedSet::EMPTY,
        }
    }

    fn requires(&self) -> &'static [Feature] {
        &[Feature::SharedStarts]
    }
}

/// A GPU with its rating, best first: idle ones, then by partner, then by the load of its node. Ties are broken by the
/// partner, so that its GPUs stay together, then by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RatedGpu {
    shared: bool,
    rating: i64,
    load_ppm: u32,
    partner: Option<JobKey>,
    node: NodeId,
    slot: u32,
}

/// The suitable GPUs of one node, best first, and how many of them the node has CPU and memory for.
struct Offer {
    room: u32,
    rated: Vec<RatedGpu>,
}

impl Grouping for Pair {
    fn group(&mut self, queue: &[(&Job, u32)], _gpus: u32, _now: Time) -> Vec<Claim> {
        super::alone(queue)
    }

    fn terms(&self) -> SharingTerms {
        let speeds = match self.by {
            Rule::FirstFit | Rule::Benefit => Speeds::Paired { mps: self.mps },
            Rule::Guarantee => Speeds::Guaranteed { mps: self.mps },
        };
        SharingTerms {
            max_jobs: 2,
            overlap: true,
            speeds,
        }
    }

    fn place_beside(&mut self, job: &Job, ask: &Ask, view: &Occupancy<'_>, now: Time) -> Option<Allocation> {
        // A gang does not mix GPU types.
        let types = view.cluster().types(ask.gpu_type);
        types
            .into_iter()
            .find_map(|gpu_type| self.on_type(gpu_type, job, ask, view, now))
    }
}

impl Pair {
    fn on_type(
        &self,
        gpu_type: GpuTypeId,
        job: &Job,
        ask: &Ask,
        view: &Occupancy<'_>,
        now: Time,
    ) -> Option<Allocation> {
        let mut ratings = BTreeMap::new();
        let mut rate = |other: JobKey| {
            *ratings
                .entry(other)
                .or_insert_with(|| self.rating(job, view.job(other), view, now))
        };
        let offers: Vec<Offer> = view
            .cluster()
            .nodes()
            .filter(|(_, node)| {
                node.is_open() && node.spec.gpu_type == gpu_type && node.admits(ask.constraint)
            })
            .map(|(id, node)| offer(id, node, ask, view, &mut rate))
            .filter(|offer| offer.room > 0)
            .collect();
        if offers.iter().map(|o| o.room).sum::<u32>() < ask.gpus {
            return None;
        }
        let chosen = if self.consolidate {
            on_fewest_nodes(offers, ask.gpus)
        } else {
            anywhere(offers, ask.gpus)
        };
        Some(allocation(chosen, ask, view))
    }

    /// How good it is to run beside the other job, smaller is better; `None` if they may not share.
    fn rating(&self, job: &Job, other: &Job, view: &Occupancy<'_>, now: Time) -> Option<i64> {
        let guaranteed = |job: &Job| job.spec.priority >= 0;
        match self.by {
            Rule::FirstFit => Some(0),
            Rule::Benefit => self.benefit(job, other, view, now),
            Rule::Guarantee if guaranteed(job) && guaranteed(other) => None,
            Rule::Guarantee => Some(i64::from(!guaranteed(other))),
        }
    }

    /// The mean time to the end of both if they share, in microseconds, if that is less than one after the other.
    fn benefit(&self, job: &Job, other: &Job, view: &Occupancy<'_>, now: Time) -> Option<i64> {
        let (left_a, left_b) = match (job.remaining(now), other.remaining(now)) {
            (Some(a), Some(b)) => (a.0 as f64, b.0 as f64),
            _ => (1e6, 1e6),
        };
        let [slow_a, slow_b] =
            view.slowdowns()
                .of_pair(&job.member(), &other.member(), self.mps, &self.contention);
        let together = mean_end(left_a, slow_a, left_b, slow_b);
        (together < left_b + left_a / 2.0).then_some(together as i64)
    }
}

/// The mean time to the end of two jobs that share until the first of them has finished.
fn mean_end(left_a: f64, slow_a: f64, left_b: f64, slow_b: f64) -> f64 {
    let (ends_a, ends_b) = (slow_a * left_a, slow_b * left_b);
    if ends_a >= ends_b {
        left_a / 2.0 + (1.0 - 1.0 / (2.0 * slow_a)) * ends_b
    } else {
        left_b / 2.0 + (1.0 - 1.0 / (2.0 * slow_b)) * ends_a
    }
}

/// The GPUs of a node for this request: idle ones, and those with one job that it may share with.
fn offer(
    id: NodeId,
    node: &NodeState,
    ask: &Ask,
    view: &Occupancy<'_>,
    rate: &mut impl FnMut(JobKey) -> Option<i64>,
) -> Offer {
    let by_cpu = node.free_cpu_milli.checked_div(ask.cpu_milli_per_gpu);
    let by_memory = node.free_memory_mib.checked_div(ask.memory_mib_per_gpu);
    let room = by_cpu
        .unwrap_or(u32::MAX)
        .min(by_memory.map_or(u32::MAX, |m| u32::try_from(m).unwrap_or(u32::MAX)));
    let held: usize = (0..node.spec.gpus).map(|slot| view.jobs_on(id, slot).len()).sum();
    let load_ppm = (held as u64 * 1_000_000 / u64::from(node.spec.gpus.max(1))) as u32;
    let mut rated: Vec<RatedGpu> = Vec::new();
    for slot in 0..node.spec.gpus {
        let (partner, rating) = match view.jobs_on(id, slot) {
            _ if !node.has_gpu_memory(slot, ask.gpu_memory_mib) => continue,
            [] => (None, Some(0)),
            [one] => (Some(*one), rate(*one)),
            _ => continue,
        };
        if let Some(rating) = rating {
            rated.push(RatedGpu {
                shared: partner.is_some(),
                rating,
                load_ppm,
                partner,
                node: id,
                slot,
            });
        }
    }
    rated.sort_unstable();
    let room = room.min(rated.len() as u32);
    rated.truncate(room as usize);
    Offer { room, rated }
}

/// The best GPUs of all nodes.
fn anywhere(offers: Vec<Offer>, gpus: u32) -> Vec<RatedGpu> {
    let mut rated: Vec<RatedGpu> = offers.into_iter().flat_map(|o| o.rated).collect();
    rated.sort_unstable();
    rated.truncate(gpus as usize);
    rated
}

/// The node whose worst GPU is best among those with enough; else nodes with the most GPUs first.
fn on_fewest_nodes(mut offers: Vec<Offer>, gpus: u32) -> Vec<RatedGpu> {
    let enough = offers.iter().filter(|o| o.room >= gpus);
    if let Some(best) = enough.min_by_key(|o| o.rated[gpus as usize - 1]) {
        return best.rated[..gpus as usize].to_vec();
    }
    offers.sort_by_key(|o| (std::cmp::Reverse(o.room), o.rated[o.room as usize - 1]));
    let mut left = gpus as usize;
    let mut chosen = Vec::new();
    for offer in offers {
        let here = left.min(offer.rated.len());
        chosen.extend_from_slice(&offer.rated[..here]);
        left -= here;
    }
    chosen
}

fn allocation(mut rated: Vec<RatedGpu>, ask: &Ask, view: &Occupancy<'_>) -> Allocation {
    rated.sort_unstable_by_key(|s| (s.node, s.slot));
    let mut allocation = Allocation::default();
    for here in rated.chunk_by(|a, b| a.node == b.node) {
        let node = here[0].node;
        let slots = view.cluster().node(node).map_or(0, |n| n.spec.gpus);
        let mut gpus = GpuSet::empty(slots);
        here.iter().for_each(|gpu| gpus.insert(gpu.slot));
        let count = here.len() as u32;
        allocation.shares.push(NodeShare {
            node,
            gpus,
            cpu_milli: ask.cpu_milli_per_gpu * count,
            memory_mib: ask.memory_mib_per_gpu * u64::from(count),
        });
    }
    allocation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_end_of_two_sharing_jobs_follows_the_formula() {
        // Equal jobs that halve each other's speed end together, on average later than one after the other.
        assert_eq!(mean_end(100.0, 2.0, 100.0, 2.0), 200.0);
        assert_eq!(mean_end(100.0, 1.0, 100.0, 1.0), 100.0);
        // The short one ends at 15; the long one has done 10 by then and needs 90 more.
        assert_eq!(mean_end(100.0, 1.5, 10.0, 1.5), (15.0 + 105.0) / 2.0);
        assert_eq!(mean_end(10.0, 1.5, 100.0, 1.5), mean_end(100.0, 1.5, 10.0, 1.5));
    }
}
