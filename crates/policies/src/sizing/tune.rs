//! Tune: no job is slower than with its proportional share, and the rest goes to the jobs that it speeds up most.
//!
//! A job is promised its *floor*: the smallest CPU and memory with which it is as fast as with its proportional share. No
//! floor exceeds that share, so a job can always start where GPUs are free. What the floors on a node leave over is divided
//! among its jobs, step by step along their curves: each step goes to the job that gains most speed for the part of the rest
//! it takes. A job that starts later gets its floor out of what was divided, without stopping another one.
//!
//! A job that is sensitive to CPU or memory uses its GPUs badly at its floor. So under a discipline that passes over jobs,
//! those start first that find all they can use beside the ideal shares of the others, as under `greedy`; then those that
//! fit with their floor, on GPUs that `greedy` would leave idle.

use dovetail_engine::{Ask, Cluster, Job, Need, NeedSet, NodeFilling, NodeJob, NodeState, Part, Sizing};
use dovetail_model::{Rate, Sensitivity, Share};

use super::share::{ENOUGH, Floors, ask_for, enough, floor, percent};
use crate::knobs::Knob;
use crate::registry::{Entry, Kind};

pub(super) const ENTRY: Entry<dyn Sizing> = Entry {
    name: "tune",
    what: "no job is slower than with its proportional share of CPU and memory; the rest goes where it speeds up most",
    source: "Synergy (OSDI'22), Synergy-TUNE, along the whole curve",
    key: "floors first, then the largest gain in speed for the part of the rest it takes",
    companions: &[(Kind::Placement, "complement")],
    knobs: &[
        Knob {
            name: "by",
            default: "soonest",
            what: "which jobs get the rest: soonest, those that gain most speed relative to their remaining work, if it \
                   is known; speed, those that gain most speed",
        },
        ENOUGH,
    ],
    build: |knobs| {
        let soonest = match knobs.text("by") {
            "speed" => false,
            "soonest" => true,
            _ => return Err(knobs.invalid("by", "speed or soonest")),
        };
        Ok(Box::new(Tune {
            soonest,
            enough: percent(knobs)?,
            floors: Floors::default(),
            name: knobs.name(),
        }))
    },
};

/// Floors for all jobs, the rest by gain in speed.
#[derive(Debug, Clone)]
struct Tune {
    soonest: bool,
    enough: u32,
    floors: Floors,
    name: String,
}

impl Part for Tune {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn needs(&self) -> NeedSet {
        [Need::CpuCurve, Need::Resize].into()
    }

    fn hints(&self) -> NeedSet {
        NeedSet::EMPTY
            .and_if(self.soonest, Need::RemainingTime)
            .and_if(self.soonest, Need::Rate)
    }
}

impl Sizing for Tune {
    fn ask(&self, job: &Job, cluster: &Cluster) -> Ask {
        ask_for(job, floor(&job.spec, cluster.least_share()))
    }

    fn asks_by_shape(&self) -> bool {
        true
    }

    fn filling(&mut self) -> Option<&mut dyn NodeFilling> {
        Some(self)
    }
}

impl NodeFilling for Tune {
    fn starts_with_headroom_first(&self) -> bool {
        self.enough > 0
    }

    fn headroom(&self, job: &Job, cluster: &Cluster) -> Option<Share> {
        enough(&job.spec, cluster, self.enough)
    }

    fn fill(&mut self, node: &NodeState, left: Share, jobs: &[NodeJob<'_>]) -> Vec<Share> {
        let fair = node.spec.proportional();
        let mut rest = left;
        let mut recipients: Vec<Recipient<'_>> = jobs
            .iter()
            .map(|node_job| {
                let floor = self.floors.of(&node_job.job.spec, fair);
                Recipient::at_floor(node_job, floor, &mut rest, self.soonest)
            })
            .collect();
        if !give_ideal_to_all(&mut recipients, rest) {
            divide_by_gain(&mut recipients, rest);
        }
        recipients
            .iter()
            .map(|r| r.share.times(r.gpus).plus(r.remainder))
            .collect()
    }
}

/// A job on the node that may get more than its floor.
struct Recipient<'a> {
    curve: Option<&'a Sensitivity>,
    gpus: u32,
    /// CPU and memory per GPU.
    share: Share,
    /// The part of the promised share that is not a multiple of the GPUs.
    remainder: Share,
    rate: Rate,
    /// Weight of its gain in speed.
    weight: f64,
}

impl<'a> Recipient<'a> {
    /// Starts with the floor on this node. It may exceed what was promised, as nodes differ in CPU and memory per GPU.
    fn at_floor(node_job: &NodeJob<'a>, floor: Share, rest: &mut Share, soonest: bool) -> Self {
        let curve = node_job.job.spec.sensitivity.as_deref();
        let promised = node_job.promised.over(node_job.gpus);
        let remainder = node_job.promised.minus(promised.times(node_job.gpus));
        let urgency = if soonest { urgency(node_job.job) } else { 1.0 };
        let mut recipient = Self {
            curve: curve.filter(|_| node_job.cap.is_none()),
            gpus: node_job.gpus,
            share: promised,
            remainder,
            weight: f64::from(node_job.gpus) * urgency,
            rate: curve.map_or(Rate::FULL, |c| c.rate(promised)),
        };
        let target = node_job.cap.unwrap_or(floor).at_least(promised);
        if target != promised && rest.covers(target.minus(promised).times(node_job.gpus)) {
            recipient.rate = curve.map_or(Rate::FULL, |c| c.rate(target));
            recipient.take(target, rest);
        }
        recipient
    }

    fn cost(&self, to: Share) -> Share {
        to.minus(self.share).times(self.gpus)
    }

    fn take(&mut self, to: Share, rest: &mut Share) {
        *rest = rest.minus(self.cost(to));
        self.share = to;
    }

    fn advance(&mut self, to: (Share, Rate), rest: &mut Share) {
        self.take(to.0, rest);
        self.rate = to.1;
    }

    /// Every faster point of its curve, with no less of either resource than it has.
    fn steps(&self) -> impl Iterator<Item = (Share, Rate)> + '_ {
        let steps = self.curve.into_iter().flat_map(|c| c.steps());
        steps
            .filter(|(_, rate)| *rate > self.rate)
            .map(|(share, rate)| (share.at_least(self.share), *rate))
    }

    /// The step that is worth most among those that the rest suffices for.
    fn best_step(&self, rest: Share, scarce: Share) -> Option<Step> {
        let mut best: Option<Step> = None;
        for to in self.steps().filter(|to| rest.covers(self.cost(to.0))) {
            let worth = worth(self, to, scarce);
            if best.is_none_or(|b| worth > b.worth) {
                best = Some(Step { worth, to });
            }
        }
        best
    }
}

/// How much more a gain counts for a job with less work left, if that is known: four times as much with a sixteenth of the
/// work. Sixteen times as much would end that job a little sooner and cost the others much speed.
fn urgency(job: &Job) -> f64 {
    const HOUR: f64 = 3.6e9;
    let left = job.remaining(job.done_at);
    left.map_or(1.0, |left| (HOUR / (left.0 as f64).max(1.0)).sqrt())
}

/// Gain in speed per part of the rest that the step takes; `scarce` is the rest before any step. Larger is better.
fn worth(recipient: &Recipient<'_>, to: (Share, Rate), scarce: Share) -> f64 {
    let cost = recipient.cost(to.0);
    let part = |cost: f64, of: f64| if cost == 0.0 { 0.0 } else { cost / of.max(1.0) };
    let parts = part(f64::from(cost.cpu_milli), f64::from(scarce.cpu_milli))
        + part(cost.memory_mib as f64, scarce.memory_mib as f64);
    f64::from(to.1.0 - recipient.rate.0) * recipient.weight / parts.max(1e-9)
}

/// Gives every job its ideal share, if there is enough for all; returns whether there was.
fn give_ideal_to_all(recipients: &mut [Recipient<'_>], rest: Share) -> bool {
    let target = |r: &Recipient<'_>| r.curve.map_or(r.share, |c| c.ideal().at_least(r.share));
    let costs = recipients.iter().map(|r| r.cost(target(r)));
    if !rest.covers(costs.fold(Share::default(), Share::plus)) {
        return false;
    }
    recipients.iter_mut().for_each(|r| r.share = target(r));
    true
}

/// Divides the rest: whole steps first, those that are worth most, then parts of steps.
fn divide_by_gain(recipients: &mut [Recipient<'_>], mut rest: Share) {
    let scarce = rest;
    let mut best: Vec<Option<Step>> = recipients.iter().map(|r| r.best_step(rest, scarce)).collect();
    while let Some(i) = most_worth(&best) {
        let step = best[i].expect("the index is that of a step");
        // As the rest shrinks a step may become too large, but its worth does not change.
        if rest.covers(recipients[i].cost(step.to.0)) {
            recipients[i].advance(step.to, &mut rest);
        }
        best[i] = recipients[i].best_step(rest, scarce);
    }
    while let Some((i, to)) = best_part(recipients, rest, scarce) {
        recipients[i].advance(to, &mut rest);
    }
}

/// A step along a curve, and its worth.
#[derive(Clone, Copy)]
struct Step {
    worth: f64,
    to: (Share, Rate),
}

/// Index of the step that is worth most; the first of equal ones.
fn most_worth(steps: &[Option<Step>]) -> Option<usize> {
    let mut most: Option<(f64, usize)> = None;
    for (i, step) in steps.iter().enumerate() {
        if let Some(step) = step.filter(|s| most.is_none_or(|(worth, _)| s.worth > worth)) {
            most = Some((step.worth, i));
        }
    }
    most.map(|(_, i)| i)
}

/// The part of a step within the rest that is worth most; `None` if no job would be faster.
fn best_part(recipients: &[Recipient<'_>], rest: Share, scarce: Share) -> Option<(usize, (Share, Rate))> {
    let mut best: Option<(f64, usize, (Share, Rate))> = None;
    for (i, recipient) in recipients.iter().enumerate() {
        let Some(curve) = recipient.curve else { continue };
        let reach = recipient.share.plus(rest.over(recipient.gpus));
        // A gain of less than a thousandth is ignored.
        let is_faster = |rate: Rate| rate.0 >= recipient.rate.0 + 1000;
        if !is_faster(curve.top()) || !is_faster(curve.rate(reach)) {
            continue;
        }
        for (share, _) in recipient.steps() {
            let share = share.at_most(reach);
            let rate = curve.rate(share);
            if !is_faster(rate) {
                continue;
            }
            let worth = worth(recipient, (share, rate), scarce);
            if best.is_none_or(|(most, ..)| worth > most) {
                best = Some((worth, i, (share, rate)));
            }
        }
    }
    let (_, i, (share, rate)) = best?;
    let recipient = &recipients[i];
    let least = recipient.curve?.least_for(rate, share).at_least(recipient.share);
    Some((i, (least, rate)))
}
