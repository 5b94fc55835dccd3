//! The discipline of Blox with its quirk: running jobs are preempted from the end of the queue one by one until the next
//! job fits. If it does not fit even then, the walk ends, and the preempted jobs stay off their GPUs for the round.

use dovetail_engine::{Discipline, Part, Round};

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "blox",
    what: "as in Blox: preempt from the end of the queue until the next job fits, and stop if it never does",
    source: "Blox (EuroSys'24), default placement branch",
    key: "victims of a failed attempt stay preempted for the round; no job is passed over",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(Blox)),
};

/// Blox's discipline.
#[derive(Debug, Clone)]
struct Blox;

impl Part for Blox {
    fn name(&self) -> String {
        "blox".to_owned()
    }
}

impl Discipline for Blox {
    fn walk(&mut self, round: &mut Round<'_>) {
        while let Some(candidate) = round.next_queued() {
            while round.start_anywhere(&candidate).is_err() {
                match round.last_holder_behind(&candidate, |_| true) {
                    Some(victim) => round.evict(victim),
                    None => return,
                }
            }
        }
    }

    fn needs_holders(&self) -> bool {
        true
    }

    fn passes_over(&self) -> bool {
        false
    }

    fn preempts(&self) -> bool {
        true
    }
}
