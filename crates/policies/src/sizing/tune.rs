//! Tune: nobody is slower than with his proportional share, and what that leaves over goes where it speeds up most.
//!
//! A job is promised its *floor*: the least CPU and memory with which it is as fast as with its proportional share. No
//! floor is above that share, so a job can always start where GPUs are free. What the floors on a node leave over is
//! shared out among its jobs, step by step along their curves, to whoever gains most speed for the part of the rest it
//! takes. Who comes later gets his floor out of what was shared out, without stopping anybody.
//!
//! A GPU with a hungry job at its floor gets little done. So where the discipline passes over, those start first who find
//! all they can use beside the wishes of the others, as under `greedy`; then whoever fits with his floor, on GPUs that
//! `greedy` would leave idle.

use dovetail_engine::{Ask, Cluster, Job, NodeFilling, NodeJob, NodeState, Part, Sizing};
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
            what: "who gets the rest: soonest, where it speeds up most for the work left, if that is known; speed, where \
                   it speeds up most",
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

/// Floors for all, the rest by gain.
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

    fn fill(&mut self, node: &NodeState, left: Share, guests: &[NodeJob<'_>]) -> Vec<Share> {
        let fair = node.spec.proportional();
        let mut rest = left;
        let mut runners: Vec<Runner<'_>> = guests
            .iter()
            .map(|guest| {
                let floor = self.floors.of(&guest.job.spec, fair);
                Runner::at_floor(guest, floor, &mut rest, self.soonest)
            })
            .collect();
        if !all_have_all(&mut runners, rest) {
            by_gain(&mut runners, rest);
        }
        runners
            .iter()
            .map(|r| r.share.times(r.gpus).plus(r.odd))
            .collect()
    }
}

/// A job that may get more.
struct Runner<'a> {
    curve: Option<&'a Sensitivity>,
    gpus: u32,
    /// For each GPU.
    share: Share,
    /// What was promised beyond that, where GPUs do not divide it.
    odd: Share,
    rate: Rate,
    /// How much its gain in speed counts.
    weight: f64,
}

impl<'a> Runner<'a> {
    /// With its floor on this node, which may be more than it was promised: nodes may have more than the least.
    fn at_floor(guest: &NodeJob<'a>, floor: Share, rest: &mut Share, soonest: bool) -> Self {
        let curve = guest.job.spec.sensitivity.as_deref();
        let promised = guest.promised.over(guest.gpus);
        let odd = guest.promised.minus(promised.times(guest.gpus));
        let mut runner = Self {
            curve: curve.filter(|_| guest.cap.is_none()),
            gpus: guest.gpus,
            share: promised,
            odd,
            weight: f64::from(guest.gpus) * if soonest { soon(guest.job) } else { 1.0 },
            rate: curve.map_or(Rate::FULL, |c| c.rate(promised)),
        };
        let wanted = guest.cap.unwrap_or(floor).at_least(promised);
        if wanted != promised && rest.covers(wanted.minus(promised).times(guest.gpus)) {
            runner.rate = curve.map_or(Rate::FULL, |c| c.rate(wanted));
            runner.take(wanted, rest);
        }
        runner
    }

    fn cost(&self, to: Share) -> Share {
        to.minus(self.share).times(self.gpus)
    }

    fn take(&mut self, to: Share, rest: &mut Share) {
        *rest = rest.minus(self.cost(to));
        self.share = to;
    }

    fn go(&mut self, to: (Share, Rate), rest: &mut Share) {
        self.take(to.0, rest);
        self.rate = to.1;
    }

    /// Every faster point of its curve, at least what it has.
    fn steps(&self) -> impl Iterator<Item = (Share, Rate)> + '_ {
        let steps = self.curve.into_iter().flat_map(|c| c.steps());
        steps
            .filter(|(_, rate)| *rate > self.rate)
            .map(|(share, rate)| (share.at_least(self.share), *rate))
    }

    /// The step that is worth most to it among those there is enough for.
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

/// How much more a gain counts for a job that has less work left, where that is known: four times as much with a sixteenth
/// of it. Counting it sixteen times would bring that job to its end a little sooner and take much speed from the others.
fn soon(job: &Job) -> f64 {
    const HOUR: f64 = 3.6e9;
    let left = job.remaining(job.done_at);
    left.map_or(1.0, |left| (HOUR / (left.0 as f64).max(1.0)).sqrt())
}

/// Gain in speed for the part of what there was to share out; more is better.
fn worth(runner: &Runner<'_>, to: (Share, Rate), scarce: Share) -> f64 {
    let cost = runner.cost(to.0);
    let part = |cost: f64, of: f64| if cost == 0.0 { 0.0 } else { cost / of.max(1.0) };
    let parts = part(f64::from(cost.cpu_milli), f64::from(scarce.cpu_milli))
        + part(cost.memory_mib as f64, scarce.memory_mib as f64);
    f64::from(to.1.0 - runner.rate.0) * runner.weight / parts.max(1e-9)
}

/// Gives everyone what makes it fastest, if there is enough for that.
fn all_have_all(runners: &mut [Runner<'_>], rest: Share) -> bool {
    let target = |r: &Runner<'_>| r.curve.map_or(r.share, |c| c.ideal().at_least(r.share));
    let costs = runners.iter().map(|r| r.cost(target(r)));
    if !rest.covers(costs.fold(Share::default(), Share::plus)) {
        return false;
    }
    runners.iter_mut().for_each(|r| r.share = target(r));
    true
}

/// Shares out the rest: whole steps first, to whom they are worth most, then parts of steps.
fn by_gain(runners: &mut [Runner<'_>], mut rest: Share) {
    let scarce = rest;
    let mut best: Vec<Option<Step>> = runners.iter().map(|r| r.best_step(rest, scarce)).collect();
    while let Some(i) = most_worth(&best) {
        let step = best[i].expect("it is worth most");
        // As the rest shrinks a step may become too large, but never worth more or less.
        if rest.covers(runners[i].cost(step.to.0)) {
            runners[i].go(step.to, &mut rest);
        }
        best[i] = runners[i].best_step(rest, scarce);
    }
    while let Some((i, to)) = best_part(runners, rest, scarce) {
        runners[i].go(to, &mut rest);
    }
}

/// A step along a curve, and what it is worth.
#[derive(Clone, Copy)]
struct Step {
    worth: f64,
    to: (Share, Rate),
}

/// Whose step is worth most; the first of equals.
fn most_worth(steps: &[Option<Step>]) -> Option<usize> {
    let mut most: Option<(f64, usize)> = None;
    for (i, step) in steps.iter().enumerate() {
        if let Some(step) = step.filter(|s| most.is_none_or(|(worth, _)| s.worth > worth)) {
            most = Some((step.worth, i));
        }
    }
    most.map(|(_, i)| i)
}

/// The part of a step that is worth most, as far as the rest goes; none where it would make nobody faster.
fn best_part(runners: &[Runner<'_>], rest: Share, scarce: Share) -> Option<(usize, (Share, Rate))> {
    let mut best: Option<(f64, usize, (Share, Rate))> = None;
    for (i, runner) in runners.iter().enumerate() {
        let Some(curve) = runner.curve else { continue };
        let reach = runner.share.plus(rest.over(runner.gpus));
        // Less than a thousandth is not worth telling anybody.
        let worth_telling = |rate: Rate| rate.0 >= runner.rate.0 + 1000;
        if !worth_telling(curve.top()) || !worth_telling(curve.rate(reach)) {
            continue;
        }
        for (share, _) in runner.steps() {
            let share = share.at_most(reach);
            let rate = curve.rate(share);
            if !worth_telling(rate) {
                continue;
            }
            let worth = worth(runner, (share, rate), scarce);
            if best.is_none_or(|(most, ..)| worth > most) {
                best = Some((worth, i, (share, rate)));
            }
        }
    }
    let (_, i, (share, rate)) = best?;
    let runner = &runners[i];
    let least = runner.curve?.least_for(rate, share).at_least(runner.share);
    Some((i, (least, rate)))
}
