//! Coverage of forecasts: on the second half of a public trace, about nine in ten jobs start within their interval.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use dovetail_cluster::forecast::{
    Arrivals, Calibration, Eta, FinishedJob, RunTimes, Sampler, first_starts, interval,
};
use dovetail_engine::{Clock, Engine, Job};
use dovetail_model::{AttemptKey, ClusterSpec, Command, Event, JobKey, JobSpec, Outcome, Rate, Time};
use dovetail_policies::{Overrides, build};
use dovetail_workload::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

struct TraceSampler<'a> {
    run_times: &'a RunTimes,
    arrivals: Arrivals,
    rng: ChaCha8Rng,
}

impl Sampler for TraceSampler<'_> {
    fn restart(&mut self, sample: u32) {
        self.rng = ChaCha8Rng::seed_from_u64(u64::from(sample));
        self.arrivals.restart(&mut self.rng);
    }

    fn next_arrival(&mut self) -> Option<(Time, JobSpec)> {
        self.arrivals.next_arrival()
    }

    fn draw_remaining(&mut self, job: &Job, elapsed: Time) -> Time {
        let job = ("", "", job.spec.gpus);
        self.run_times.draw_remaining(job, elapsed, &mut self.rng)
    }
}

/// A replay of a trace that makes a forecast from time to time.
struct Replay<'a> {
    workload: &'a Workload,
    engine: Engine,
    ends: BinaryHeap<Reverse<(Time, JobKey, AttemptKey)>>,
    finished: Vec<FinishedJob>,
    starts: BTreeMap<JobKey, Time>,
    /// Time of each forecast, with the forecast before and after its correction.
    forecasts: BTreeMap<JobKey, (Time, Eta, Eta)>,
    /// Jobs with a forecast that have not started yet.
    open: BTreeSet<JobKey>,
    calibration: Calibration,
}

impl Replay<'_> {
    fn execute_commands(&mut self, now: Time) {
        while let Some(command) = self.engine.poll() {
            if let Command::Launch { job, attempt, .. } = command {
                let rate = Rate::FULL;
                self.engine.handle(now, Event::Started { job, attempt, rate });
                self.starts.insert(job, now);
                let run_time = Time(self.workload.jobs[job.0 as usize].work.0 as i64);
                self.ends.push(Reverse((now + run_time, job, attempt)));
            }
        }
    }

    fn advance_to(&mut self, now: Time) {
        while let Some(Reverse((at, job, attempt))) = self.ends.peek().copied().filter(|e| e.0.0 <= now) {
            self.ends.pop();
            let known = &self.workload.jobs[job.0 as usize];
            self.finished.push(FinishedJob {
                user: String::new(),
                name: String::new(),
                gpus: known.gpus,
                run_time: Time(known.work.0 as i64),
            });
            let outcome = Outcome::Completed;
            self.engine.handle(
                at,
                Event::Exited {
                    job,
                    attempt,
                    outcome,
                },
            );
            self.execute_commands(at);
        }
    }

    fn forecast(&mut self, now: Time, job: JobKey) {
        let from = self.finished.len().saturating_sub(5_000);
        let run_times = RunTimes::new(self.finished[from..].iter().cloned());
        let submitted = &self.workload.jobs[..=job.0 as usize];
        let recent = &submitted[submitted.len().saturating_sub(2_000)..];
        let spec = |j: &dovetail_workload::TraceJob| (j.submit, JobSpec::new(JobKey(0), j.gpus));
        let arrivals = recent.iter().map(spec).collect();
        let mut sampler = TraceSampler {
            run_times: &run_times,
            arrivals: Arrivals::new(arrivals),
            rng: ChaCha8Rng::seed_from_u64(0),
        };
        let (starts, _) = first_starts(&self.engine, now, (job, JobKey(job.0 + 1)), 60, &mut sampler);
        self.calibrate();
        if let Some(raw) = interval(now, starts, String::new()) {
            let corrected = self.calibration.correct(now, &raw);
            self.forecasts.insert(job, (now, raw, corrected));
            self.open.insert(job);
        }
    }

    /// Learns from jobs that have started since their forecast, in the order in which they did.
    fn calibrate(&mut self) {
        let started = |job: &JobKey| Some((*self.starts.get(job)?, *job));
        let mut started: Vec<(Time, JobKey)> = self.open.iter().filter_map(started).collect();
        started.sort_unstable();
        for (at, job) in started {
            let (forecast_at, raw, _) = &self.forecasts[&job];
            self.calibration.learn(*forecast_at, raw, at);
            self.open.remove(&job);
        }
    }
}

/// Returns the share of jobs in the second half that start within their interval, and the number of forecasts.
fn coverage(workload: &Workload, nodes: u32, every: usize) -> (f64, usize) {
    let (policy, _) = build("fifo-backfill", &Overrides::default()).unwrap();
    let cluster = ClusterSpec::uniform(nodes, 8);
    let mut replay = Replay {
        workload,
        engine: Engine::with_cluster(policy, Clock::Events, &cluster),
        ends: BinaryHeap::new(),
        finished: Vec::new(),
        starts: BTreeMap::new(),
        forecasts: BTreeMap::new(),
        open: BTreeSet::new(),
        calibration: Calibration::default(),
    };
    let mut waiting = 0;
    for (i, job) in workload.jobs.iter().enumerate() {
        replay.advance_to(job.submit);
        let id = JobKey(i as u32);
        let spec = JobSpec {
            submit: job.submit,
            ..JobSpec::new(id, job.gpus)
        };
        replay.engine.handle(job.submit, Event::Submitted(spec));
        replay.execute_commands(job.submit);
        // There are no forecasts in the first twentieth of the trace.
        let waits = !replay.starts.contains_key(&id) && replay.engine.job(id).is_some();
        if waits && i >= workload.jobs.len() / 20 {
            waiting += 1;
            if waiting % every == 0 {
                replay.forecast(job.submit, id);
            }
        }
    }
    replay.advance_to(Time(i64::MAX / 4));
    let half = JobKey(workload.jobs.len() as u32 / 2);
    let covered = replay.forecasts.range(half..).map(|(job, (_, _, eta))| {
        let start = replay.starts[job];
        eta.p5 <= start && start <= eta.p95
    });
    let covered: Vec<bool> = covered.collect();
    let hits = covered.iter().filter(|is_covered| **is_covered).count();
    (hits as f64 / covered.len() as f64, covered.len())
}

#[test]
fn nine_in_ten_jobs_start_within_the_interval() {
    let Some(folder) = dovetail_testkit::shared(env!("CARGO_MANIFEST_DIR"), "jct-bound") else {
        return;
    };
    for (file, jobs, nodes) in [
        ("venus.csv.gz", 60_000..80_000, 60),
        ("itp07.csv.gz", 0..12_000, 20),
    ] {
        let mut workload = dovetail_workload::read(folder.join(file), None).unwrap();
        workload.jobs = workload.jobs[jobs].to_vec();
        let (share, n) = coverage(&workload, nodes, 40);
        println!(
            "{file}: {:.1} % of {n} starts are within the interval",
            share * 100.0
        );
        assert!(
            n > 100 && (0.85..=0.95).contains(&share),
            "{file}: {share} of {n}"
        );
    }
}
