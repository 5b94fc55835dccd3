//! The walk of Blox, quirk included: running jobs are thrown out from the end of the line one by one until the next
//! job fits; if it does not fit even then, the walk ends and those thrown out stay out for the round.

use dovetail_engine::{Discipline, Knowledge, Part, Round};

use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "blox",
    what: "as in Blox: throw out from the end of the line until the next job fits, and stop where it never does",
    source: "Blox (EuroSys'24), default placement branch",
    key: "victims of a failed attempt stay out for the round; nothing is passed over",
    knowledge: Knowledge::None,
    knobs: &[],
    build: |_| Ok(Box::new(Blox)),
};

/// Blox's walk.
#[derive(Debug, Clone)]
pub struct Blox;

impl Part for Blox {
    fn name(&self) -> String {
        "blox".to_owned()
    }
}

impl Discipline for Blox {
    fn walk(&mut self, round: &mut Round<'_>) {
        while let Some(candidate) = round.next_in_line() {
            while round.start_anywhere(&candidate).is_err() {
                match round.last_behind(&candidate, |_| true) {
                    Some(victim) => round.evict(victim),
                    None => return,
                }
            }
        }
    }

    fn looks_at_holders(&self) -> bool {
        true
    }

    fn passes_over(&self) -> bool {
        false
    }

    fn preempts(&self) -> bool {
        true
    }
}
