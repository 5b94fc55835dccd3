//! Single decisions at 100,000 GPUs with 100,000 queued jobs.

use std::time::Instant;

use dovetail_engine::{Clock, Engine, Knowledge};
use dovetail_model::{ClusterSpec, Event, JobKey, JobSpec, NodeId, Outcome, Time, Work};
use dovetail_policies::{Overrides, build};

use crate::BenchError;
use crate::engine::{RunningJob, settle};
use crate::measurement::{CpuMeasurement, median};

const POLICIES: [&str; 3] = ["fifo-backfill", "srsf", "tiresias"];
const NODES: u32 = 12_500;
const GPUS_PER_NODE: u32 = 8;
const QUEUED_JOBS: u32 = 100_000;
/// GPUs of jobs, in turn.
const GPUS: [u32; 8] = [1, 1, 1, 2, 4, 8, 8, 16];
/// Decisions of each kind.
const SAMPLES: u32 = 1_001;

/// Measures decisions that change nothing, after an arrival, and after a completion.
pub(super) fn measure() -> Result<Vec<CpuMeasurement>, BenchError> {
    let mut measurements = Vec::new();
    for policy in POLICIES {
        measurements.extend(FullCluster::new(policy)?.measure());
    }
    Ok(measurements)
}

/// A cluster in full use with a long queue.
struct FullCluster {
    policy: &'static str,
    engine: Engine,
    needs: Knowledge,
    running: Vec<RunningJob>,
    /// Id of the next job.
    next: u32,
    now: i64,
}

impl FullCluster {
    /// Submits jobs until the queue is long enough.
    fn new(policy: &'static str) -> Result<Self, BenchError> {
        let (built, needs) = build(policy, &Overrides::default())?;
        let cluster = ClusterSpec::uniform(NODES, GPUS_PER_NODE);
        let mut full = Self {
            policy,
            engine: Engine::with_cluster(built, Clock::Events, &cluster),
            needs,
            running: Vec::new(),
            next: 0,
            now: 0,
        };
        while full.engine.idle().0 < QUEUED_JOBS {
            full.submit();
            settle(&mut full.engine, &mut full.running);
        }
        Ok(full)
    }

    fn tick(&mut self) -> Time {
        self.now += 1;
        Time(self.now)
    }

    fn submit(&mut self) {
        let mut spec = JobSpec::new(JobKey(self.next), GPUS[self.next as usize % GPUS.len()]);
        spec.expected = (self.needs != Knowledge::None).then_some(Work(3_600_000_000 + u64::from(self.next)));
        self.next += 1;
        let now = self.tick();
        self.engine.handle(now, Event::Submitted(spec));
    }

    fn measure(mut self) -> [CpuMeasurement; 3] {
        let node = Event::NodeUp {
            node: NodeId(0),
            spec: ClusterSpec::uniform(1, GPUS_PER_NODE).nodes[NodeId(0)].clone(),
        };
        let unchanged = self.time("decision that changes nothing", "50,000 ns", |full, _| {
            // A known node reports again: the engine decides, and nothing changes.
            let now = full.tick();
            full.engine.handle(now, node.clone());
            while full.engine.poll().is_some() {}
        });
        let mut started = Vec::new();
        let arrival = self.time("one arrival", "1,000,000 ns", |full, _| {
            full.submit();
            settle(&mut full.engine, &mut started);
        });
        let completion = self.time("one completion", "", |full, i| {
            let (job, attempt) = full.running[i as usize * 7];
            let now = full.tick();
            let outcome = Outcome::Completed;
            full.engine.handle(
                now,
                Event::Exited {
                    job,
                    attempt,
                    outcome,
                },
            );
            settle(&mut full.engine, &mut started);
        });
        [unchanged, arrival, completion]
    }

    /// Returns the median wall time of a step.
    fn time(
        &mut self,
        name: &str,
        goal: &'static str,
        mut step: impl FnMut(&mut Self, u32),
    ) -> CpuMeasurement {
        let times = (0..SAMPLES).map(|i| {
            let start = Instant::now();
            step(self, i);
            start.elapsed().as_secs_f64()
        });
        let seconds = median(times.collect());
        CpuMeasurement {
            name: format!("{name}, 100,000 GPUs, 100,000 queued jobs, {}", self.policy),
            seconds,
            value: seconds * 1e9,
            unit: "ns (median)",
            goal,
        }
    }
}
