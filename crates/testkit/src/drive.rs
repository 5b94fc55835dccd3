//! How the fake cluster carries out events of a story and commands of the engine.

use dovetail_model::{Allocation, AttemptKey, Command, Event, JobKey, NodeId, Outcome, Time};

use crate::network::Network;
use crate::nodes::StopTarget;
use crate::scenario::StoryEvent;
use crate::world::{Action, World};

impl World {
    /// Carries out an event of the story.
    pub(crate) fn carry_out(&mut self, event: StoryEvent) {
        match event {
            StoryEvent::Submit(job) => {
                let spec = self.scenario.jobs[job.0 as usize].spec(job);
                self.handle_repeatedly(Event::Submitted(spec));
            }
            StoryEvent::Cancel(job) => self.handle_repeatedly(Event::Cancelled { job }),
            StoryEvent::Fail(job) => {
                if let Some((attempt, _)) = self.nodes.running(job) {
                    self.end(job, attempt, Outcome::Failed);
                }
            }
            StoryEvent::NodeDown(node) => {
                self.nodes.node_down(node, self.now);
                self.handle_twice(Event::NodeDown { node });
            }
            StoryEvent::NodeUp(node) => self.node_up(node),
            StoryEvent::Drain(node) => self.handle_twice(Event::NodeDraining { node }),
            StoryEvent::Resume(node) => self.handle_twice(Event::NodeResumed { node }),
            StoryEvent::Explain(_) => unreachable!("jobs are explained at the end of the moment"),
        }
    }

    fn node_up(&mut self, node: NodeId) {
        self.nodes.node_up(node);
        let spec = self.scenario.cluster.nodes[node].clone();
        self.handle_twice(Event::NodeUp { node, spec });
    }

    /// Carries out a command that has reached the node.
    pub(crate) fn obey(&mut self, command: Command) {
        match command {
            Command::Launch {
                job,
                attempt,
                allocation,
                ..
            } => {
                if self.nodes.launch(job, attempt, &allocation) {
                    let delay = self.scenario.behaviour.start_delay;
                    self.later(delay, Action::Begin(job, attempt, allocation));
                }
            }
            Command::Stop { job, attempt, .. } => match self.nodes.stop_target(job, attempt) {
                StopTarget::Running => {
                    self.later(self.scenario.behaviour.stop_delay, Action::Halt(job, attempt))
                }
                StopTarget::Ended(outcome) => self.answer(Event::Exited {
                    job,
                    attempt,
                    outcome,
                }),
                StopTarget::Missing => self.answer(Event::Stopped {
                    job,
                    attempt,
                    done: self.nodes.done(job, self.now),
                }),
            },
            Command::Resize {
                job,
                attempt,
                allocation,
            } => self.nodes.resize(job, attempt, &allocation),
            Command::Reject { .. } => {}
        }
    }

    /// Lets a launched job make progress.
    pub(crate) fn begin(&mut self, job: JobKey, attempt: AttemptKey, allocation: &Allocation) {
        let truth = &self.scenario.jobs[job.0 as usize].job;
        let rate = truth.scaling.rate(allocation.gpus(), truth.gpus);
        let Some(end) = self.nodes.begin(job, attempt, rate, self.now) else {
            return;
        };
        self.schedule(end, Action::End(job, attempt));
        self.answer(Event::Started { job, attempt, rate });
        if let Some(delay) = self.network.as_mut().map(Network::delay) {
            self.later(delay, Action::Report(job, attempt));
        }
    }

    /// Ends a job, unless it has stopped before.
    pub(crate) fn end(&mut self, job: JobKey, attempt: AttemptKey, outcome: Outcome) {
        if self.nodes.end(job, attempt, outcome, self.now) {
            let how = match outcome {
                Outcome::Completed => "done",
                Outcome::Failed => "failed",
            };
            self.note(format!("{how} {}", self.name(job)));
            self.answer(Event::Exited {
                job,
                attempt,
                outcome,
            });
        }
    }

    /// Stops a job, unless it has ended before.
    pub(crate) fn halt(&mut self, job: JobKey, attempt: AttemptKey) {
        if self.nodes.halt(job, attempt, self.now) {
            if self.scenario.behaviour.stop_delay > Time::ZERO {
                self.note(format!("stopped {}", self.name(job)));
            }
            let done = self.nodes.done(job, self.now);
            self.answer(Event::Stopped { job, attempt, done });
        }
    }

    /// Reports the progress of a running job; of every second one also that it behaves like the next job of the story.
    pub(crate) fn report(&mut self, job: JobKey, attempt: AttemptKey) {
        if self.scenario.behaviour.profiles_change && (job.0 + attempt.0) % 2 == 1 {
            let next = JobKey((job.0 + 1) % self.scenario.jobs.len() as u32);
            let profile = Box::new(self.scenario.jobs[next.0 as usize].spec(next).profile());
            self.answer(Event::Respecified { job, profile });
        }
        if let Some((_, rate)) = self.nodes.running(job).filter(|(g, _)| *g == attempt) {
            let done = self.nodes.done(job, self.now);
            self.answer(Event::Progressed {
                job,
                attempt,
                done,
                rate,
            });
        }
    }
}
