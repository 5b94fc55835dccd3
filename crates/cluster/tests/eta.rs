//! The interval for a start holds what it says: on the half of a public trace that was not looked at before, about nine
//! in ten jobs start within it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use dovetail_cluster::forecast::{Arrivals, Calibration, Draw, Eta, Lengths, Past, first_starts, interval};
use dovetail_engine::{Clock, Engine, Job};
use dovetail_model::{AttemptKey, ClusterSpec, Command, Event, JobKey, JobSpec, Outcome, Rate, Time};
use dovetail_policies::{Overrides, build};
use dovetail_workload::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

struct Drawn<'a> {
    lengths: &'a Lengths,
    arrivals: Arrivals,
    rng: ChaCha8Rng,
}

impl Draw for Drawn<'_> {
    fn anew(&mut self, sample: u32) {
        self.rng = ChaCha8Rng::seed_from_u64(u64::from(sample));
        self.arrivals.anew(&mut self.rng);
    }

    fn arrival(&mut self) -> Option<(Time, JobSpec)> {
        self.arrivals.following()
    }

    fn left(&mut self, job: &Job, ran: Time) -> Time {
        self.lengths.left(("", "", job.spec.gpus), ran, &mut self.rng)
    }
}

/// A cluster on which a trace is run as it was, and looked ahead from time to time.
struct Replay<'a> {
    workload: &'a Workload,
    engine: Engine,
    ends: BinaryHeap<Reverse<(Time, JobKey, AttemptKey)>>,
    past: Vec<Past>,
    starts: BTreeMap<JobKey, Time>,
    /// When something was said, what was found out, and what was said after it was corrected.
    said: BTreeMap<JobKey, (Time, Eta, Eta)>,
    /// Jobs of which it is not known yet how it came.
    open: BTreeSet<JobKey>,
    calibration: Calibration,
}

impl Replay<'_> {
    fn obey(&mut self, now: Time) {
        while let Some(command) = self.engine.poll() {
            if let Command::Launch { job, attempt, .. } = command {
                let rate = Rate::FULL;
                self.engine.handle(now, Event::Started { job, attempt, rate });
                self.starts.insert(job, now);
                let ran = Time(self.workload.jobs[job.0 as usize].work.0 as i64);
                self.ends.push(Reverse((now + ran, job, attempt)));
            }
        }
    }

    fn until(&mut self, now: Time) {
        while let Some(Reverse((at, job, attempt))) = self.ends.peek().copied().filter(|e| e.0.0 <= now) {
            self.ends.pop();
            let known = &self.workload.jobs[job.0 as usize];
            self.past.push(Past {
                user: String::new(),
                name: String::new(),
                gpus: known.gpus,
                ran: Time(known.work.0 as i64),
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
            self.obey(at);
        }
    }

    fn look_ahead(&mut self, now: Time, job: JobKey) {
        let from = self.past.len().saturating_sub(5_000);
        let lengths = Lengths::new(self.past[from..].iter().cloned());
        let came = &self.workload.jobs[..=job.0 as usize];
        let came = &came[came.len().saturating_sub(2_000)..];
        let spec = |j: &dovetail_workload::TraceJob| (j.submit, JobSpec::new(JobKey(0), j.gpus));
        let arrivals = came.iter().map(spec).collect();
        let mut draw = Drawn {
            lengths: &lengths,
            arrivals: Arrivals::new(arrivals),
            rng: ChaCha8Rng::seed_from_u64(0),
        };
        let (starts, _) = first_starts(&self.engine, now, (job, JobKey(job.0 + 1)), 60, &mut draw);
        self.look_back();
        if let Some(raw) = interval(now, starts, String::new()) {
            let said = self.calibration.correct(now, &raw);
            self.said.insert(job, (now, raw, said));
            self.open.insert(job);
        }
    }

    /// Learns from jobs that have started since, in the order in which they did.
    fn look_back(&mut self) {
        let started = |job: &JobKey| Some((*self.starts.get(job)?, *job));
        let mut started: Vec<(Time, JobKey)> = self.open.iter().filter_map(started).collect();
        started.sort_unstable();
        for (at, job) in started {
            let (said_at, raw, _) = &self.said[&job];
            self.calibration.learn(*said_at, raw, at);
            self.open.remove(&job);
        }
    }
}

/// The share of jobs in the second half that start within the interval, and how many there were.
fn coverage(workload: &Workload, nodes: u32, every: usize) -> (f64, usize) {
    let (policy, _) = build("fifo-backfill", &Overrides::default()).unwrap();
    let cluster = ClusterSpec::uniform(nodes, 8);
    let mut replay = Replay {
        workload,
        engine: Engine::with_cluster(policy, Clock::Events, &cluster),
        ends: BinaryHeap::new(),
        past: Vec::new(),
        starts: BTreeMap::new(),
        said: BTreeMap::new(),
        open: BTreeSet::new(),
        calibration: Calibration::default(),
    };
    let mut waiting = 0;
    for (i, job) in workload.jobs.iter().enumerate() {
        replay.until(job.submit);
        let id = JobKey(i as u32);
        let spec = JobSpec {
            submit: job.submit,
            ..JobSpec::new(id, job.gpus)
        };
        replay.engine.handle(job.submit, Event::Submitted(spec));
        replay.obey(job.submit);
        // A twentieth of the trace is history only.
        let waits = !replay.starts.contains_key(&id) && replay.engine.job(id).is_some();
        if waits && i >= workload.jobs.len() / 20 {
            waiting += 1;
            if waiting % every == 0 {
                replay.look_ahead(job.submit, id);
            }
        }
    }
    replay.until(Time(i64::MAX / 4));
    let half = JobKey(workload.jobs.len() as u32 / 2);
    let held = replay.said.range(half..).map(|(job, (_, _, eta))| {
        let start = replay.starts[job];
        eta.p5 <= start && start <= eta.p95
    });
    let held: Vec<bool> = held.collect();
    let hits = held.iter().filter(|h| **h).count();
    (hits as f64 / held.len() as f64, held.len())
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
