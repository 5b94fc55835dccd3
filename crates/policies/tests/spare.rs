//! Jobs that take what others leave: whatever the order says, they stand behind the others.

use std::collections::BTreeMap;

use dovetail_engine::{Clock, Engine};
use dovetail_model::{AttemptKey, ClusterSpec, Command, Event, JobKey, JobSpec, Outcome, Rate, Time, Work};
use dovetail_policies::{Overrides, build, presets};

const GPUS: u32 = 4;

struct Play {
    engine: Engine,
    now: Time,
    running: BTreeMap<JobKey, AttemptKey>,
}

impl Play {
    fn new(policy: &str) -> Self {
        let (policy, _) = build(policy, &Overrides::default()).expect("a preset");
        Self {
            engine: Engine::with_cluster(policy, Clock::Events, &ClusterSpec::uniform(1, GPUS)),
            now: Time::ZERO,
            running: BTreeMap::new(),
        }
    }

    fn submit(&mut self, id: u32, spare: bool, seconds: u32) {
        let spec = JobSpec {
            best_effort: spare,
            submit: self.now,
            expected: Some(Work::from_secs_f64(f64::from(seconds))),
            ..JobSpec::new(JobKey(id), GPUS)
        };
        self.engine.handle(self.now, Event::Submitted(spec));
        self.carry_out();
    }

    fn end(&mut self, id: u32) {
        let job = JobKey(id);
        let attempt = self.running.remove(&job).expect("it runs");
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

    /// Whoever runs after so many seconds.
    fn after(&mut self, seconds: u64) -> Vec<u32> {
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
                Command::Reject { job, reason } => panic!("job {job} is refused: {reason}"),
            };
            self.engine.handle(self.now, event);
        }
        self.engine.check().expect("the engine's books agree");
    }
}

#[test]
fn whoever_is_not_spare_comes_first_under_every_policy() {
    for preset in presets() {
        let mut play = Play::new(preset.name);
        play.submit(0, false, 1000);
        assert_eq!(play.after(1), [0], "{}", preset.name);
        // It came earlier, is shorter, and has had nothing so far.
        play.submit(1, true, 10);
        if play.running.contains_key(&JobKey(1)) {
            // Policies that share GPUs find room for it at once.
            continue;
        }
        play.submit(2, false, 500);
        play.after(1);
        if play.running.contains_key(&JobKey(0)) {
            play.end(0);
        }
        assert_eq!(play.after(1), [2], "{}", preset.name);
        play.end(2);
        while !play.running.contains_key(&JobKey(1)) {
            let other = *play.after(400).first().expect("somebody runs");
            if other != 1 {
                play.end(other);
            }
        }
    }
}

#[test]
fn it_gives_way_where_running_jobs_do() {
    for preset in ["las", "srtf", "srsf", "tiresias"] {
        let mut play = Play::new(preset);
        play.submit(0, true, 10);
        assert_eq!(play.after(1), [0], "{preset}");
        play.submit(1, false, 500);
        assert_eq!(play.after(1), [1], "{preset}");
        play.end(1);
        assert_eq!(play.after(1), [0], "{preset}");
    }
}
