//! State machine of the simulated kubelet, without clock and network: takes pod updates and returns the actions that are due.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dovetail_kubeapi::Resources;

/// Timing of pods on simulated nodes.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// Time from the binding until a pod runs.
    pub start_delay: Duration,
    /// Time from the deletion of a running pod until its containers have ended, at most its grace period.
    pub stop_delay: Duration,
    /// Time from a change of its CPU and memory until a running pod has them.
    pub resize_delay: Duration,
    /// Maximum number of concurrent requests.
    pub requests: usize,
    /// Interval of the nodes' heartbeats. Only the node lifecycle controller needs them; `None` sends none.
    pub heartbeat: Option<Duration>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            start_delay: Duration::ZERO,
            stop_delay: Duration::from_millis(100),
            resize_delay: Duration::ZERO,
            requests: 32,
            heartbeat: None,
        }
    }
}

/// UID of a pod: unlike its name, no other pod gets it later.
pub(crate) type Uid = String;

/// Phase of a pod, in order: it never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Pending,
    Running,
    Ended,
}

/// State of a pod as the API server shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) containers: Vec<ContainerView>,
    pub(crate) stage: Stage,
    /// Grace period, if the pod is being deleted.
    pub(crate) deletion_grace: Option<Duration>,
    /// Run time; `None` runs until it is deleted.
    pub(crate) run_time: Option<Duration>,
    pub(crate) exit_code: i32,
    /// When its containers started.
    pub(crate) started_at: Option<String>,
    /// Why its node does not resize it, if it does not.
    pub(crate) resize_refusal: Option<ResizeRefusal>,
}

/// A container, and what it requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerView {
    pub(crate) name: String,
    pub(crate) resources: Resources,
}

/// Why a node does not resize a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResizeRefusal {
    Infeasible,
    Deferred,
}

/// Next action for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodAction {
    /// Report that its containers run.
    Run,
    /// Report that its containers have ended.
    End {
        /// Exit code.
        code: i32,
    },
    /// Report that its containers have other CPU and memory, or why they have not.
    Resize,
    /// Delete the pod object.
    Remove,
}

/// Exit code of a process that was ended by `SIGTERM`.
const TERMINATED: i32 = 128 + 15;
/// Delay before a failed action is tried again.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug)]
struct Pod {
    view: PodView,
    /// When it reached its stage.
    since: Duration,
    /// When its deletion was observed.
    deleted_at: Option<Duration>,
    /// Whether an action is being performed.
    busy: bool,
    /// Its containers when the action was taken.
    acted_on: Vec<ContainerView>,
    /// The containers that were reported last; none before they run.
    reported: Option<Vec<ContainerView>>,
    /// When its CPU and memory were changed last.
    changed: Duration,
    /// Earliest time of the next action, after one failed.
    not_before: Duration,
    due: Option<Duration>,
}

/// All pods that are bound to a node.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    behaviour: Behaviour,
    pods: BTreeMap<Uid, Pod>,
    queue: BTreeSet<(Duration, Uid)>,
    /// Nodes that have failed.
    dead: BTreeSet<String>,
}

impl Pods {
    pub(crate) fn new(behaviour: Behaviour) -> Self {
        Self {
            behaviour,
            ..Self::default()
        }
    }

    /// Updates a pod; the view may be older than the last action.
    pub(crate) fn update(&mut self, now: Duration, uid: &str, view: PodView) {
        match self.pods.get_mut(uid) {
            None => {
                let pod = Pod {
                    since: now,
                    deleted_at: view.deletion_grace.map(|_| now),
                    busy: false,
                    acted_on: Vec::new(),
                    reported: (view.stage == Stage::Running).then(|| view.containers.clone()),
                    changed: now,
                    not_before: now,
                    due: None,
                    view,
                };
                self.pods.insert(uid.to_owned(), pod);
            }
            Some(pod) => {
                pod.deleted_at = pod.deleted_at.or(view.deletion_grace.map(|_| now));
                if view.stage > pod.view.stage {
                    pod.since = now;
                }
                if view.containers != pod.view.containers {
                    pod.changed = now;
                }
                let stage = view.stage.max(pod.view.stage);
                pod.view = PodView { stage, ..view };
            }
        }
        self.plan(uid);
    }

    /// Removes a pod that no longer exists.
    pub(crate) fn remove(&mut self, uid: &str) {
        if let Some(pod) = self.pods.remove(uid)
            && let Some(due) = pod.due
        {
            self.queue.remove(&(due, uid.to_owned()));
        }
    }

    /// Removes all pods but these.
    pub(crate) fn keep_only(&mut self, existing: &BTreeSet<Uid>) {
        let gone: Vec<Uid> = self
            .pods
            .keys()
            .filter(|u| !existing.contains(*u))
            .cloned()
            .collect();
        for uid in gone {
            self.remove(&uid);
        }
    }

    /// Makes a node fail or work again.
    pub(crate) fn set_dead(&mut self, node: &str, dead: bool) {
        if dead {
            self.dead.insert(node.to_owned());
        } else {
            self.dead.remove(node);
        }
        let all: Vec<Uid> = self.pods.keys().cloned().collect();
        for uid in all {
            self.plan(&uid);
        }
    }

    /// Returns when the next action is due.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.queue.first().map(|(due, _)| *due)
    }

    /// Returns an action that is due. The pod gets no other until [`finish`](Self::finish).
    pub(crate) fn take(&mut self, now: Duration) -> Option<(Uid, PodView, PodAction)> {
        if self.next()? > now {
            return None;
        }
        let (_, uid) = self.queue.pop_first()?;
        let pod = self.pods.get_mut(&uid)?;
        pod.due = None;
        pod.busy = true;
        pod.acted_on.clone_from(&pod.view.containers);
        let action = next_action(pod, &self.behaviour)?.1;
        Some((uid, pod.view.clone(), action))
    }

    /// Records that an action was completed or has failed.
    pub(crate) fn finish(&mut self, now: Duration, uid: &str, action: PodAction, is_complete: bool) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        pod.busy = false;
        let stage = match action {
            PodAction::Run => Stage::Running,
            PodAction::End { .. } => Stage::Ended,
            PodAction::Remove | PodAction::Resize => pod.view.stage,
        };
        if is_complete && matches!(action, PodAction::Run | PodAction::Resize) {
            pod.reported = Some(std::mem::take(&mut pod.acted_on));
        }
        match (is_complete, action) {
            (false, _) => pod.not_before = now + PAUSE,
            // The pod is removed here when the API server reports it deleted; a finalizer may delay that.
            (true, PodAction::Remove) => pod.not_before = Duration::MAX,
            (true, _) if stage > pod.view.stage => {
                pod.view.stage = stage;
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
        if pod.busy || pod.not_before == Duration::MAX || self.dead.contains(&pod.view.node) {
            return;
        }
        if let Some((due, _)) = next_action(pod, &self.behaviour) {
            let due = due.max(pod.not_before);
            pod.due = Some(due);
            self.queue.insert((due, uid.to_owned()));
        }
    }
}

/// Returns the next action for a pod and when it is due.
fn next_action(pod: &Pod, behaviour: &Behaviour) -> Option<(Duration, PodAction)> {
    let view = &pod.view;
    if let (Some(at), Some(grace)) = (pod.deleted_at, view.deletion_grace) {
        return Some(match view.stage {
            Stage::Running => (
                at + behaviour.stop_delay.min(grace),
                PodAction::End { code: TERMINATED },
            ),
            Stage::Pending | Stage::Ended => (at.max(pod.since), PodAction::Remove),
        });
    }
    match view.stage {
        Stage::Pending => Some((pod.since + behaviour.start_delay, PodAction::Run)),
        Stage::Running => {
            let code = view.exit_code;
            let end = view
                .run_time
                .map(|run_time| (pod.since + run_time, PodAction::End { code }));
            let is_resized = pod.reported.as_ref().is_some_and(|last| *last != view.containers);
            let resize = is_resized.then(|| (pod.changed + behaviour.resize_delay, PodAction::Resize));
            end.into_iter().chain(resize).min_by_key(|(due, _)| *due)
        }
        Stage::Ended => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn view(stage: Stage) -> PodView {
        PodView {
            namespace: "space".to_owned(),
            name: "a".to_owned(),
            node: "n1".to_owned(),
            containers: vec![container("1")],
            stage,
            deletion_grace: None,
            run_time: None,
            exit_code: 0,
            started_at: None,
            resize_refusal: None,
        }
    }

    fn container(cpu: &str) -> ContainerView {
        let requests = [("cpu".to_owned(), cpu.to_owned())].into();
        ContainerView {
            name: "main".to_owned(),
            resources: Resources {
                requests,
                ..Resources::default()
            },
        }
    }

    fn pods() -> Pods {
        Pods::new(Behaviour {
            start_delay: 2 * S,
            stop_delay: 5 * S,
            ..Behaviour::default()
        })
    }

    /// Finishes the next action at the moment when it is due.
    fn act(pods: &mut Pods, is_complete: bool) -> Option<(Duration, PodAction)> {
        let now = pods.next()?;
        let (uid, _, action) = pods.take(now).unwrap();
        pods.finish(now, &uid, action, is_complete);
        Some((now, action))
    }

    #[test]
    fn a_pod_ends_after_its_run_time_with_its_exit_code() {
        let mut pods = pods();
        let job = PodView {
            run_time: Some(10 * S),
            exit_code: 3,
            ..view(Stage::Pending)
        };
        pods.update(S, "u", job.clone());
        assert_eq!(pods.take(2 * S), None, "not due yet");
        assert_eq!(act(&mut pods, true), Some((3 * S, PodAction::Run)));
        // A late update does not set the pod back.
        pods.update(4 * S, "u", job);
        assert_eq!(act(&mut pods, true), Some((13 * S, PodAction::End { code: 3 })));
        assert_eq!(act(&mut pods, true), None);
    }

    #[test]
    fn a_running_pod_is_resized_after_a_while() {
        let mut pods = Pods::new(Behaviour {
            resize_delay: 3 * S,
            ..Behaviour::default()
        });
        pods.update(S, "u", view(Stage::Pending));
        let with = |cpu, stage| PodView {
            containers: vec![container(cpu)],
            ..view(stage)
        };
        pods.update(2 * S, "u", with("2", Stage::Pending));
        assert_eq!(act(&mut pods, true), Some((S, PodAction::Run)));
        assert_eq!(act(&mut pods, true), None, "it was started with the new amounts");
        pods.update(4 * S, "u", with("4", Stage::Running));
        assert_eq!(act(&mut pods, true), Some((7 * S, PodAction::Resize)));
        assert_eq!(act(&mut pods, true), None);
    }

    #[test]
    fn a_pod_without_a_run_time_runs_until_it_gets_one() {
        let mut pods = pods();
        pods.update(S, "u", view(Stage::Running));
        assert_eq!(act(&mut pods, true), None);
        let ending = PodView {
            run_time: Some(Duration::ZERO),
            ..view(Stage::Running)
        };
        pods.update(9 * S, "u", ending);
        assert_eq!(act(&mut pods, true), Some((S, PodAction::End { code: 0 })));
    }

    #[test]
    fn a_deleted_pod_ends_before_it_is_removed() {
        let mut pods = pods();
        pods.update(S, "u", view(Stage::Running));
        let deleted = |grace| PodView {
            deletion_grace: Some(grace),
            ..view(Stage::Running)
        };
        pods.update(2 * S, "u", deleted(30 * S));
        pods.update(4 * S, "u", deleted(30 * S));
        assert_eq!(act(&mut pods, true), Some((7 * S, PodAction::End { code: 143 })));
        assert_eq!(act(&mut pods, true), Some((7 * S, PodAction::Remove)));
        assert_eq!(act(&mut pods, true), None, "removed once");
        pods.remove("u");
        pods.update(20 * S, "v", deleted(S));
        assert_eq!(
            act(&mut pods, true),
            Some((21 * S, PodAction::End { code: 143 })),
            "the grace period is shorter than the stop delay"
        );
    }

    #[test]
    fn a_failed_action_is_tried_again_after_a_pause() {
        let mut pods = pods();
        pods.update(S, "u", view(Stage::Pending));
        assert_eq!(act(&mut pods, false), Some((3 * S, PodAction::Run)));
        assert_eq!(act(&mut pods, true), Some((3 * S + PAUSE, PodAction::Run)));
    }

    #[test]
    fn a_dead_node_performs_no_actions() {
        let mut pods = pods();
        pods.set_dead("n1", true);
        pods.update(S, "u", view(Stage::Pending));
        assert_eq!(act(&mut pods, true), None);
        pods.set_dead("n1", false);
        assert_eq!(act(&mut pods, true), Some((3 * S, PodAction::Run)));
    }

    #[test]
    fn a_removed_pod_leaves_no_state() {
        let mut pods = pods();
        pods.update(S, "u", view(Stage::Pending));
        let (uid, _, action) = pods.take(9 * S).unwrap();
        pods.keep_only(&BTreeSet::new());
        pods.finish(9 * S, &uid, action, true);
        assert_eq!(pods.next(), None);
        assert!(pods.pods.is_empty());
    }
}
