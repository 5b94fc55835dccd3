//! Plans for jobs that interleave their stages on the same GPUs: which stage of which job runs in which phase of a cycle.
//!
//! A plan is what [`period_us`](crate::stages::period_us) assumes, in a form that can be carried out. A cycle has a fixed
//! number of phases, and every member does one step in each cycle. A stage may begin when the phase before its first one
//! has ended; a phase ends when every stage whose last phase it is has been left. Phases therefore end one after the other,
//! except where no stage connects them.

use crate::layout::{Interleaving, choose_order};
use crate::stages::{MOST_SHARERS, Ordering, Stages};

/// The phases in which a stage runs, counted from the first phase of the plan. A step that begins late in a cycle extends
/// into the next one: its phases exceed the number of phases of a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageWindow {
    /// The stage begins when the phase before this one has ended.
    pub first: u32,
    /// This phase ends when the stage has been left.
    pub last: u32,
}

/// A stage of a training step, as a training script names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepStage {
    /// Loads data, from storage and with CPUs.
    Data,
    /// Computes on the GPU.
    Gpu,
    /// Exchanges gradients over the network.
    Network,
}

impl StepStage {
    /// All stages, in the order of a step.
    pub const ALL: [Self; 3] = [Self::Data, Self::Gpu, Self::Network];

    /// Returns the position of the stage in a step.
    pub fn index(self) -> usize {
        match self {
            Self::Data => 0,
            Self::Gpu => 1,
            Self::Network => 2,
        }
    }
}

/// The part of one job in a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedMember {
    /// Number that identifies the job.
    pub id: u64,
    /// The window of each stage of [`Stages`], in their order.
    windows: Vec<StageWindow>,
    /// Planned time from the beginning to the end of the window of each stage, in microseconds.
    spans_us: Vec<f64>,
    /// Planned beginning of each stage since that of a cycle, in microseconds.
    begins_us: Vec<f64>,
    stages: Stages,
}

impl PlannedMember {
    /// Returns the window of a stage. Storage and CPU together are the data stage of a step.
    pub fn window(&self, stage: StepStage) -> StageWindow {
        let (from, to) = self.parts(stage);
        StageWindow {
            first: self.windows[from].first,
            last: self.windows[to].last,
        }
    }

    /// Returns the planned time from the beginning to the end of the window of a stage, in microseconds.
    pub fn span_us(&self, stage: StepStage) -> f64 {
        let (from, to) = self.parts(stage);
        match from == to {
            true => self.spans_us[from],
            false => self.spans_us[from] + self.spans_us[to],
        }
    }

    /// Returns when a stage begins after the beginning of a cycle, in microseconds; more than a period if the step extends into
    /// the next cycle.
    pub fn begin_us(&self, stage: StepStage) -> f64 {
        self.begins_us[self.parts(stage).0]
    }

    /// Returns how long a stage takes, in microseconds.
    pub fn time_us(&self, stage: StepStage) -> f64 {
        let (from, to) = self.parts(stage);
        self.stages.times_us[from..=to]
            .iter()
            .map(|t| f64::from(*t))
            .sum()
    }

    /// Returns the first and the last of [`Stages`] that a stage of a step consists of.
    fn parts(&self, stage: StepStage) -> (usize, usize) {
        let before = self.windows.len() - StepStage::ALL.len();
        match stage {
            StepStage::Data => (0, before),
            StepStage::Gpu => (before + 1, before + 1),
            StepStage::Network => (before + 2, before + 2),
        }
    }

    /// Returns the time that the stages up to this one need, as far as they have the same window.
    fn work_us(&self, stage: usize) -> f64 {
        let same = (0..=stage).filter(|s| self.windows[*s] == self.windows[stage]);
        same.map(|s| f64::from(self.stages.times_us[s])).sum()
    }
}

/// A plan for two to four jobs that share GPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct PhasePlan {
    phases: u32,
    members: Vec<PlannedMember>,
    period_us: f64,
}

/// Cycles after which a plan repeats itself, for any stages.
const SETTLED_CYCLES: usize = 100;
/// Further cycles over which the period is measured.
const MEASURED_CYCLES: usize = 12;

impl PhasePlan {
    /// Returns the plan that [`period_us`](crate::stages::period_us) chooses for jobs with these numbers and stages; none
    /// unless there are two to four, with different numbers. It does not depend on the order of the arguments: of orders
    /// with equal periods, the first by number counts.
    pub fn new(members: &[(u64, Stages)], ordering: Ordering) -> Option<Self> {
        let mut members = members.to_vec();
        members.sort_unstable_by_key(|(id, _)| *id);
        let is_unique = members.windows(2).all(|pair| pair[0].0 != pair[1].0);
        if !(2..=MOST_SHARERS).contains(&members.len()) || !is_unique {
            return None;
        }
        let stages: Vec<Stages> = members.iter().map(|(_, stages)| *stages).collect();
        let (_, order, interleaving) = choose_order(&stages, ordering);
        let member = |(slot, position): (usize, &usize)| {
            let (id, stages) = members[*position];
            let windows = windows(interleaving, u32::try_from(slot).ok()?)?;
            Some(PlannedMember {
                id,
                spans_us: vec![0.0; windows.len()],
                begins_us: vec![0.0; windows.len()],
                windows,
                stages,
            })
        };
        let mut plan = Self {
            phases: match interleaving {
                Interleaving::Turns => 2,
                Interleaving::Alone | Interleaving::Phases | Interleaving::FourPhases => 4,
            },
            members: order.iter().enumerate().map(member).collect::<Option<_>>()?,
            period_us: 0.0,
        };
        plan.measure();
        Some(plan)
    }

    /// Returns the same order and the same windows with other durations of the stages of a step, in microseconds, for the
    /// members for which `times_us` has some.
    #[must_use]
    pub fn retimed(&self, times_us: impl Fn(u64) -> Option<[u32; 3]>) -> Self {
        let mut plan = self.clone();
        for member in &mut plan.members {
            let Some(times_us) = times_us(member.id) else {
                continue;
            };
            member.stages.times_us = [0; 4];
            for (stage, time_us) in StepStage::ALL.into_iter().zip(times_us) {
                member.stages.times_us[member.parts(stage).0] = time_us;
            }
        }
        plan.measure();
        plan
    }

    /// Returns the number of phases of a cycle.
    pub fn phases(&self) -> u32 {
        self.phases
    }

    /// Returns the members, in the order in which they are offset.
    pub fn members(&self) -> &[PlannedMember] {
        &self.members
    }

    /// Returns the duration of a cycle, in which every member does one step, in microseconds.
    pub fn period_us(&self) -> f64 {
        self.period_us
    }

    /// Runs the plan with stages that take exactly as long as stated, and notes how long cycles and windows are.
    fn measure(&mut self) {
        let phases = self.phases as usize;
        let settled = SETTLED_CYCLES * phases;
        let ends = self.phase_ends(settled + (MEASURED_CYCLES + 2) * phases);
        let until = settled + MEASURED_CYCLES * phases;
        self.period_us = (ends[until] - ends[settled]) / MEASURED_CYCLES as f64;
        for member in &mut self.members {
            for (stage, window) in member.windows.iter().enumerate() {
                let (begin, end) = (
                    settled + window.first as usize,
                    settled + window.last as usize + 1,
                );
                let before_us = member.work_us(stage) - f64::from(member.stages.times_us[stage]);
                member.begins_us[stage] = (ends[begin] - ends[settled]).max(0.0) + before_us;
                member.spans_us[stage] = (ends[end] - ends[begin]).max(0.0);
            }
        }
    }

    /// Returns when phases end: phase `i` begins at `[i]` and ends at `[i + 1]`.
    fn phase_ends(&self, count: usize) -> Vec<f64> {
        let mut ends = vec![0.0];
        for phase in 0..count {
            let left = self.members.iter().flat_map(|member| {
                let ends = &ends;
                member
                    .windows
                    .iter()
                    .enumerate()
                    .filter_map(move |(stage, window)| {
                        let since = phase.checked_sub(window.last as usize)?;
                        let begin = ends[phase - (window.last - window.first) as usize];
                        (since % self.phases as usize == 0).then(|| begin + member.work_us(stage))
                    })
            });
            let end = left.reduce(f64::max);
            ends.push(end.unwrap_or(ends[phase]));
        }
        ends
    }
}

/// Returns the windows of the stages of the member in a slot.
fn windows(interleaving: Interleaving, slot: u32) -> Option<Vec<StageWindow>> {
    let window = |first: u32, last: u32| StageWindow {
        first: slot + first,
        last: slot + last,
    };
    match interleaving {
        Interleaving::Alone => None,
        Interleaving::Phases => Some(vec![window(0, 1), window(2, 2), window(3, 3)]),
        Interleaving::Turns => Some(vec![window(0, 0), window(1, 1), window(1, 1)]),
        Interleaving::FourPhases => Some((0..4).map(|stage| window(stage, stage)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::layout;
    use crate::stages::period_us;
    use proptest::prelude::*;

    fn three(data_us: u32, gpu_us: u32, network_us: u32) -> Stages {
        Stages::three(data_us, gpu_us, network_us, data_us + gpu_us + network_us)
    }

    fn numbered(group: &[Stages]) -> Vec<(u64, Stages)> {
        (1..).zip(group.iter().copied()).collect()
    }

    fn windows_of(plan: &PhasePlan, id: u64) -> [(u32, u32); 3] {
        let member = plan.members().iter().find(|m| m.id == id).unwrap();
        StepStage::ALL.map(|stage| {
            let window = member.window(stage);
            (window.first, window.last)
        })
    }

    #[test]
    fn a_pair_by_turns_loads_while_the_other_computes() {
        let plan = PhasePlan::new(&numbered(&[three(80, 20, 5), three(10, 90, 0)]), Ordering::Best).unwrap();
        assert_eq!((plan.phases(), plan.period_us()), (2, 115.0));
        assert_eq!(windows_of(&plan, 1), [(0, 0), (1, 1), (1, 1)]);
        assert_eq!(windows_of(&plan, 2), [(1, 1), (2, 2), (2, 2)]);
    }

    #[test]
    fn stages_begin_when_their_phase_does_or_the_stage_before_them_ends() {
        let plan = PhasePlan::new(&numbered(&[three(80, 20, 5), three(10, 90, 0)]), Ordering::Best).unwrap();
        let begins = |plan: &PhasePlan, id| {
            let member = plan.members().iter().find(|m| m.id == id).unwrap();
            StepStage::ALL.map(|stage| (member.begin_us(stage), member.time_us(stage)))
        };
        assert_eq!(begins(&plan, 1), [(0.0, 80.0), (90.0, 20.0), (110.0, 5.0)]);
        assert_eq!(begins(&plan, 2), [(90.0, 10.0), (115.0, 90.0), (205.0, 0.0)]);
        let slower = plan.retimed(|id| (id == 1).then_some([80, 40, 10]));
        assert_eq!(slower.period_us(), 140.0);
        assert_eq!(begins(&slower, 1), [(0.0, 80.0), (90.0, 40.0), (130.0, 10.0)]);
        assert_eq!(begins(&slower, 2)[0], (90.0, 10.0));
        assert_eq!(windows_of(&slower, 2), windows_of(&plan, 2));
    }

    #[test]
    fn larger_groups_are_offset_by_one_phase_and_data_may_take_two() {
        let group = [three(100, 40, 30), three(100, 30, 40), three(100, 40, 40)];
        let plan = PhasePlan::new(&numbered(&group), Ordering::Best).unwrap();
        assert_eq!(plan.phases(), 4);
        let offsets: Vec<u32> = plan.members().iter().map(|m| m.windows[0].first).collect();
        assert_eq!(offsets, [0, 1, 2]);
        let first = plan.members()[0].id;
        assert_eq!(windows_of(&plan, first), [(0, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn four_stages_have_a_phase_each_and_data_is_the_first_two() {
        let stage = |times_us: [u32; 4]| Stages {
            times_us,
            four: true,
            iteration_us: times_us.iter().sum(),
        };
        let group = [stage([10, 20, 30, 40]), stage([40, 10, 20, 30])];
        let plan = PhasePlan::new(&numbered(&group), Ordering::Best).unwrap();
        assert_eq!(plan.phases(), 4);
        assert_eq!(plan.period_us(), period_us(&group, Ordering::Best));
        let first = plan.members()[0].id;
        assert_eq!(windows_of(&plan, first), [(0, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn a_plan_needs_two_to_four_jobs_with_different_numbers() {
        let a = three(10, 10, 10);
        assert_eq!(PhasePlan::new(&[(1, a)], Ordering::Best), None);
        assert_eq!(PhasePlan::new(&[(1, a), (1, a)], Ordering::Best), None);
        assert_eq!(PhasePlan::new(&numbered(&[a; 5]), Ordering::Best), None);
    }

    /// A stage that may be missing, short or long.
    fn time() -> impl Strategy<Value = u32> {
        prop_oneof![Just(0), 1..1_000u32, 1_000..1_000_000u32]
    }

    fn group() -> impl Strategy<Value = Vec<Stages>> {
        let member = (time(), time(), time(), time());
        (any::<bool>(), proptest::collection::vec(member, 2..=4)).prop_map(|(four, members)| {
            let stages = |(a, b, c, d): (u32, u32, u32, u32)| match four {
                true => Stages {
                    times_us: [a, b, c, d],
                    four,
                    iteration_us: a + b + c + d,
                },
                false => three(a, b, c),
            };
            members.into_iter().map(stages).collect()
        })
    }

    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-3 * a.abs().max(b.abs()) + 1e-6
    }

    proptest! {
        #[test]
        fn the_plan_carries_out_the_period_of_the_model(group in group(), worst in any::<bool>()) {
            let ordering = if worst { Ordering::Worst } else { Ordering::Best };
            let plan = PhasePlan::new(&numbered(&group), ordering).unwrap();
            let drawn = layout(&group, ordering);
            prop_assert!(is_near(plan.period_us(), drawn.steady_us), "{} {drawn:?}", plan.period_us());
            // The model looks at two cycles, which are not enough for a few groups.
            let settles_late = !is_near(drawn.period_us, drawn.steady_us);
            let model = period_us(&group, ordering);
            prop_assert!(settles_late || is_near(plan.period_us(), model), "{} {model}", plan.period_us());
            prop_assert!(!settles_late || group.len() == 4 || worst, "{drawn:?}");
        }

        #[test]
        fn the_order_of_the_arguments_does_not_matter(group in group(), turn in 0..4usize) {
            let members = numbered(&group);
            let mut turned = members.clone();
            turned.rotate_left(turn % members.len());
            turned.reverse();
            prop_assert_eq!(PhasePlan::new(&members, Ordering::Best), PhasePlan::new(&turned, Ordering::Best));
        }

        #[test]
        fn windows_follow_each_other_and_a_cycle_contains_one_step(group in group()) {
            let plan = PhasePlan::new(&numbered(&group), Ordering::Best).unwrap();
            for member in plan.members() {
                let windows = StepStage::ALL.map(|stage| member.window(stage));
                prop_assert!(windows.windows(2).all(|w| w[0].last < w[1].first || w[0] == w[1]));
                prop_assert!(windows[2].last - windows[0].first < plan.phases());
                prop_assert!(StepStage::ALL.iter().all(|stage| member.span_us(*stage) >= 0.0));
            }
        }
    }
}
