//! Trainers in virtual time, well-behaved ones and others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use dovetail_model::stages::{InterleavingTerms, Ordering, Stages, period_us};
use dovetail_model::{PhasePlan, StepStage};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{GateCommand, GateEvent, GateTask, Micros, StageGates};
use crate::task::record::TaskId;

/// How often trainers misbehave, in thousandths for each stage or step.
#[derive(Debug, Clone, Copy, Default)]
struct Mishaps {
    /// A stage takes up to a minute.
    stall: u32,
    /// A step lacks a stage.
    skip: u32,
    /// The end of a step is not reported.
    forget: u32,
    /// The connection is lost and made again.
    reconnect: u32,
    /// The task is stopped and, after a while, started again.
    restart: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Activity {
    /// Until a stage, or the time between steps, has ended.
    Busy,
    /// At a gate, since then.
    Waiting(Micros),
}

struct Trainer {
    task: TaskId,
    rank: u32,
    times_us: [Micros; 3],
    connection: Option<u64>,
    /// What it was told last: to wait at gates, at most this long.
    patience_us: Option<Micros>,
    is_gated: bool,
    step: u64,
    /// The stage that it does or waits for; three between steps.
    stage: usize,
    activity: Activity,
    /// Distinguishes the last thing it was to do from earlier ones.
    turn: u64,
    longest_wait: Micros,
    /// The longest that it was ever told to wait.
    most_patience: Micros,
    /// When it entered and left stages.
    log: Vec<(StepStage, Micros, Micros)>,
    began: Micros,
}

struct World {
    gates: StageGates,
    now: Micros,
    tasks: Vec<GateTask>,
    trainers: Vec<Trainer>,
    agenda: BinaryHeap<Reverse<(Micros, usize, u64)>>,
    mishaps: Mishaps,
    random: StdRng,
    connections: u64,
}

fn terms(times_us: [u32; 3]) -> InterleavingTerms {
    let [data, gpu, network] = times_us;
    InterleavingTerms {
        stages: Stages::three(data, gpu, network, times_us.iter().sum()),
        ordering: Ordering::Best,
    }
}

fn id(job: u64) -> TaskId {
    TaskId { job, attempt: 1 }
}

impl World {
    /// Creates jobs with these stages and numbers of trainers, all on one GPU.
    fn new(jobs: &[([u32; 3], u32)], mishaps: Mishaps, seed: u64) -> Self {
        let mut world = Self {
            gates: StageGates::default(),
            now: 0,
            tasks: Vec::new(),
            trainers: Vec::new(),
            agenda: BinaryHeap::new(),
            mishaps,
            random: StdRng::seed_from_u64(seed),
            connections: 0,
        };
        for (job, (times_us, ranks)) in (1..).zip(jobs) {
            world.tasks.push(GateTask {
                id: id(job),
                slots: vec![0],
                terms: Some(terms(*times_us)),
                trainers: BTreeMap::new(),
            });
            for rank in 0..*ranks {
                world.trainers.push(Trainer {
                    task: id(job),
                    rank,
                    times_us: times_us.map(Micros::from),
                    connection: None,
                    patience_us: None,
                    is_gated: false,
                    step: 0,
                    stage: 3,
                    activity: Activity::Busy,
                    turn: 0,
                    longest_wait: 0,
                    most_patience: 0,
                    log: Vec::new(),
                    began: 0,
                });
            }
        }
        for trainer in 0..world.trainers.len() {
            world.connect(trainer);
            let after = world.random.random_range(0..100_000);
            world.plan(trainer, after);
        }
        world
    }

    fn happens(&mut self, thousandths: u32) -> bool {
        self.random.random_range(0..1_000) < thousandths
    }

    /// Lets a trainer act after a while.
    fn plan(&mut self, trainer: usize, after: Micros) {
        let known = &mut self.trainers[trainer];
        (known.activity, known.turn) = (Activity::Busy, known.turn + 1);
        self.agenda.push(Reverse((self.now + after, trainer, known.turn)));
    }

    fn connect(&mut self, trainer: usize) {
        self.connections += 1;
        let known = &mut self.trainers[trainer];
        (known.connection, known.patience_us, known.is_gated) = (Some(self.connections), None, false);
        self.update();
    }

    /// Tells the gates which tasks and trainers there are.
    fn update(&mut self) {
        let mut tasks = self.tasks.clone();
        for task in &mut tasks {
            let own = self.trainers.iter().filter(|t| t.task == task.id);
            task.trainers = own.filter_map(|t| Some((t.rank, t.connection?))).collect();
        }
        let commands = self.gates.update(self.now, &tasks);
        self.obey(commands);
    }

    fn obey(&mut self, commands: Vec<GateCommand>) {
        for command in commands {
            let (task, rank) = match command {
                GateCommand::On { task, rank, .. } | GateCommand::Off { task, rank } => (task, rank),
                GateCommand::Go(go) => (go.task, go.rank),
            };
            let found = self
                .trainers
                .iter()
                .position(|t| (t.task, t.rank) == (task, rank));
            let trainer = found.unwrap();
            let known = &mut self.trainers[trainer];
            match command {
                GateCommand::On { patience_ms, .. } => {
                    known.patience_us = Some(1_000 * patience_ms);
                    known.most_patience = known.most_patience.max(1_000 * patience_ms);
                }
                GateCommand::Off { .. } => {
                    (known.patience_us, known.is_gated) = (None, false);
                    self.go(trainer);
                }
                GateCommand::Go(go) => {
                    if (go.stage.index(), go.step) == (known.stage, known.step) {
                        self.go(trainer);
                    }
                }
            }
        }
    }

    /// Lets a trainer that waits begin its stage.
    fn go(&mut self, trainer: usize) {
        let known = &mut self.trainers[trainer];
        if let Activity::Waiting(since) = known.activity {
            known.longest_wait = known.longest_wait.max(self.now - since);
            self.run_stage(trainer);
        }
    }

    fn run_stage(&mut self, trainer: usize) {
        let stalls = self.happens(self.mishaps.stall);
        let extra = if stalls {
            self.random.random_range(0..60_000_000)
        } else {
            0
        };
        let known = &mut self.trainers[trainer];
        known.began = self.now;
        let time = known.times_us[known.stage];
        self.plan(trainer, time + extra);
    }

    fn tell(&mut self, trainer: usize, event: GateEvent) {
        let known = &self.trainers[trainer];
        if known.connection.is_some() {
            let commands = self
                .gates
                .handle(self.now, known.task, known.rank, known.step, event);
            self.obey(commands);
        }
    }

    /// The next thing that a trainer does.
    fn act(&mut self, trainer: usize) {
        let known = &mut self.trainers[trainer];
        if known.stage < 3 {
            let stage = StepStage::ALL[known.stage];
            known.log.push((stage, known.began, self.now));
            if known.is_gated {
                self.tell(trainer, GateEvent::Left(stage));
            }
            self.trainers[trainer].stage += 1;
            if self.happens(self.mishaps.skip) {
                self.trainers[trainer].stage += 1;
            }
            if self.trainers[trainer].stage >= 3 {
                self.end_step(trainer);
                return;
            }
        } else {
            known.stage = 0;
            known.step += 1;
            known.is_gated = known.patience_us.is_some();
        }
        self.begin_stage(trainer);
    }

    fn begin_stage(&mut self, trainer: usize) {
        let known = &mut self.trainers[trainer];
        if known.is_gated {
            known.activity = Activity::Waiting(self.now);
            let stage = StepStage::ALL[known.stage];
            self.tell(trainer, GateEvent::Entered(stage));
        } else {
            self.run_stage(trainer);
        }
    }

    fn end_step(&mut self, trainer: usize) {
        self.trainers[trainer].stage = 3;
        if self.trainers[trainer].is_gated && !self.happens(self.mishaps.forget) {
            self.tell(trainer, GateEvent::Passed);
        }
        if self.happens(self.mishaps.reconnect) {
            self.trainers[trainer].connection = None;
            self.update();
            self.connect(trainer);
        }
        if self.happens(self.mishaps.restart) {
            let task = self.trainers[trainer].task;
            let (stopped, others) = self.tasks.drain(..).partition(|t| t.id == task);
            self.tasks = others;
            self.update();
            self.tasks.extend::<Vec<GateTask>>(stopped);
            self.update();
        }
        self.plan(trainer, 0);
    }

    /// Runs until this time.
    fn run(&mut self, until: Micros) {
        loop {
            let next = self.agenda.peek().map_or(until, |Reverse((at, ..))| *at);
            let deadline = self.gates.next_deadline().unwrap_or(until);
            if next.min(deadline) >= until {
                self.now = until;
                return;
            }
            if deadline < next {
                self.now = self.now.max(deadline);
                let (commands, is_update_due) = self.gates.tick(self.now);
                self.obey(commands);
                if is_update_due {
                    self.update();
                }
                continue;
            }
            let Some(Reverse((at, trainer, turn))) = self.agenda.pop() else {
                return;
            };
            self.now = at;
            if self.trainers[trainer].turn == turn {
                self.act(trainer);
            }
        }
    }
}

/// Stages and number of trainers of two to four jobs.
fn jobs() -> impl Strategy<Value = Vec<([u32; 3], u32)>> {
    let time = || prop_oneof![Just(0), 1_000..20_000u32, 20_000..300_000u32];
    let stages = (time(), 1_000..200_000u32, time()).prop_map(|(data, gpu, network)| [data, gpu, network]);
    proptest::collection::vec((stages, 1..=2u32), 2..=4)
}

fn plan(jobs: &[([u32; 3], u32)]) -> PhasePlan {
    let members: Vec<(u64, Stages)> = (1..)
        .zip(jobs.iter().map(|(times, _)| terms(*times).stages))
        .collect();
    PhasePlan::new(&members, Ordering::Best).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn well_behaved_jobs_follow_the_plan(jobs in jobs(), seed in any::<u64>()) {
        let mut world = World::new(&jobs, Mishaps::default(), seed);
        let planned = plan(&jobs).period_us();
        world.run(5_000_000);
        let steps: Vec<u64> = world.trainers.iter().map(|t| t.step).collect();
        let span = 200.0 * planned;
        world.run(5_000_000 + span as Micros);
        for (trainer, before) in world.trainers.iter().zip(steps) {
            let done = trainer.step - before;
            prop_assert!((198..=202).contains(&done), "{done} steps in 200 periods of {planned}");
        }
        let report = world.gates.report(id(1)).unwrap();
        prop_assert!((report.measured_us as f64 - planned).abs() <= 2.0 + 1e-3 * planned, "{report:?}");
        let of_gpu = world.trainers.iter().filter(|t| t.rank == 0).flat_map(|t| &t.log);
        let mut uses: Vec<(Micros, Micros)> = of_gpu
            .filter(|(stage, from, to)| *stage == StepStage::Gpu && *from >= 5_000_000 && to > from)
            .map(|(_, from, to)| (*from, *to))
            .collect();
        uses.sort_unstable();
        prop_assert!(uses.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two jobs compute at the same time");
    }

    #[test]
    fn no_member_waits_longer_than_the_bound_and_all_make_progress(
        jobs in jobs(),
        seed in any::<u64>(),
        (stall, skip, forget, reconnect, restart) in (0..30u32, 0..300u32, 0..300u32, 0..50u32, 0..20u32),
    ) {
        let mishaps = Mishaps { stall, skip, forget, reconnect, restart };
        let mut world = World::new(&jobs, mishaps, seed);
        let mut before = vec![0; world.trainers.len()];
        for minute in 1..=4 {
            world.run(minute * 60_000_000);
            for (trainer, before) in world.trainers.iter_mut().zip(&mut before) {
                let waits = match trainer.activity {
                    Activity::Waiting(since) => world.now - since,
                    Activity::Busy => 0,
                };
                let longest = trainer.longest_wait.max(waits);
                prop_assert!(longest <= trainer.most_patience, "{longest} {}", trainer.most_patience);
                prop_assert!(stall > 0 || trainer.step > *before, "no step in a minute");
                *before = trainer.step;
            }
        }
        prop_assert!(before.iter().all(|step| *step > 10), "{before:?}");
    }
}

#[test]
fn a_job_that_stalls_again_and_again_is_left_out_for_a_minute() {
    let jobs = [
        ([10_000, 20_000, 0], 1),
        ([20_000, 10_000, 0], 1),
        ([20_000, 20_000, 0], 1),
    ];
    let mut world = World::new(&jobs, Mishaps::default(), 1);
    world.run(1_000_000);
    assert_eq!(world.gates.report(id(1)).unwrap().partners, [2, 3]);
    // From now on its network stage takes very long.
    world.trainers[1].times_us = [20_000, 10_000, 20_000_000];
    world.run(60_000_000);
    world.trainers[1].times_us = [20_000, 10_000, 0];
    let partners = world.gates.report(id(1)).unwrap().partners;
    assert!(
        partners == [3] && world.gates.report(id(2)).is_none(),
        "{partners:?}"
    );
    let planned = plan(&[jobs[0], jobs[2]]).period_us();
    let report = world.gates.report(id(1)).unwrap();
    assert_eq!(
        (report.planned_us, report.measured_us),
        (planned as Micros, planned as Micros)
    );
    world.run(110_000_000);
    assert_eq!(world.gates.report(id(2)).unwrap().partners, [1, 3]);
}

#[test]
fn groups_are_connected_through_slots_and_all_or_none_have_gates() {
    let task = |job: u64, slots: &[u32], trainer: bool| GateTask {
        id: id(job),
        slots: slots.to_vec(),
        terms: Some(terms([10, 10, 0])),
        trainers: trainer.then_some((0, job)).into_iter().collect(),
    };
    let on = |gates: &mut StageGates, tasks: &[GateTask]| -> Vec<(u64, bool)> {
        let commands = gates.update(0, tasks).into_iter();
        let told = |command| match command {
            GateCommand::On { task, .. } => Some((task.job, true)),
            GateCommand::Off { task, .. } => Some((task.job, false)),
            GateCommand::Go(_) => None,
        };
        commands.filter_map(told).collect()
    };
    let mut gates = StageGates::default();
    let pair = [task(1, &[0, 1], true), task(2, &[1], true), task(3, &[2], true)];
    assert_eq!(on(&mut gates, &pair), [(1, true), (2, true)]);
    assert_eq!(on(&mut gates, &pair), [], "nothing new");
    let silent = [pair[0].clone(), pair[1].clone(), task(4, &[0], false)];
    assert_eq!(
        on(&mut gates, &silent),
        [(1, false), (2, false)],
        "job 4 has no trainer"
    );
    let three = [pair[0].clone(), pair[1].clone(), task(4, &[0], true)];
    assert_eq!(on(&mut gates, &three), [(1, true), (2, true), (4, true)]);
    let unknown = GateTask {
        terms: None,
        ..pair[1].clone()
    };
    assert_eq!(
        on(&mut gates, &[pair[0].clone(), unknown]),
        [(1, false), (2, false)]
    );
    let many: Vec<GateTask> = (1..=5).map(|job| task(job, &[0], true)).collect();
    assert_eq!(on(&mut gates, &many), [], "five are too many");
}

#[test]
fn a_stopping_member_leaves_at_once_and_the_waiting_one_proceeds() {
    let stages = [([0, 50_000, 0], 1), ([0, 50_000, 0], 1)];
    let mut world = World::new(&stages, Mishaps::default(), 3);
    world.run(10_000_000);
    assert_eq!(
        period_us(&[terms(stages[0].0).stages; 2], Ordering::Best),
        100_000.0
    );
    let waiting = |world: &World| {
        world
            .trainers
            .iter()
            .position(|t| matches!(t.activity, Activity::Waiting(_)))
    };
    let waiter = waiting(&world).unwrap();
    let other = world.trainers[1 - waiter].task;
    world.tasks.retain(|task| task.id != other);
    world.update();
    assert_eq!(waiting(&world), None);
    assert!(world.gates.report(world.trainers[waiter].task).is_none());
}
