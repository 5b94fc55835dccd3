//! Who uses which resource when, while jobs interleave their stages on the same GPUs: the drawing of a period.
//!
//! The phases are those of [`period_us`](crate::stages::period_us), gone on with until they repeat. Where storage and CPU were
//! measured as one stage, that stage may stretch over two phases: it is on storage in the first and on the CPU in the
//! second, while the next job's is on storage already. So no resource ever has two users.

use serde::{Deserialize, Serialize};

use crate::stages::{Ordering, Stages};

/// What a stage uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// Reading data.
    Storage,
    /// Preparing it.
    Cpu,
    /// Computing.
    Gpu,
    /// Exchanging gradients.
    Network,
}

impl Resource {
    /// All of them, in the order of an iteration.
    pub const ALL: [Resource; 4] = [Resource::Storage, Resource::Cpu, Resource::Gpu, Resource::Network];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
            Self::Network => "network",
        }
    }
}

/// One member on one resource for a while, inside the period.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// Which of the members.
    pub member: usize,
    /// What it uses.
    pub resource: Resource,
    /// From when, in microseconds since the period began.
    pub start_us: f64,
    /// Until when.
    pub end_us: f64,
}

/// One period of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// The members in the order in which they follow each other.
    pub order: Vec<usize>,
    /// The period the model counts with, without contention.
    pub period_us: f64,
    /// The period that is drawn. It is the same, but for some groups of four: there the model takes four phases from the
    /// beginning, which are shorter than those that follow.
    pub steady_us: f64,
    /// Who uses what when; a stage that goes on over the end of the period is cut there, and its rest is at the beginning.
    pub uses: Vec<Use>,
}

/// How a group takes turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One job, by itself.
    Alone,
    /// Four slots, a stage apart; data may stretch over two phases.
    Phases,
    /// A pair, one loading while the other computes.
    Turns,
    /// Four slots, a stage apart, each stage in a phase of its own.
    FourPhases,
}

/// The period of one to four members, drawn, with the order of members that gives it.
pub fn layout(members: &[Stages], ordering: Ordering) -> Layout {
    let mut found: Option<(f64, Vec<usize>, Way)> = None;
    for order in orders(members.len()) {
        for way in ways(members) {
            let period = period(members, &order, *way);
            let better = found.as_ref().is_none_or(|(known, ..)| match ordering {
                Ordering::Best => period < *known,
                Ordering::Worst => period > *known,
            });
            if better {
                found = Some((period, order.clone(), *way));
            }
        }
    }
    let (period_us, order, way) = found.expect("a group has at least one member");
    let (from, steady_us, mut uses) = match way {
        Way::Alone => alone(&members[0]),
        Way::Phases => by_phases(members, &order),
        Way::Turns => by_turns(members, &order),
        Way::FourPhases => by_four_phases(members, &order),
    };
    for one in &mut uses {
        one.start_us = (one.start_us - from).max(0.0);
        one.end_us = (one.end_us - from).min(steady_us);
    }
    uses.retain(|u| u.end_us > u.start_us);
    uses.sort_by(|a, b| {
        let key = |u: &Use| (u.resource, u.member);
        a.start_us.total_cmp(&b.start_us).then(key(a).cmp(&key(b)))
    });
    Layout {
        order,
        period_us,
        steady_us,
        uses,
    }
}

/// All orders of so many members.
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

fn ways(members: &[Stages]) -> &'static [Way] {
    match members {
        [_] => &[Way::Alone],
        _ if members.iter().all(|m| m.four) => &[Way::FourPhases],
        [_, _] => &[Way::Phases, Way::Turns],
        _ => &[Way::Phases],
    }
}

/// The period as the model counts it.
fn period(members: &[Stages], order: &[usize], way: Way) -> f64 {
    match way {
        Way::Alone => f64::from(members[0].iteration_us),
        Way::FourPhases => by_four_phases(members, order).1,
        Way::Turns => by_turns(members, order).1,
        Way::Phases => {
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

/// Four slots, each a stage behind the one before: in each phase the network of one job, the GPU of the next and the
/// data of the third, which may have begun a phase earlier, go on at the same time. Phase `i` lasts from `[i]` to
/// `[i + 1]`.
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

/// Where the period begins, how long it is, and everything around it.
type Drawn = (f64, f64, Vec<Use>);

/// One after the other; where the stages together are longer than the iteration, later ones begin earlier.
fn alone(member: &Stages) -> Drawn {
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

/// Phases after which they repeat, for any stages; a multiple of four, so that slots are where they were.
const SETTLED: usize = 400;

fn by_phases(members: &[Stages], order: &[usize]) -> Drawn {
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
            // Phases of a pair may end before they begin; nobody else wants the data path then.
            let change = if end[i] < start { stop } else { end[i].min(stop) };
            uses.push(used(*member, Resource::Storage, start, change));
            uses.push(used(*member, Resource::Cpu, change, stop));
        }
    }
    let (from, to) = (end[SETTLED], end[SETTLED + 4]);
    (from, to - from, uses)
}

fn by_turns(members: &[Stages], order: &[usize]) -> Drawn {
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

fn by_four_phases(members: &[Stages], order: &[usize]) -> Drawn {
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

fn used(member: usize, resource: Resource, start_us: f64, end_us: f64) -> Use {
    Use {
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

    /// Groups of two to four out of stages that differ in what they wait for.
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
    fn no_resource_has_two_users_and_the_period_is_that_of_the_model() {
        for group in groups(false).into_iter().chain(groups(true)) {
            for ordering in [Ordering::Best, Ordering::Worst] {
                let drawn = layout(&group, ordering);
                assert_eq!(drawn.period_us, period_us(&group, ordering), "{group:?}");
                let mut order = drawn.order.clone();
                order.sort_unstable();
                assert_eq!(order, (0..group.len()).collect::<Vec<_>>());
                for resource in Resource::ALL {
                    let mut uses: Vec<&Use> = drawn.uses.iter().filter(|u| u.resource == resource).collect();
                    uses.sort_by(|a, b| a.start_us.total_cmp(&b.start_us));
                    for pair in uses.windows(2) {
                        assert!(
                            pair[0].end_us <= pair[1].start_us + 1e-6,
                            "{} twice in {group:?}, {ordering:?}: {pair:?}",
                            resource.name()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_member_does_one_stage_at_a_time_and_all_of_each() {
        for group in groups(false).into_iter().chain(groups(true)) {
            let drawn = layout(&group, Ordering::Best);
            for (member, stages) in group.iter().enumerate() {
                let mut uses: Vec<&Use> = drawn.uses.iter().filter(|u| u.member == member).collect();
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
