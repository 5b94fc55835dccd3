//! The fake cluster: it honours the driver's contract, at once or late, and writes down what happens.

use std::collections::BTreeMap;

use dovetail_engine::Engine;
use dovetail_model::{Allocation, Command, Event, Generation, JobId, Outcome, Time};

use crate::network::Network;
use crate::reality::Reality;
use crate::replay::Op;
use crate::scenario::{Happening, Scenario};
use crate::words::{self, seconds};

/// Something that is due.
#[derive(Debug, Clone)]
pub(crate) enum Due {
    Happens(Happening),
    Answer(Event),
    Order(Command),
    Begin(JobId, Generation, Allocation),
    End(JobId, Generation),
    Halt(JobId, Generation),
    Report(JobId, Generation),
}

/// An engine and the cluster it drives. Everything is checked after every step.
#[derive(Debug, Clone)]
pub struct World {
    /// The engine; a test may put another one in its place.
    pub engine: Engine,
    pub(crate) scenario: Scenario,
    pub(crate) reality: Reality,
    pub(crate) network: Option<Network>,
    pub(crate) now: Time,
    due: BTreeMap<(Time, u64), Due>,
    sent: u64,
    trace: Vec<String>,
    ops: Vec<Op>,
    quiet: u32,
}

impl World {
    /// The cluster is up and nothing has happened.
    pub fn new(scenario: &Scenario) -> Self {
        let mut world = Self {
            engine: scenario.engine(),
            reality: Reality::new(scenario),
            network: scenario.manner.chaos.map(Network::new),
            scenario: scenario.clone(),
            now: Time::ZERO,
            due: BTreeMap::new(),
            sent: 0,
            trace: Vec::new(),
            ops: Vec::new(),
            quiet: 0,
        };
        for (at, happening) in &scenario.happenings {
            world.at(*at, Due::Happens(*happening));
        }
        world
    }

    /// Goes on until nothing moves any more.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// Everything that is due at the next moment; false when nothing is left to happen.
    ///
    /// # Panics
    /// Names the promise that is broken.
    pub fn step(&mut self) -> bool {
        let wake = self.engine.wake_at().map(|at| at.max(self.now));
        let first = self.due.first_key_value().map(|((at, _), _)| *at);
        let Some(next) = first.into_iter().chain(wake).min() else {
            return false;
        };
        // With nothing on its way, a policy that asks to be woken again and again waits for something that never comes.
        self.quiet = if self.due.is_empty() || next == self.now {
            self.quiet + 1
        } else {
            0
        };
        if self.due.is_empty() && self.quiet > 64 {
            return false;
        }
        assert!(self.quiet < 10_000, "no progress at {} s", seconds(self.now));
        assert!(
            self.ops.len() < 200_000,
            "no end in sight at {} s",
            seconds(self.now)
        );
        self.now = next;
        let mut questions = Vec::new();
        while let Some(entry) = self.due.first_entry().filter(|e| e.key().0 <= next) {
            match entry.remove() {
                Due::Happens(Happening::Explain(job)) => questions.push(job),
                due => self.happen(due),
            }
        }
        if self.engine.wake_at().is_some_and(|at| at <= self.now) {
            self.tell(Event::Wake);
        }
        while let Some(command) = self.poll() {
            self.note_command(&command);
            self.send(|command| Due::Order(command.clone()), &command);
        }
        for job in questions {
            let told = words::explanation(&self.engine.explain(job));
            self.note(format!("{}: {told}", self.name(job)));
        }
        true
    }

    /// The moment.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// What was told to the engine and asked of it, in order.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Whether the job came to its end by itself, and how.
    pub fn ended(&self, job: JobId) -> Option<Outcome> {
        self.reality.has_ended(job)
    }

    /// The trace so far. At the end it names the jobs that wait for ever.
    pub fn trace(&self) -> String {
        let mut lines = self.trace.clone();
        let left: Vec<String> = self.engine.jobs().map(|j| self.name(j.spec.id)).collect();
        if self.due.is_empty() && !left.is_empty() {
            lines.push(format!("never {}", left.join(" ")));
        }
        lines.join("\n")
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Happens(happening) => self.happens(happening),
            Due::Answer(event) => self.tell(event),
            Due::Order(command) => self.order(command),
            Due::Begin(job, generation, allocation) => self.begin(job, generation, &allocation),
            Due::End(job, generation) => self.end(job, generation, Outcome::Completed),
            Due::Halt(job, generation) => self.halt(job, generation),
            Due::Report(job, generation) => self.report(job, generation),
        }
    }

    /// What the contract asks of every command.
    fn note_command(&mut self, command: &Command) {
        let line = match command {
            Command::Launch { job, allocation, .. } => {
                for share in &allocation.shares {
                    let node = self.engine.cluster().node(share.node);
                    assert!(
                        node.is_some_and(|n| n.is_open()) && self.reality.is_up(share.node),
                        "job {job} is launched on node {}, which takes no jobs",
                        share.node
                    );
                }
                let truth = &self.scenario.jobs[job.0 as usize].job;
                let rigid = self.engine.policy().sizing.name() == "rigid";
                let bounds = if rigid {
                    truth.gpus..=truth.gpus
                } else {
                    truth.min_gpus..=truth.max_gpus
                };
                assert!(
                    bounds.contains(&allocation.gpus()),
                    "gang of job {job} is not whole"
                );
                format!("launch {} on {}", self.name(*job), words::place(allocation))
            }
            Command::Stop { job, reason, .. } => format!("stop {} {}", self.name(*job), words::stop(*reason)),
            Command::Resize { job, allocation, .. } => {
                format!("resize {} on {}", self.name(*job), words::place(allocation))
            }
            Command::Reject { job, reason } => format!("reject {}: {reason}", self.name(*job)),
        };
        self.quiet = 0;
        self.note(line);
    }

    /// An answer goes to the engine: at once, or as the network has it.
    pub(crate) fn answer(&mut self, event: Event) {
        self.send(|event| Due::Answer(event.clone()), &event);
    }

    fn send<T>(&mut self, due: impl Fn(&T) -> Due, message: &T) {
        let arrivals = self
            .network
            .as_mut()
            .map_or_else(|| vec![Time::ZERO], Network::arrivals);
        for delay in arrivals {
            self.later(delay, due(message));
        }
    }

    /// A fact with a name of its own: told now, and perhaps again at any time.
    pub(crate) fn tell_often(&mut self, event: Event) {
        self.tell(event.clone());
        let repeats = self
            .network
            .as_mut()
            .map_or_else(Vec::new, |n| n.arrivals().split_off(1));
        for delay in repeats {
            self.later(delay + Time(1), Due::Answer(event.clone()));
        }
    }

    /// A fact about a node: told now, and perhaps twice.
    pub(crate) fn tell_twice(&mut self, event: Event) {
        if self.network.as_mut().is_some_and(|n| n.one_in(3)) {
            self.tell(event.clone());
        }
        self.tell(event);
    }

    /// After a delay; at once if there is none. A network takes its time even then: what happens meanwhile at the
    /// same moment comes first.
    pub(crate) fn later(&mut self, delay: Time, due: Due) {
        if delay == Time::ZERO && self.network.is_none() {
            self.happen(due);
        } else {
            self.at(self.now + delay, due);
        }
    }

    pub(crate) fn at(&mut self, at: Time, due: Due) {
        self.due.insert((at, self.sent), due);
        self.sent += 1;
    }

    fn tell(&mut self, event: Event) {
        self.ops.push(Op::Tell(self.now, event.clone()));
        self.engine.handle(self.now, event);
        self.check();
    }

    fn poll(&mut self) -> Option<Command> {
        let command = self.engine.poll();
        self.ops.push(Op::Poll(command.clone()));
        self.check();
        command
    }

    fn check(&self) {
        if let Err(broken) = self.engine.check() {
            panic!("at {} s: {broken}", seconds(self.now));
        }
    }

    pub(crate) fn note(&mut self, line: String) {
        self.trace.push(format!("{} {line}", seconds(self.now)));
    }

    pub(crate) fn name(&self, job: JobId) -> String {
        self.scenario.jobs[job.0 as usize].name()
    }
}
