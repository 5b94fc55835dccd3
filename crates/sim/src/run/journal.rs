//! The journal of a run: everything that passed between the simulator and the engine.

use std::collections::BTreeSet;

use dovetail_engine::{Engine, Explanation};
use dovetail_model::{Command, Event, JobKey, Time};

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

/// The engine, with a journal of its events and commands if one is kept.
pub(super) struct JournaledEngine<'a> {
    pub(super) engine: Engine,
    journal: Option<&'a mut Journal>,
}

impl<'a> JournaledEngine<'a> {
    pub(super) fn new(engine: Engine, journal: Option<&'a mut Journal>) -> Self {
        Self { engine, journal }
    }

    /// Passes an event to the engine.
    pub(super) fn report(&mut self, now: Time, event: Event) {
        if let Some(journal) = &mut self.journal {
            journal.events.push((now, event.clone()));
        }
        self.engine.handle(now, event);
    }

    /// Returns the next command of the engine.
    pub(super) fn poll(&mut self, now: Time) -> Option<Command> {
        let command = self.engine.poll()?;
        if let Some(journal) = &mut self.journal {
            journal.commands.push((now, command.clone()));
        }
        Some(command)
    }

    /// Records the explanations of the jobs that the journal follows, where they changed.
    pub(super) fn record_explanations(&mut self, now: Time) {
        let Some(journal) = self.journal.as_mut().filter(|j| !j.followed.is_empty()) else {
            return;
        };
        for job in &journal.followed {
            let explanation = self.engine.explain(*job);
            let last = journal
                .explanations
                .iter()
                .rev()
                .find(|(_, other, _)| other == job);
            if last.map_or(&Explanation::Unknown, |(_, _, last)| last) != &explanation {
                journal.explanations.push((now, *job, explanation));
            }
        }
    }
}
