//! What waits to be told: in order for each person and way, and never more than a certain number.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use super::message::Message;

/// How somebody is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// By a request to this address, signed with this secret.
    Webhook { url: String, secret: String },
    /// By mail to this address.
    Mail(String),
}

/// Somebody, and how it is told.
pub(super) type Whom = (String, Way);

/// What waits for one person and way at most, and for all.
const MOST_OF_ONE: usize = 100;
const MOST_OF_ALL: usize = 10_000;

#[derive(Debug, Default)]
struct Waiting {
    /// A lane that is there is being worked on.
    lanes: BTreeMap<Whom, VecDeque<Message>>,
    count: usize,
}

/// What waits to be told.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<Waiting>);

/// What became of something that was to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It waits behind others.
    Waits,
    /// It is the first: somebody has to begin.
    Begin,
    /// Too much waits already.
    No,
}

impl Lanes {
    pub(super) fn put(&self, whom: &Whom, message: Message) -> Taken {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.count >= MOST_OF_ALL {
            return Taken::No;
        }
        let is_new = !waiting.lanes.contains_key(whom);
        let lane = waiting.lanes.entry(whom.clone()).or_default();
        if lane.len() >= MOST_OF_ONE {
            return Taken::No;
        }
        lane.push_back(message);
        waiting.count += 1;
        if is_new { Taken::Begin } else { Taken::Waits }
    }

    /// The next of a lane, at most so many; when there is none the lane is gone.
    pub(super) fn take(&self, whom: &Whom, most: usize) -> Vec<Message> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(lane) = waiting.lanes.get_mut(whom) else {
            return Vec::new();
        };
        let n = lane.len().min(most);
        let taken: Vec<Message> = lane.drain(..n).collect();
        waiting.count -= n;
        if taken.is_empty() {
            waiting.lanes.remove(whom);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use dovetail_model::Time;

    use super::*;

    #[test]
    fn a_lane_is_in_order_and_has_an_end() {
        let lanes = Lanes::default();
        let whom = |name: &str| (name.to_owned(), Way::Mail("a@b".to_owned()));
        let message = |i: i64| Message::test("x", Time(i));
        assert_eq!(lanes.put(&whom("ann"), message(0)), Taken::Begin);
        for i in 1..MOST_OF_ONE as i64 {
            assert_eq!(lanes.put(&whom("ann"), message(i)), Taken::Waits);
        }
        assert_eq!(lanes.put(&whom("ann"), message(100)), Taken::No);
        assert_eq!(
            lanes.put(&whom("bob"), message(0)),
            Taken::Begin,
            "others have room"
        );
        let at: Vec<i64> = lanes.take(&whom("ann"), 3).iter().map(|m| m.at.0).collect();
        assert_eq!(at, [0, 1, 2]);
        assert_eq!(lanes.take(&whom("ann"), 1_000).len(), 97);
        assert_eq!(
            lanes.put(&whom("ann"), message(5)),
            Taken::Waits,
            "it is still being worked on"
        );
        assert_eq!(lanes.take(&whom("ann"), 1_000).len(), 1);
        assert!(lanes.take(&whom("ann"), 1_000).is_empty());
        assert_eq!(lanes.put(&whom("ann"), message(6)), Taken::Begin);
        for i in 0..(MOST_OF_ALL / MOST_OF_ONE) {
            for j in 0..MOST_OF_ONE as i64 {
                let _ = lanes.put(&whom(&format!("u{i}")), message(j));
            }
        }
        assert_eq!(lanes.put(&whom("late"), message(0)), Taken::No);
    }
}
