//! What the fake cluster does with happenings and orders.

use dovetail_model::{Allocation, Command, Event, Generation, JobId, NodeId, Outcome, Time};

use crate::network::Network;
use crate::reality::Found;
use crate::scenario::Happening;
use crate::world::{Due, World};

impl World {
    pub(crate) fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::Submit(job) => {
                let spec = self.scenario.jobs[job.0 as usize].spec(job);
                self.tell_often(Event::Submitted(spec));
            }
            Happening::Cancel(job) => self.tell_often(Event::Cancelled { job }),
            Happening::Fail(job) => {
                if let Some((generation, _)) = self.reality.running(job) {
                    self.end(job, generation, Outcome::Failed);
                }
            }
            Happening::NodeDown(node) => {
                self.reality.node_down(node, self.now);
                self.tell_twice(Event::NodeDown { node });
            }
            Happening::NodeUp(node) => self.node_up(node),
            Happening::Drain(node) => self.tell_twice(Event::NodeDraining { node }),
            Happening::Resume(node) => self.tell_twice(Event::NodeResumed { node }),
            Happening::Explain(_) => unreachable!("questions are asked at the end of the moment"),
        }
    }

    fn node_up(&mut self, node: NodeId) {
        self.reality.node_up(node);
        let spec = self.scenario.cluster.nodes[node].clone();
        self.tell_twice(Event::NodeUp { node, spec });
    }

    /// An order reaches the node.
    pub(crate) fn order(&mut self, command: Command) {
        match command {
            Command::Launch {
                job,
                generation,
                allocation,
            } => {
                if self.reality.launch(job, generation, &allocation) {
                    let delay = self.scenario.manner.start_delay;
                    self.later(delay, Due::Begin(job, generation, allocation));
                }
            }
            Command::Stop { job, generation, .. } => match self.reality.find(job, generation) {
                Found::Running => self.later(self.scenario.manner.stop_delay, Due::Halt(job, generation)),
                Found::Ended(outcome) => self.answer(Event::Exited {
                    job,
                    generation,
                    outcome,
                }),
                Found::Nothing => self.answer(Event::Stopped {
                    job,
                    generation,
                    done: self.reality.done(job, self.now),
                }),
            },
            Command::Resize {
                job,
                generation,
                allocation,
            } => self.reality.resize(job, generation, &allocation),
            Command::Reject { .. } => {}
        }
    }

    pub(crate) fn begin(&mut self, job: JobId, generation: Generation, allocation: &Allocation) {
        let truth = &self.scenario.jobs[job.0 as usize].job;
        let rate = truth.scaling.rate(allocation.gpus(), truth.gpus);
        let Some(end) = self.reality.begin(job, generation, rate, self.now) else {
            return;
        };
        self.at(end, Due::End(job, generation));
        self.answer(Event::Started {
            job,
            generation,
            rate,
        });
        if let Some(delay) = self.network.as_mut().map(Network::delay) {
            self.later(delay, Due::Report(job, generation));
        }
    }

    pub(crate) fn end(&mut self, job: JobId, generation: Generation, outcome: Outcome) {
        if self.reality.end(job, generation, outcome, self.now) {
            let how = match outcome {
                Outcome::Completed => "done",
                Outcome::Failed => "failed",
            };
            self.note(format!("{how} {}", self.name(job)));
            self.answer(Event::Exited {
                job,
                generation,
                outcome,
            });
        }
    }

    pub(crate) fn halt(&mut self, job: JobId, generation: Generation) {
        if self.reality.halt(job, generation, self.now) {
            if self.scenario.manner.stop_delay > Time::ZERO {
                self.note(format!("stopped {}", self.name(job)));
            }
            let done = self.reality.done(job, self.now);
            self.answer(Event::Stopped {
                job,
                generation,
                done,
            });
        }
    }

    pub(crate) fn report(&mut self, job: JobId, generation: Generation) {
        if let Some((_, rate)) = self.reality.running(job).filter(|(g, _)| *g == generation) {
            let done = self.reality.done(job, self.now);
            self.answer(Event::Progressed {
                job,
                generation,
                done,
                rate,
            });
        }
    }
}
