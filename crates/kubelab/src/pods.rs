//! What a kubelet would do next with each pod, without a clock and without a connection: pods are seen, acts fall due.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How pods fare on nodes that do not exist.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// From the binding until a pod runs: images, mounts, containers.
    pub starts_after: Duration,
    /// From the deletion of a running pod until its containers have ended; no more than its grace period.
    pub ends_after: Duration,
    /// How many requests are under way at the same time.
    pub requests: usize,
    /// How often nodes say that they are alive. Only the node lifecycle controller listens: without it, never.
    pub heartbeat: Option<Duration>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            starts_after: Duration::ZERO,
            ends_after: Duration::from_millis(100),
            requests: 32,
            heartbeat: None,
        }
    }
}

/// Which pod: its name can be taken by another later, this number cannot.
pub(crate) type Uid = String;

/// How far a pod has come. It only ever goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Pending,
    Running,
    Ended,
}

/// What is known of a pod from the outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) containers: Vec<String>,
    pub(crate) stage: Stage,
    /// How long it may take to end, if it was told to.
    pub(crate) deleted: Option<Duration>,
    /// How long it runs; without it, for ever.
    pub(crate) runs: Option<Duration>,
    pub(crate) exit_code: i32,
}

/// What there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Its containers run now.
    Run,
    /// Its containers have ended.
    End {
        /// With this code.
        code: i32,
    },
    /// Nothing is left of it on the node.
    Remove,
}

/// What a shell says of a process that was told to end.
const TERMINATED: i32 = 128 + 15;
/// How long to wait before something that failed is tried again.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug)]
struct Pod {
    seen: Seen,
    /// When it came to this stage, and when its deletion was seen.
    since: Duration,
    deleted_at: Option<Duration>,
    /// An act is under way; or it failed, and is not tried again before.
    busy: bool,
    not_before: Duration,
    due: Option<Duration>,
}

/// All pods that are bound to a node.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    behaviour: Behaviour,
    pods: BTreeMap<Uid, Pod>,
    queue: BTreeSet<(Duration, Uid)>,
    /// Nodes on which nothing happens any more.
    dead: BTreeSet<String>,
}

impl Pods {
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        Self {
            behaviour,
            ..Self::default()
        }
    }

    /// A pod as it is, or as it was a moment ago.
    pub(crate) fn see(&mut self, now: Duration, uid: &str, seen: Seen) {
        match self.pods.get_mut(uid) {
            None => {
                let pod = Pod {
                    since: now,
                    deleted_at: seen.deleted.map(|_| now),
                    busy: false,
                    not_before: now,
                    due: None,
                    seen,
                };
                self.pods.insert(uid.to_owned(), pod);
            }
            Some(pod) => {
                pod.deleted_at = pod.deleted_at.or(seen.deleted.map(|_| now));
                if seen.stage > pod.seen.stage {
                    pod.since = now;
                }
                let stage = seen.stage.max(pod.seen.stage);
                pod.seen = Seen { stage, ..seen };
            }
        }
        self.plan(uid);
    }

    /// A pod is there no more.
    pub(crate) fn gone(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid)
            && let Some(due) = pod.due
        {
            self.queue.remove(&(due, uid.to_owned()));
        }
    }

    /// Only these are there.
    pub(crate) fn keep_only(&mut self, there: &BTreeSet<Uid>) {
        let gone: Vec<Uid> = self
            .pods
            .keys()
            .filter(|u| !there.contains(*u))
            .cloned()
            .collect();
        for uid in gone {
            self.gone(&uid);
        }
    }

    /// From now on nothing happens on this node, or everything again.
    pub(crate) fn set_dead(&mut self, node: &str, dead: bool) {
        if dead {
            self.dead.insert(node.to_owned());
        } else {
            self.dead.remove(node);
        }
        let there: Vec<Uid> = self.pods.keys().cloned().collect();
        for uid in there {
            self.plan(&uid);
        }
    }

    /// When the next act falls due.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.queue.first().map(|(due, _)| *due)
    }

    /// An act that is due; the pod is busy with it until it is done.
    pub(crate) fn take(&mut self, now: Duration) -> Option<(Uid, Seen, Act)> {
        if self.next()? > now {
            return None;
        }
        let (_, uid) = self.queue.pop_first()?;
        let pod = self.pods.get_mut(&uid)?;
        pod.due = None;
        pod.busy = true;
        let act = next_act(pod, &self.behaviour)?.1;
        Some((uid, pod.seen.clone(), act))
    }

    /// An act has been done, or could not be.
    pub(crate) fn done(&mut self, now: Duration, uid: &str, act: Act, well: bool) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        pod.busy = false;
        let stage = match act {
            Act::Run => Stage::Running,
            Act::End { .. } => Stage::Ended,
            Act::Remove => pod.seen.stage,
        };
        match (well, act) {
            (false, _) => pod.not_before = now + PAUSE,
            // It goes when it is seen to be gone; a finalizer may hold it.
            (true, Act::Remove) => pod.not_before = Duration::MAX,
            (true, _) if stage > pod.seen.stage => {
                pod.seen.stage = stage;
                pod.since = now;
            }
            (true, _) => {}
        }
        self.plan(uid);
    }

    fn plan(&mut self, uid: &str) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        if let Some(due) = pod.due.take() {
            self.queue.remove(&(due, uid.to_owned()));
        }
        if pod.busy || pod.not_before == Duration::MAX || self.dead.contains(&pod.seen.node) {
            return;
        }
        if let Some((due, _)) = next_act(pod, &self.behaviour) {
            let due = due.max(pod.not_before);
            pod.due = Some(due);
            self.queue.insert((due, uid.to_owned()));
        }
    }
}

/// What comes next for a pod, and when.
fn next_act(pod: &Pod, behaviour: &Behaviour) -> Option<(Duration, Act)> {
    let seen = &pod.seen;
    if let (Some(at), Some(grace)) = (pod.deleted_at, seen.deleted) {
        return Some(match seen.stage {
            Stage::Running => (
                at + behaviour.ends_after.min(grace),
                Act::End { code: TERMINATED },
            ),
            Stage::Pending | Stage::Ended => (at.max(pod.since), Act::Remove),
        });
    }
    match seen.stage {
        Stage::Pending => Some((pod.since + behaviour.starts_after, Act::Run)),
        Stage::Running => {
            let code = seen.exit_code;
            seen.runs.map(|runs| (pod.since + runs, Act::End { code }))
        }
        Stage::Ended => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn seen(stage: Stage) -> Seen {
        Seen {
            namespace: "space".to_owned(),
            name: "a".to_owned(),
            node: "n1".to_owned(),
            containers: vec!["main".to_owned()],
            stage,
            deleted: None,
            runs: None,
            exit_code: 0,
        }
    }

    fn pods() -> Pods {
        Pods::new(Behaviour {
            starts_after: 2 * S,
            ends_after: 5 * S,
            ..Behaviour::default()
        })
    }

    /// The next act, done at the moment it is due.
    fn act(pods: &mut Pods, well: bool) -> Option<(Duration, Act)> {
        let now = pods.next()?;
        let (uid, _, act) = pods.take(now).unwrap();
        pods.done(now, &uid, act, well);
        Some((now, act))
    }

    #[test]
    fn a_pod_runs_for_as_long_as_it_says_and_ends_with_its_code() {
        let mut pods = pods();
        let job = Seen {
            runs: Some(10 * S),
            exit_code: 3,
            ..seen(Stage::Pending)
        };
        pods.see(S, "u", job.clone());
        assert_eq!(pods.take(2 * S), None, "not before it is due");
        assert_eq!(act(&mut pods, true), Some((3 * S, Act::Run)));
        // What was seen comes late: the pod does not go back.
        pods.see(4 * S, "u", job);
        assert_eq!(act(&mut pods, true), Some((13 * S, Act::End { code: 3 })));
        assert_eq!(act(&mut pods, true), None);
    }

    #[test]
    fn a_pod_without_a_time_runs_until_it_is_given_one() {
        let mut pods = pods();
        pods.see(S, "u", seen(Stage::Running));
        assert_eq!(act(&mut pods, true), None);
        let told = Seen {
            runs: Some(Duration::ZERO),
            ..seen(Stage::Running)
        };
        pods.see(9 * S, "u", told);
        assert_eq!(act(&mut pods, true), Some((S, Act::End { code: 0 })));
    }

    #[test]
    fn a_pod_that_is_deleted_ends_before_it_goes() {
        let mut pods = pods();
        pods.see(S, "u", seen(Stage::Running));
        let deleted = |grace| Seen {
            deleted: Some(grace),
            ..seen(Stage::Running)
        };
        pods.see(2 * S, "u", deleted(30 * S));
        pods.see(4 * S, "u", deleted(30 * S));
        assert_eq!(act(&mut pods, true), Some((7 * S, Act::End { code: 143 })));
        assert_eq!(act(&mut pods, true), Some((7 * S, Act::Remove)));
        assert_eq!(act(&mut pods, true), None, "once is enough");
        pods.gone("u");
        pods.see(20 * S, "v", deleted(S));
        assert_eq!(
            act(&mut pods, true),
            Some((21 * S, Act::End { code: 143 })),
            "its grace period is shorter"
        );
    }

    #[test]
    fn what_fails_is_tried_again_after_a_pause() {
        let mut pods = pods();
        pods.see(S, "u", seen(Stage::Pending));
        assert_eq!(act(&mut pods, false), Some((3 * S, Act::Run)));
        assert_eq!(act(&mut pods, true), Some((3 * S + PAUSE, Act::Run)));
    }

    #[test]
    fn nothing_happens_on_a_dead_node() {
        let mut pods = pods();
        pods.set_dead("n1", true);
        pods.see(S, "u", seen(Stage::Pending));
        assert_eq!(act(&mut pods, true), None);
        pods.set_dead("n1", false);
        assert_eq!(act(&mut pods, true), Some((3 * S, Act::Run)));
    }

    #[test]
    fn a_pod_that_is_gone_leaves_nothing_behind() {
        let mut pods = pods();
        pods.see(S, "u", seen(Stage::Pending));
        let (uid, _, act) = pods.take(9 * S).unwrap();
        pods.keep_only(&BTreeSet::new());
        pods.done(9 * S, &uid, act, true);
        assert_eq!(pods.next(), None);
        assert!(pods.pods.is_empty());
    }
}
