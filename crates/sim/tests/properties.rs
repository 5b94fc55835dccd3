//! Invariants of the simulator over random clusters, workloads, policies and failures.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use dovetail_model::run::{JobRow, RunRecord};
use dovetail_model::{AttemptKey, Command, Event, JobKey, Rate, StopReason, Time, Work};
use dovetail_policies::Overrides;
use dovetail_sim::{Clock, Failures, Journal, Knowledge, Outage, SimConfig, simulate_with};
use dovetail_testkit::any::{cases, clusters, on_grid, plain, sharing_policies, steady_policies};
use dovetail_testkit::{PolicyText, Scenario};
use proptest::prelude::*;
use proptest::sample::select;

/// Runs a scenario with every check enabled.
fn run(scenario: &Scenario, change: impl FnOnce(&mut SimConfig)) -> (RunRecord, Journal) {
    let mut config = SimConfig::new(scenario.cluster.clone());
    config.check = true;
    change(&mut config);
    let (policy, needs) = scenario.policy.build();
    let mut journal = Journal::default();
    let workload = scenario.workload();
    let record = simulate_with(&workload, policy, needs, &config, Some(&mut journal), &mut |_| {});
    (record.unwrap(), journal)
}

/// Returns everything except the wall time, as bytes.
fn bytes(mut record: RunRecord) -> String {
    record.summary.wall_ms = 0.0;
    serde_json::to_string(&record).unwrap()
}

/// The progress of one job according to the journal.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    done: Work,
    running: Option<(Time, Rate)>,
    /// Work that was done and lost.
    lost: Work,
    /// Work of the last attempt up to one microsecond before its end.
    almost: Work,
    ended: bool,
}

impl Account {
    fn up_to(&self, now: Time) -> Work {
        let running = self.running.map(|(since, rate)| rate.work_in(now.since(since)));
        self.done + running.unwrap_or_default()
    }
}

/// Adds up the progress of every job; `lose` is called for each stopped attempt with the job, the reason, and the lost work.
fn accounts(journal: &Journal, mut lose: impl FnMut(JobKey, StopReason, Work)) -> BTreeMap<JobKey, Account> {
    let stop_reason = |job, attempt| {
        let stop = journal.commands.iter().find_map(|(_, command)| match command {
            Command::Stop {
                job: j,
                attempt: g,
                reason,
            } if (*j, *g) == (job, attempt) => Some(*reason),
            _ => None,
        });
        stop.expect("a stopped job was asked to stop")
    };
    let mut accounts: BTreeMap<JobKey, Account> = BTreeMap::new();
    for (now, event) in &journal.events {
        match *event {
            Event::Started { job, rate, .. } => {
                accounts.entry(job).or_default().running = Some((*now, rate));
            }
            // The effect of jobs on the same GPUs is counted whenever one starts or stops.
            Event::Progressed { job, done, rate, .. } => {
                let account = accounts.entry(job).or_default();
                (account.done, account.running) = (done, Some((*now, rate)));
            }
            Event::Stopped { job, attempt, done } => {
                let account = accounts.entry(job).or_default();
                let lost = account.up_to(*now).minus(done);
                account.lost += lost;
                (account.done, account.running) = (done, None);
                lose(job, stop_reason(job, attempt), lost);
            }
            Event::Exited { job, .. } => {
                let account = accounts.entry(job).or_default();
                account.almost = account.up_to(*now - Time(1));
                (account.done, account.running, account.ended) = (account.up_to(*now), None, true);
            }
            _ => {}
        }
    }
    accounts
}

/// Returns whether jobs may share GPUs, and so be slower than alone and yet finish earlier.
fn shares(scenario: &Scenario) -> bool {
    scenario.policy.build().0.grouping.shares()
}

fn scenarios(most: usize) -> impl Strategy<Value = Scenario> {
    let policy = prop_oneof![3 => steady_policies(), 1 => sharing_policies()];
    plain(clusters(), policy, most, true)
}

/// Policies that change the widths of running jobs, as soon as the cost of restarts allows.
fn resizing_policies() -> impl Strategy<Value = PolicyText> {
    select(&["optimus:interval=0", "elastic-fifo:interval=0"][..]).prop_map(|preset| PolicyText {
        preset: preset.to_owned(),
        overrides: Overrides::default(),
    })
}

fn outages(nodes: usize) -> impl Strategy<Value = Vec<Outage>> {
    let outage = (0..nodes as u32, 0..600i64, 1..200i64).prop_map(|(node, down, span)| Outage {
        node: dovetail_model::NodeId(node),
        down: Time::from_secs(down),
        up: Some(Time::from_secs(down + span)),
    });
    prop::collection::vec(outage, 0..8)
}

/// Draws a scenario, outages, a restart cost and a checkpoint interval.
fn with_failures() -> impl Strategy<Value = (Scenario, Vec<Outage>, i64, Option<i64>)> {
    scenarios(25).prop_flat_map(|scenario| {
        let nodes = scenario.cluster.nodes.len();
        let restart = if scenario.policy.takes_turns() {
            0..=0
        } else {
            0..=5i64
        };
        (
            Just(scenario),
            outages(nodes),
            restart,
            prop::option::of(1..20i64),
        )
    })
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn every_job_that_can_run_ends_with_exactly_its_work_done(scenario in scenarios(40)) {
        let (record, journal) = run(&scenario, |_| {});
        let accounts = accounts(&journal, |_, _, _| {});
        for (row, story) in record.rows.iter().zip(&scenario.jobs) {
            prop_assert!(row.finish.is_some(), "job {} never ends", row.job);
            let account = accounts[&row.job];
            prop_assert!(account.ended && account.lost == Work(0));
            prop_assert!(account.done >= row.work && account.almost < row.work, "{:?} of {:?}", account, row.work);
            if story.job.min_gpus == story.job.max_gpus && !shares(&scenario) {
                prop_assert_eq!(row.held.0 as u64, row.work.0, "at full speed the time held is the work");
            }
        }
    }

    #[test]
    fn a_lost_node_costs_no_more_than_the_work_since_the_last_checkpoint(
        (scenario, outages, restart, checkpoint) in with_failures(),
    ) {
        let checkpoint = checkpoint.map(Time::from_secs);
        let (record, journal) = run(&scenario, |config| {
            config.failures = Failures { outages, ..Failures::default() };
            config.restart_cost = Time::from_secs(restart);
            config.checkpoint = checkpoint;
        });
        let mut losses = Vec::new();
        let accounts = accounts(&journal, |job, reason, lost| losses.push((job, reason, lost)));
        for (job, reason, lost) in losses {
            let truth = &scenario.jobs[job.0 as usize].job;
            let fastest = truth.scaling.rate(truth.max_gpus, truth.gpus);
            let most = match (reason, checkpoint) {
                (StopReason::NodeLost(_), Some(interval)) => fastest.work_in(interval),
                _ => Work(0),
            };
            prop_assert!(lost <= most, "job {} lost {:?} by {:?}, at most {:?}", job, lost, reason, most);
        }
        for row in &record.rows {
            prop_assert!(row.finish.is_some() && accounts[&row.job].done >= row.work, "job {} never ends", row.job);
        }
    }

    #[test]
    fn the_width_of_a_job_does_not_change_before_a_restart_costs_a_small_part_of_its_time(
        mut scenario in plain(clusters(), resizing_policies(), 25, true),
        restart in 1..=5i64,
    ) {
        // Jobs of higher priority do not wait for that.
        scenario.jobs.iter_mut().for_each(|story| story.job.priority = 0);
        let (record, journal) = run(&scenario, |config| config.restart_cost = Time::from_secs(restart));
        let mut launched: BTreeMap<(JobKey, AttemptKey), Time> = BTreeMap::new();
        for (now, command) in &journal.commands {
            match command {
                Command::Launch { job, attempt, .. } => drop(launched.insert((*job, *attempt), *now)),
                Command::Stop { job, attempt, reason: StopReason::Resized } => {
                    let held = now.since(launched[&(*job, *attempt)]);
                    prop_assert!(held >= Time::from_secs(restart * 20), "job {} was resized after {:?}", job, held);
                }
                _ => {}
            }
        }
        prop_assert!(record.rows.iter().all(|row| row.finish.is_some()));
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes(scenario in scenarios(25), seed: u64) {
        let run_to_end = || run(&scenario, |config| {
            config.seed = seed;
            config.knowledge = Some(Knowledge::Estimate);
            config.failures = Failures {
                mtbf: Some(Time::from_secs(2000)),
                repair: Time::from_secs(60),
                ..Failures::default()
            };
        });
        let (one, two) = (run_to_end(), run_to_end());
        prop_assert_eq!(bytes(one.0), bytes(two.0));
        prop_assert_eq!(one.1, two.1);
    }

    #[test]
    fn the_journal_of_events_gives_the_same_commands_again(
        (scenario, outages, restart, checkpoint) in with_failures(),
        period in prop::option::of(select(&[10i64, 60][..])),
    ) {
        let clock = period.map_or(Clock::Events, |s| Clock::rounds(Time::from_secs(s)));
        let (_, journal) = run(&scenario, |config| {
            config.failures = Failures { outages, ..Failures::default() };
            config.restart_cost = Time::from_secs(restart);
            config.checkpoint = checkpoint.map(Time::from_secs);
            config.clock = clock;
        });
        prop_assert_eq!(replay(&scenario, clock, &journal), journal.commands);
    }

    #[test]
    fn rounds_and_events_agree_where_all_times_lie_on_the_grid(
        cluster in clusters(),
        jobs in dovetail_testkit::any::workloads(40, dovetail_testkit::any::Fit::Feasible, false),
        preset in select(&["fifo", "fifo-backfill", "fifo-easy", "sjf", "sjf-easy"][..]),
        discipline in prop::option::of(select(&["backfill:patience=2m", "easy:patience=3m", "strict"][..])),
        placement in select(&["consolidate", "spread", "first-free", "random", "rack-aware"][..]),
    ) {
        let period = Time::from_secs(60);
        let overrides = Overrides {
            discipline: discipline.map(str::to_owned),
            placement: Some(placement.to_owned()),
            ..Overrides::default()
        };
        let policy = PolicyText { preset: preset.to_owned(), overrides };
        let jobs = on_grid(jobs.on(&cluster), period);
        let scenario = Scenario::plain(cluster, policy, jobs);
        let rows = |clock| -> Vec<JobRow> { run(&with_names(&scenario), |config| config.clock = clock).0.rows };
        prop_assert_eq!(rows(Clock::Events), rows(Clock::rounds(period)));
    }

    #[test]
    fn no_policy_beats_the_lower_bound(scenario in plain(clusters(), steady_policies(), 40, false)) {
        let (record, _) = run(&scenario, |_| {});
        let (bound, average) = (record.summary.lower_bound_avg_jct_s, record.summary.avg_jct_s);
        prop_assert!(shares(&scenario) || (bound > 0.0 && bound <= average * (1.0 + 1e-9)), "{} above {}", bound, average);
    }
}

/// Names the tenants and users of random jobs.
fn with_names(scenario: &Scenario) -> Scenario {
    let mut named = scenario.clone();
    named.names.tenants = ["default", "x", "y"].map(str::to_owned).into_iter().collect();
    named.names.users = ["anyone", "u", "v", "w"].map(str::to_owned).into_iter().collect();
    named
}

/// Replays the journal's events in a new engine. At each moment events are handled until one answers a command that was not
/// given yet; then the engine is polled for the next command.
fn replay(scenario: &Scenario, clock: Clock, journal: &Journal) -> Vec<(Time, Command)> {
    let mut engine = dovetail_engine::Engine::new(scenario.policy.build().0, clock);
    engine.set_zones(scenario.cluster.zones.clone());
    let mut commands: Vec<(Time, Command)> = Vec::new();
    let mut launched: BTreeMap<JobKey, AttemptKey> = BTreeMap::new();
    let mut stopped: BTreeMap<JobKey, AttemptKey> = BTreeMap::new();
    let mut note = |now: Time, command: Command, commands: &mut Vec<(Time, Command)>| {
        match command {
            Command::Launch { job, attempt, .. } => drop(launched.insert(job, attempt)),
            Command::Stop { job, attempt, .. } => drop(stopped.insert(job, attempt)),
            Command::Resize { .. } | Command::Reject { .. } => {}
        }
        commands.push((now, command));
        (launched.clone(), stopped.clone())
    };
    let mut given = Default::default();
    for (i, (now, event)) in journal.events.iter().enumerate() {
        // Speeds change after all decisions of a moment.
        if matches!(event, Event::Progressed { .. }) {
            while let Some(command) = engine.poll() {
                given = note(*now, command, &mut commands);
            }
        }
        loop {
            let (launched, stopped): &(BTreeMap<_, _>, BTreeMap<_, _>) = &given;
            let is_due = match event {
                Event::Started { job, attempt, .. } => launched.get(job) == Some(attempt),
                Event::Stopped { job, attempt, .. } => stopped.get(job) == Some(attempt),
                _ => true,
            };
            if is_due {
                break;
            }
            let command = engine.poll().expect("the answer in the journal has a command");
            given = note(*now, command, &mut commands);
        }
        engine.handle(*now, event.clone());
        if journal.events.get(i + 1).is_none_or(|(next, _)| next > now) {
            while let Some(command) = engine.poll() {
                given = note(*now, command, &mut commands);
            }
        }
    }
    commands
}
