//! The fake cluster: it fulfils the contract of a driver, immediately or late, and records a trace.

use std::collections::BTreeMap;

use dovetail_engine::Engine;
use dovetail_model::{Allocation, AttemptKey, Command, Event, JobKey, Outcome, Time};

use crate::network::Network;
use crate::nodes::FakeNodes;
use crate::print::{self, seconds};
use crate::replay::Call;
use crate::scenario::{Scenario, StoryEvent};

/// Something that will happen at a certain time.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Story(StoryEvent),
    Answer(Event),
    Command(Command),
    Begin(JobKey, AttemptKey, Allocation),
    End(JobKey, AttemptKey),
    Halt(JobKey, AttemptKey),
    Report(JobKey, AttemptKey),
}

/// An engine and the fake cluster it controls. All invariants are checked after every step.
#[derive(Debug, Clone)]
pub struct World {
    /// The engine; a test may replace it.
    pub engine: Engine,
    pub(crate) scenario: Scenario,
    pub(crate) nodes: FakeNodes,
    pub(crate) network: Option<Network>,
    pub(crate) now: Time,
    /// Scheduled actions, by time and sequence number.
    scheduled: BTreeMap<(Time, u64), Action>,
    next_number: u64,
    trace: Vec<String>,
    calls: Vec<Call>,
    /// Number of successive steps without progress.
    idle_steps: u32,
}

impl World {
    /// Returns a world in which all nodes are up and nothing has happened.
    pub fn new(scenario: &Scenario) -> Self {
        let mut world = Self {
            engine: scenario.engine(),
            nodes: FakeNodes::new(scenario),
            network: scenario.behaviour.chaos.map(Network::new),
            scenario: scenario.clone(),
            now: Time::ZERO,
            scheduled: BTreeMap::new(),
            next_number: 0,
            trace: Vec::new(),
            calls: Vec::new(),
            idle_steps: 0,
        };
        for (at, event) in &scenario.events {
            world.schedule(*at, Action::Story(*event));
        }
        world
    }

    /// Runs until nothing happens any more.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// Carries out all actions of the next moment. Returns false if there are none.
    ///
    /// # Panics
    /// Panics if an invariant does not hold.
    pub fn step(&mut self) -> bool {
        let wake = self.engine.wake_at().map(|at| at.max(self.now));
        let first = self.scheduled.first_key_value().map(|((at, _), _)| *at);
        let Some(next) = first.into_iter().chain(wake).min() else {
            return false;
        };
        // If nothing is scheduled, a policy that requests to be woken again and again waits for something that never happens.
        self.idle_steps = if self.scheduled.is_empty() || next == self.now {
            self.idle_steps + 1
        } else {
            0
        };
        if self.scheduled.is_empty() && self.idle_steps > 64 {
            return false;
        }
        assert!(self.idle_steps < 10_000, "no progress at {} s", seconds(self.now));
        assert!(
            self.calls.len() < 200_000,
            "the scenario does not end, stopped at {} s",
            seconds(self.now)
        );
        self.now = next;
        let mut explained = Vec::new();
        while let Some(entry) = self.scheduled.first_entry().filter(|e| e.key().0 <= next) {
            match entry.remove() {
                Action::Story(StoryEvent::Explain(job)) => explained.push(job),
                action => self.act(action),
            }
        }
        if self.engine.wake_at().is_some_and(|at| at <= self.now) {
            self.handle(Event::Wake);
        }
        while let Some(command) = self.poll() {
            self.note_command(&command);
            self.send(|command| Action::Command(command.clone()), &command);
        }
        for job in explained {
            let text = print::explanation(&self.engine.explain(job));
            self.note(format!("{}: {text}", self.name(job)));
        }
        true
    }

    /// Returns the present moment.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Returns the calls of the engine, in order.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Returns how the job ended, if it ended by itself.
    pub fn outcome(&self, job: JobKey) -> Option<Outcome> {
        self.nodes.outcome(job)
    }

    /// Returns the trace so far. If nothing is scheduled any more, it ends with the jobs that never finish.
    pub fn trace(&self) -> String {
        let mut lines = self.trace.clone();
        let left: Vec<String> = self.engine.jobs().map(|j| self.name(j.spec.id)).collect();
        if self.scheduled.is_empty() && !left.is_empty() {
            lines.push(format!("never {}", left.join(" ")));
        }
        lines.join("\n")
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Story(event) => self.carry_out(event),
            Action::Answer(event) => self.handle(event),
            Action::Command(command) => self.obey(command),
            Action::Begin(job, attempt, allocation) => self.begin(job, attempt, &allocation),
            Action::End(job, attempt) => self.end(job, attempt, Outcome::Completed),
            Action::Halt(job, attempt) => self.halt(job, attempt),
            Action::Report(job, attempt) => self.report(job, attempt),
        }
    }

    /// Checks a command against the contract, and adds it to the trace.
    fn note_command(&mut self, command: &Command) {
        let line = match command {
            Command::Launch { job, allocation, .. } => {
                for share in &allocation.shares {
                    let node = self.engine.cluster().node(share.node);
                    assert!(
                        node.is_some_and(|n| n.is_open()) && self.nodes.is_up(share.node),
                        "job {job} is launched on node {}, which accepts no jobs",
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
                    "the gang of job {job} is incomplete"
                );
                format!("launch {} on {}", self.name(*job), print::place(allocation))
            }
            Command::Stop { job, reason, .. } => format!("stop {} {}", self.name(*job), print::stop(*reason)),
            Command::Resize { job, allocation, .. } => {
                format!("resize {} on {}", self.name(*job), print::place(allocation))
            }
            Command::Reject { job, reason } => format!("reject {}: {reason}", self.name(*job)),
        };
        self.idle_steps = 0;
        self.note(line);
    }

    /// Sends an answer to the engine, immediately or through the network.
    pub(crate) fn answer(&mut self, event: Event) {
        self.send(|event| Action::Answer(event.clone()), &event);
    }

    fn send<T>(&mut self, action: impl Fn(&T) -> Action, message: &T) {
        let arrivals = self
            .network
            .as_mut()
            .map_or_else(|| vec![Time::ZERO], Network::arrivals);
        for delay in arrivals {
            self.later(delay, action(message));
        }
    }

    /// Handles an event that can be repeated at any time: now, and perhaps again later.
    pub(crate) fn handle_repeatedly(&mut self, event: Event) {
        self.handle(event.clone());
        let repeats = self
            .network
            .as_mut()
            .map_or_else(Vec::new, |n| n.arrivals().split_off(1));
        for delay in repeats {
            self.later(delay + Time(1), Action::Answer(event.clone()));
        }
    }

    /// Handles an event of a node once, or perhaps twice.
    pub(crate) fn handle_twice(&mut self, event: Event) {
        if self.network.as_mut().is_some_and(|n| n.one_in(3)) {
            self.handle(event.clone());
        }
        self.handle(event);
    }

    /// Carries out an action after a delay; immediately if there is none. With a network, other actions of the same moment
    /// precede it even then.
    pub(crate) fn later(&mut self, delay: Time, action: Action) {
        if delay == Time::ZERO && self.network.is_none() {
            self.act(action);
        } else {
            self.schedule(self.now + delay, action);
        }
    }

    pub(crate) fn schedule(&mut self, at: Time, action: Action) {
        self.scheduled.insert((at, self.next_number), action);
        self.next_number += 1;
    }

    fn handle(&mut self, event: Event) {
        self.calls.push(Call::Handle(self.now, event.clone()));
        self.engine.handle(self.now, event);
        self.check();
    }

    fn poll(&mut self) -> Option<Command> {
        let command = self.engine.poll();
        self.calls.push(Call::Poll(command.clone()));
        self.check();
        command
    }

    fn check(&self) {
        if let Err(error) = self.engine.check() {
            panic!("at {} s: {error}", seconds(self.now));
        }
    }

    pub(crate) fn note(&mut self, line: String) {
        self.trace.push(format!("{} {line}", seconds(self.now)));
    }

    pub(crate) fn name(&self, job: JobKey) -> String {
        self.scenario.jobs[job.0 as usize].name()
    }
}
