//! Observers of a run: everything that passes between the simulator and the engine.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use dovetail_engine::{Engine, Explanation};
use dovetail_model::{Command, Event, JobKey, Time};

/// Follows a run, and can end it.
pub trait Observer {
    /// An event is about to be passed to the engine.
    fn event(&mut self, now: Time, event: &Event, engine: &Engine);

    /// The engine gave a command.
    fn command(&mut self, now: Time, command: &Command);

    /// All events of a moment were handled and all commands carried out. `Break` ends the run.
    fn moment(&mut self, now: Time, engine: &Engine) -> ControlFlow<()>;
}

/// Everything that happened, for a replay: the events passed to the engine and the commands it gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Journal {
    /// Events with their times.
    pub events: Vec<(Time, Event)>,
    /// Commands with their times.
    pub commands: Vec<(Time, Command)>,
    /// Jobs to explain at every moment.
    pub followed: BTreeSet<JobKey>,
    /// Explanations of those jobs, whenever they change.
    pub explanations: Vec<(Time, JobKey, Explanation)>,
}

impl Observer for Journal {
    fn event(&mut self, now: Time, event: &Event, _: &Engine) {
        self.events.push((now, event.clone()));
    }

    fn command(&mut self, now: Time, command: &Command) {
        self.commands.push((now, command.clone()));
    }

    /// Records the explanations of the jobs that are followed, where they changed.
    fn moment(&mut self, now: Time, engine: &Engine) -> ControlFlow<()> {
        for job in &self.followed {
            let explanation = engine.explain(*job);
            let last = self.explanations.iter().rev().find(|(_, other, _)| other == job);
            if last.map_or(&Explanation::Unknown, |(_, _, last)| last) != &explanation {
                self.explanations.push((now, *job, explanation));
            }
        }
        ControlFlow::Continue(())
    }
}

/// The engine, with an observer of its events and commands if there is one.
pub(super) struct ObservedEngine<'a> {
    pub(super) engine: Engine,
    observer: Option<&'a mut dyn Observer>,
}

impl<'a> ObservedEngine<'a> {
    pub(super) fn new(engine: Engine, observer: Option<&'a mut dyn Observer>) -> Self {
        Self { engine, observer }
    }

    /// Passes an event to the engine.
    pub(super) fn report(&mut self, now: Time, event: Event) {
        if let Some(observer) = &mut self.observer {
            observer.event(now, &event, &self.engine);
        }
        self.engine.handle(now, event);
    }

    /// Returns the next command of the engine.
    pub(super) fn poll(&mut self, now: Time) -> Option<Command> {
        let command = self.engine.poll()?;
        if let Some(observer) = &mut self.observer {
            observer.command(now, &command);
        }
        Some(command)
    }

    /// Tells the observer that a moment has ended.
    pub(super) fn end_moment(&mut self, now: Time) -> ControlFlow<()> {
        match &mut self.observer {
            Some(observer) => observer.moment(now, &self.engine),
            None => ControlFlow::Continue(()),
        }
    }
}
