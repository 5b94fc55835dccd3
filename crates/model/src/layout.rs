//! The timeline of one period of jobs that interleave their stages on the same GPUs: which job uses which resource when.
//!
//! The phases are those of [`period_us`](crate::stages::period_us), continued until they repeat. Where storage and CPU were
//! measured as one stage, that stage may extend over two phases: it uses storage in the first and the CPU in the second,
//! while the stage of the next job already uses storage. So no resource ever has two users.

use serde::{Deserialize, Serialize};

use crate::stages::{Ordering, Stages};

/// A resource that a stage uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// Storage, for reading data.
    Storage,
    /// CPU, for preparing data.
    Cpu,
    /// GPU, for computing.
    Gpu,
    /// Network, for exchanging gradients.
    Network,
}

impl Resource {
    /// All resources, in the order of an iteration.
    pub const ALL: [Resource; 4] = [Resource::Storage, Resource::Cpu, Resource::Gpu, Resource::Network];

    /// Returns the name of the resource.
    pub fn name(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
            Self::Network => "network",
        }
    }
}

/// An interval of the period in which one member uses one resource.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// Index of the member.
    pub member: usize,
    /// The resource.
    pub resource: Resource,
    /// Start, in microseconds since the period began.
    pub start_us: f64,
    /// End, in microseconds since the period began.
    pub end_us: f64,
}

/// The timeline of one period of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// The members, in the order in which they are offset.
    pub order: Vec<usize>,
    /// The period of the model, without contention, in microseconds.
    pub period_us: f64,
    /// The period of this timeline, in microseconds. It differs from the model only for some groups of four, where the model
    /// uses the first four phases, which are shorter than later ones.
    pub steady_us: f64,
    /// All uses of resources; a stage that extends beyond the end of the period is split, and its rest is at the beginning.
    pub uses: Vec<ResourceUse>,
}

/// How the stages of a group are interleaved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interleaving {
    /// One job alone.
    Alone,
    /// Four slots, one stage apart; data stages may extend over two phases.
    Phases,
    /// A pair, one of which loads while the other computes.
    Turns,
    /// Four slots, one stage apart, with each stage in a phase of its own.
    FourPhases,
}

/// Returns the timeline of the period of one to four members, in their best or worst order.
pub fn layout(members: &[Stages], ordering: Ordering) -> Layout {
    let (period_us, order, interleaving) = choose_order(members, ordering);
    let (from, steady_us, mut uses) = match interleaving {
        Interleaving::Alone => alone(&members[0]),
        Interleaving::Phases => by_phases(members, &order),
        Interleaving::Turns => by_turns(members, &order),
        Interleaving::FourPhases => by_four_phases(members, &order),
    };
    for resource_use in &mut uses {
        resource_use.start_us = (resource_use.start_us - from).max(0.0);
        resource_use.end_us = (resource_use.end_us - from).min(steady_us);
    }
    uses.retain(|u| u.end_us > u.start_us);
    uses.sort_by(|a, b| {
        let key = |u: &ResourceUse| (u.resource, u.member);
        a.start_us.total_cmp(&b.start_us).then(key(a).cmp(&key(b)))
    });
    Layout {
        order,
        period_us,
        steady_us,
        uses,
    }
}

/// Returns the period of the model for the best or worst order of one to four members, that order, and how the members are
/// interleaved. Of equal orders the first one counts.
pub(crate) fn choose_order(members: &[Stages], ordering: Ordering) -> (f64, Vec<usize>, Interleaving) {
    let mut found: Option<(f64, Vec<usize>, Interleaving)> = None;
    for order in orders(members.len()) {
        for interleaving in interleavings(members) {
            let period = period(members, &order, *interleaving);
            let better = found.as_ref().is_none_or(|(known, ..)| match ordering {
                Ordering::Best => period < *known,
                Ordering::Worst => period > *known,
            });
            if better {
                found = Some((period, order.clone(), *interleaving));
            }
        }
    }
    found.expect("a group has at least one member")
}

/// Returns all permutations of `count` members.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![vec![]];
    for _ in 0..count {
        let longer = |order: &Vec<usize>| {
            let free = (0..count).filter(|m| !order.contains(m));
            free.map(|m| [order.as_slice(), &[m]].concat())
                .collect::<Vec<_>>()
        };
        orders = orders.iter().flat_map(longer).collect();
    }
    orders
}

/// Returns the ways in which these members can be interleaved.
fn interleavings(members: &[Stages]) -> &'static [Interleaving] {
    match members {
        [_] => &[Interleaving::Alone],
        _ if members.iter().all(|m| m.four) => &[Interleaving::FourPhases],
        [_, _] => &[Interleaving::Phases, Interleaving::Turns],
        _ => &[Interleaving::Phases],
    }
}

/// Returns the period of the model.
fn period(members: &[Stages], order: &[usize], interleaving: Interleaving) -> f64 {
    match interleaving {
        Interleaving::Alone => f64::from(members[0].iteration_us),
        Interleaving::FourPhases => by_four_phases(members, order).1,
        Interleaving::Turns => by_turns(members, order).1,
        Interleaving::Phases => {
            let end = phase_ends(members, order, 8);
            let same = |i: &usize| {
                let (now, before) = (end[i + 4] - end[*i], end[i + 3] - end[i - 1]);
                (now - before).abs() <= 1e-3 * now.abs().max(before.abs())
            };
            let from = (1..5).find(same).unwrap_or(4);
            end[from + 4] - end[from]
        }
    }
}

/// Returns the ends of phases of four slots, each one stage behind the previous one: in each phase the network stage of one
/// job, the GPU stage of the next and the data stage of the third, which may have begun one phase earlier, run at the same
/// time. Phase `i` lasts from `[i]` to `[i + 1]`.
fn phase_ends(members: &[Stages], order: &[usize], phases: usize) -> Vec<f64> {
    let stage = |slot: usize, stage: usize| order.get(slot % 4).map(|m| time(&members[*m], stage));
    let mut end = vec![0.0];
    for i in 0..phases {
        let network = stage(i + 1, 2).map(|t| end[i] + t);
        let gpu = stage(i + 2, 1).map(|t| end[i] + t);
        let before = i.checked_sub(1).map(|before| end[before]);
        let data = before.and_then(|before| Some(before + stage(i + 3, 0)?));
        let all = network.into_iter().chain(gpu).chain(data);
        end.push(all.reduce(f64::max).unwrap_or(end[i]));
    }
    end
}

fn time(member: &Stages, stage: usize) -> f64 {
    f64::from(member.times_us[stage])
}

/// Start of the period, its length, and the uses of resources around it.
type Timeline = (f64, f64, Vec<ResourceUse>);

/// Runs stages in sequence; where their sum exceeds the iteration, later ones begin earlier.
fn alone(member: &Stages) -> Timeline {
    let resources: &[Resource] = match member.four {
        true => &Resource::ALL,
        false => &[Resource::Storage, Resource::Gpu, Resource::Network],
    };
    let period = f64::from(member.iteration_us);
    let mut rest = member.sum_us() as f64;
    let mut at = 0.0f64;
    let mut uses = Vec::new();
    for (stage, resource) in resources.iter().enumerate() {
        let start = at.min(period - rest).max(0.0);
        at = start + time(member, stage);
        rest -= time(member, stage);
        uses.push(used(0, *resource, start, at));
    }
    (0.0, period, uses)
}

/// Number of phases after which they repeat, for any stages; a multiple of four, so that slots are aligned.
const SETTLED: usize = 400;

fn by_phases(members: &[Stages], order: &[usize]) -> Timeline {
    let end = phase_ends(members, order, SETTLED + 4);
    let mut uses = Vec::new();
    for i in SETTLED - 4..=SETTLED + 4 {
        if let Some(member) = order.get((i + 1) % 4) {
            let stop = end[i] + time(&members[*member], 2);
            uses.push(used(*member, Resource::Network, end[i], stop));
        }
        if let Some(member) = order.get((i + 2) % 4) {
            let stop = end[i] + time(&members[*member], 1);
            uses.push(used(*member, Resource::Gpu, end[i], stop));
        }
        if let Some(member) = order.get((i + 3) % 4) {
            let (start, stop) = (end[i - 1], end[i - 1] + time(&members[*member], 0));
            // Phases of a pair may end before they begin; no other job uses the data path then.
            let change = if end[i] < start { stop } else { end[i].min(stop) };
            uses.push(used(*member, Resource::Storage, start, change));
            uses.push(used(*member, Resource::Cpu, change, stop));
        }
    }
    let (from, to) = (end[SETTLED], end[SETTLED + 4]);
    (from, to - from, uses)
}

fn by_turns(members: &[Stages], order: &[usize]) -> Timeline {
    let (a, b) = (order[0], order[1]);
    let compute = |m: usize| time(&members[m], 1) + time(&members[m], 2);
    let first = time(&members[a], 0).max(compute(b));
    let second = time(&members[b], 0).max(compute(a));
    let mut uses = Vec::new();
    for (from, loads, computes) in [(0.0, a, b), (first, b, a)] {
        let computed = from + time(&members[computes], 1);
        uses.push(used(
            loads,
            Resource::Storage,
            from,
            from + time(&members[loads], 0),
        ));
        uses.push(used(computes, Resource::Gpu, from, computed));
        uses.push(used(
            computes,
            Resource::Network,
            computed,
            computed + time(&members[computes], 2),
        ));
    }
    (0.0, first + second, uses)
}

fn by_four_phases(members: &[Stages], order: &[usize]) -> Timeline {
    let mut uses = Vec::new();
    let mut from = 0.0;
    for i in 0..4 {
        let mut longest = 0.0f64;
        for (slot, member) in order.iter().enumerate() {
            let stage = (i + 4 - slot) % 4;
            let time = time(&members[*member], stage);
            uses.push(used(*member, Resource::ALL[stage], from, from + time));
            longest = longest.max(time);
        }
        from += longest;
    }
    (0.0, from, uses)
}

fn used(member: usize, resource: Resource, start_us: f64, end_us: f64) -> ResourceUse {
    ResourceUse {
        member,
        resource,
        start_us,
        end_us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::period_us;

    /// Returns groups of one to four members whose stages are bound by different resources.
    fn groups(four: bool) -> Vec<Vec<Stages>> {
        let times = [
            [514, 14, 0, 9],
            [1, 160, 60, 30],
            [82, 75, 66, 12],
            [0, 8, 140, 0],
            [700, 110, 93, 50],
        ];
        let kinds = times.map(|t: [u32; 4]| {
            let used = if four { 4 } else { 3 };
            let mut times_us = [0; 4];
            times_us[..used].copy_from_slice(&t[..used]);
            Stages {
                times_us,
                four,
                iteration_us: times_us.iter().sum(),
            }
        });
        let mut groups = Vec::new();
        for code in 0..5usize.pow(4) {
            let digits = [code % 5, code / 5 % 5, code / 25 % 5, code / 125];
            let group: Vec<Stages> = digits.iter().map(|d| kinds[*d]).collect();
            for size in 1..=4 {
                groups.push(group[..size].to_vec());
            }
        }
        groups
    }

    #[test]
    fn no_resource_has_two_users_and_the_period_matches_the_model() {
        for group in groups(false).into_iter().chain(groups(true)) {
            for ordering in [Ordering::Best, Ordering::Worst] {
                let drawn = layout(&group, ordering);
                assert_eq!(drawn.period_us, period_us(&group, ordering), "{group:?}");
                let mut order = drawn.order.clone();
                order.sort_unstable();
                assert_eq!(order, (0..group.len()).collect::<Vec<_>>());
                for resource in Resource::ALL {
                    let mut uses: Vec<&ResourceUse> =
                        drawn.uses.iter().filter(|u| u.resource == resource).collect();
                    uses.sort_by(|a, b| a.start_us.total_cmp(&b.start_us));
                    for pair in uses.windows(2) {
                        assert!(
                            pair[0].end_us <= pair[1].start_us + 1e-6,
                            "{} has two users in {group:?}, {ordering:?}: {pair:?}",
                            resource.name()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_member_runs_all_of_its_stages_one_at_a_time() {
        for group in groups(false).into_iter().chain(groups(true)) {
            let drawn = layout(&group, Ordering::Best);
            for (member, stages) in group.iter().enumerate() {
                let mut uses: Vec<&ResourceUse> = drawn.uses.iter().filter(|u| u.member == member).collect();
                uses.sort_by(|a, b| a.start_us.total_cmp(&b.start_us));
                assert!(
                    uses.windows(2).all(|p| p[0].end_us <= p[1].start_us + 1e-6),
                    "{group:?}: {uses:?}"
                );
                let busy: f64 = uses.iter().map(|u| u.end_us - u.start_us).sum();
                let expected = stages.sum_us() as f64;
                assert!(
                    (busy - expected).abs() <= 1e-6 * drawn.steady_us,
                    "member {member} of {group:?}: {busy} of {expected}"
                );
            }
        }
    }

    #[test]
    fn a_period_from_the_beginning_may_be_shorter_than_those_that_follow() {
        let dqn = Stages::three(437_000, 8_000, 1_600, 546_000);
        let shufflenet = Stages::three(799_000, 56_000, 24_000, 1_019_000);
        let drawn = layout(&[dqn, dqn, dqn, shufflenet], Ordering::Best);
        assert_eq!((drawn.period_us, drawn.steady_us), (879_000.0, 1_236_000.0));
    }

    #[test]
    fn data_spans_two_resources() {
        let a2c = Stages::three(514, 14, 0, 517);
        let drawn = layout(&[a2c, a2c], Ordering::Best);
        assert_eq!((drawn.period_us, drawn.steady_us), (542.0, 542.0));
        let on = |resource| {
            let uses = drawn.uses.iter().filter(move |u| u.resource == resource);
            uses.map(|u| u.end_us - u.start_us).sum::<f64>()
        };
        assert_eq!(on(Resource::Storage) + on(Resource::Cpu), 2.0 * 514.0);
        assert!(on(Resource::Cpu) > 0.0);
        assert_eq!(on(Resource::Gpu), 28.0);
    }
}
