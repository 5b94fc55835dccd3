//! Best-effort jobs are behind all others in the queue, whatever the order.

use std::collections::BTreeMap;

use dovetail_engine::{Clock, Engine};
use dovetail_model::{AttemptKey, ClusterSpec, Command, Event, JobKey, JobSpec, Outcome, Rate, Time, Work};
use dovetail_policies::{Overrides, build, presets};

const GPUS: u32 = 4;

/// An engine whose commands are carried out at once.
struct Driver {
    engine: Engine,
    now: Time,
    running: BTreeMap<JobKey, AttemptKey>,
}

impl Driver {
    fn new(policy: &str) -> Self {
        let (policy, _) = build(policy, &Overrides::default()).expect("a preset");
        Self {
            engine: Engine::with_cluster(policy, Clock::Events, &ClusterSpec::uniform(1, GPUS)),
            now: Time::ZERO,
            running: BTreeMap::new(),
        }
    }

    fn submit(&mut self, id: u32, best_effort: bool, seconds: u32) {
        let spec = JobSpec {
            best_effort,
            submit: self.now,
            expected: Some(Work::from_secs_f64(f64::from(seconds))),
            ..JobSpec::new(JobKey(id), GPUS)
        };
        self.engine.handle(self.now, Event::Submitted(spec));
        self.carry_out();
    }

    fn end(&mut self, id: u32) {
        let job = JobKey(id);
        let attempt = self.running.remove(&job).expect("the job is running");
        let outcome = Outcome::Completed;
        self.engine.handle(
            self.now,
            Event::Exited {
                job,
                attempt,
                outcome,
            },
        );
        self.carry_out();
    }

    /// Lets time pass, and returns the jobs that run then.
    fn running_after(&mut self, seconds: u64) -> Vec<u32> {
        for _ in 0..seconds {
            self.now += Time::from_secs(1);
            self.engine.handle(self.now, Event::Wake);
            self.carry_out();
        }
        self.running.keys().map(|job| job.0).collect()
    }

    fn carry_out(&mut self) {
        while let Some(command) = self.engine.poll() {
            let event = match command {
                Command::Launch { job, attempt, .. } => {
                    self.running.insert(job, attempt);
                    let rate = Rate::FULL;
                    Event::Started { job, attempt, rate }
                }
                Command::Stop { job, attempt, .. } => {
                    self.running.remove(&job);
                    let done = Work(0);
                    Event::Stopped { job, attempt, done }
                }
                Command::Resize { .. } => continue,
                Command::Reject { job, reason } => panic!("job {job} is rejected: {reason}"),
            };
            self.engine.handle(self.now, event);
        }
        self.engine.check().expect("the invariants of the engine hold");
    }
}

#[test]
fn other_jobs_start_before_best_effort_jobs_under_every_preset() {
    for preset in presets() {
        let mut driver = Driver::new(preset.name);
        driver.submit(0, false, 1000);
        assert_eq!(driver.running_after(1), [0], "{}", preset.name);
        // It is submitted before job 2, is shorter, and has received no service.
        driver.submit(1, true, 10);
        if driver.running.contains_key(&JobKey(1)) {
            // Policies that share GPUs find room for it at once.
            continue;
        }
        driver.submit(2, false, 500);
        driver.running_after(1);
        if driver.running.contains_key(&JobKey(0)) {
            driver.end(0);
        }
        assert_eq!(driver.running_after(1), [2], "{}", preset.name);
        driver.end(2);
        while !driver.running.contains_key(&JobKey(1)) {
            let other = *driver.running_after(400).first().expect("a job is running");
            if other != 1 {
                driver.end(other);
            }
        }
    }
}

#[test]
fn a_running_best_effort_job_is_preempted_under_preemptive_policies() {
    for preset in ["las", "srtf", "srsf", "tiresias"] {
        let mut driver = Driver::new(preset);
        driver.submit(0, true, 10);
        assert_eq!(driver.running_after(1), [0], "{preset}");
        driver.submit(1, false, 500);
        assert_eq!(driver.running_after(1), [1], "{preset}");
        driver.end(1);
        assert_eq!(driver.running_after(1), [0], "{preset}");
    }
}
