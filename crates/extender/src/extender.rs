//! The extender and the three requests of kube-scheduler: filter, preempt and bind.

use std::collections::BTreeMap;
use std::sync::Arc;

use dovetail_cells::{Cells, Layout, MachineId, WaitReason};
use dovetail_hived::{Answer, BindInfo, GroupScheduler, Phase, PodSpec};

use crate::error::ExtenderError;
use crate::pods::{BindCommand, DeletedPods, PendingRequest, PodName, PodRecord, PodState, Timestamp};
use crate::wire::{BindCall, FilterCall, FilterResult, MetaPod, MetaVictims, PreemptCall, PreemptResult};

/// Key of the reason in `FailedNodes` when it is not about a node.
const NO_NODE: &str = "hivedscheduler";

/// Settings of the extender. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Requests for a pod that has its place after which the extender binds it without kube-scheduler.
    pub force_bind_after: u32,
    /// Time after which the extender deletes victims that kube-scheduler does not delete; `None` for never.
    pub evict_after: Option<i64>,
    /// Time after which the extender binds pods that can start but that kube-scheduler does not ask for; `None` for never.
    pub start_after: Option<i64>,
    /// Whether downgraded groups get their place back when there is room.
    pub repromote: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            force_bind_after: 3,
            evict_after: Some(2_000_000),
            start_after: Some(1_000_000),
            repromote: true,
        }
    }
}

/// Pods, nodes and cells. Every change is a call, and commands for Kubernetes are returned as values.
#[derive(Debug, Clone)]
pub struct Extender {
    pub(crate) groups: GroupScheduler,
    pub(crate) rules: Rules,
    pub(crate) pods: BTreeMap<String, PodRecord>,
    pub(crate) deleted: DeletedPods,
    /// Nodes that were reported, and whether they are healthy.
    pub(crate) nodes: BTreeMap<String, bool>,
    /// When groups were downgraded, by key.
    pub(crate) downgraded: BTreeMap<u64, Timestamp>,
    /// First and last change since the last retry that may let waiting pods start.
    pub(crate) freed: Option<(Timestamp, Timestamp)>,
}

/// The answer to `filter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterAnswer {
    /// The pod gets this node.
    Bind {
        /// The node.
        node: String,
        /// Set if the extender must bind the pod at once, without kube-scheduler.
        force: Option<Arc<BindCommand>>,
    },
    /// Other pods must be deleted first.
    Preempt {
        /// A message with the victims of each node.
        nodes: BTreeMap<String, String>,
    },
    /// The pod must wait.
    Wait {
        /// The reason.
        reason: String,
    },
}

impl FilterAnswer {
    /// Returns the answer in the form that is sent.
    pub fn result(&self) -> FilterResult {
        match self {
            Self::Bind { node, .. } => FilterResult {
                node_names: Some(vec![node.clone()]),
                ..FilterResult::default()
            },
            Self::Preempt { nodes } => FilterResult {
                failed_nodes: nodes.clone(),
                ..FilterResult::default()
            },
            Self::Wait { reason } => FilterResult {
                failed_nodes: BTreeMap::from([(
                    NO_NODE.to_owned(),
                    format!("Pod is waiting for preemptible or free resource to appear: {reason}"),
                )]),
                ..FilterResult::default()
            },
        }
    }
}

impl Extender {
    /// Returns an extender without pods. All machines are bad until their nodes are reported.
    pub fn new(layout: Layout, rules: Rules) -> Self {
        let mut cells = Cells::new(layout);
        cells.set_repromotion(rules.repromote);
        for at in 0..cells.layout().machines.len() {
            cells.set_health(MachineId(at as u32), false);
        }
        Self {
            groups: GroupScheduler::new(cells),
            rules,
            pods: BTreeMap::new(),
            deleted: DeletedPods::default(),
            nodes: BTreeMap::new(),
            downgraded: BTreeMap::new(),
            freed: None,
        }
    }

    /// Returns the groups and their cells.
    pub fn groups(&self) -> &GroupScheduler {
        &self.groups
    }

    /// Decides where a pod may run. A pod that can start holds its place from now on, and with it its whole group.
    ///
    /// # Errors
    /// When the request cannot be met.
    pub fn filter(&mut self, call: &FilterCall, now: Timestamp) -> Result<FilterAnswer, ExtenderError> {
        self.note_request(&call.pod, now)?;
        if let Some(PodRecord {
            state: PodState::Binding { command, attempts },
            ..
        }) = self.pods.get_mut(&call.pod.uid)
        {
            *attempts = attempts.saturating_add(1);
            let (command, attempts) = (Arc::clone(command), *attempts);
            return Ok(self.bind_answer(&command, attempts, &call.nodes));
        }
        self.place(&call.pod, &call.spec, &call.nodes, now)
    }

    /// Finds a place for a pod that has none.
    pub(crate) fn place(
        &mut self,
        pod: &PodName,
        spec: &PodSpec,
        nodes: &[String],
        now: Timestamp,
    ) -> Result<FilterAnswer, ExtenderError> {
        match self.decide(pod, spec, Phase::Filtering, nodes, true, now)? {
            Answer::Bind { .. } => {
                let command = Arc::new(self.bind_command(pod)?);
                self.update_record(&pod.uid, |record| {
                    record.pending = None;
                    record.state = PodState::Binding {
                        command: Arc::clone(&command),
                        attempts: 0,
                    };
                });
                Ok(self.bind_answer(&command, 0, nodes))
            }
            Answer::Preempt { victims } => {
                self.set_pending(&pod.uid, spec, nodes, Some(now));
                let by_node = self.by_node(victims.iter().map(String::as_str));
                if by_node.is_empty() {
                    let reason = "the Pods it preempts are being deleted".to_owned();
                    return Ok(FilterAnswer::Wait { reason });
                }
                let messages = by_node.into_iter().map(|(node, pods)| {
                    let names: Vec<String> = pods.iter().map(|p| p.name.to_string()).collect();
                    let message = format!("node({node}) has preemptible Pods: {}", names.join(", "));
                    (node.to_owned(), message)
                });
                Ok(FilterAnswer::Preempt {
                    nodes: messages.collect(),
                })
            }
            Answer::Wait { reason } => {
                self.set_waiting(&pod.uid, spec, nodes);
                let reason = wait_message(reason.as_ref(), spec);
                Ok(FilterAnswer::Wait { reason })
            }
        }
    }

    /// Decides which pods must be deleted for this one. Its group claims their cells from now on. The answer has the
    /// victims of one node, since kube-scheduler accepts no more; [`crate::overdue_commands`] deletes the others.
    ///
    /// # Errors
    /// When the request cannot be met.
    pub fn preempt(&mut self, call: &PreemptCall, now: Timestamp) -> Result<PreemptResult, ExtenderError> {
        self.note_request(&call.pod, now)?;
        if let Some(PodState::Binding { .. }) = self.pods.get(&call.pod.uid).map(|r| &r.state) {
            return Ok(PreemptResult::default());
        }
        match self.decide(&call.pod, &call.spec, Phase::Preempting, &call.nodes, false, now)? {
            // The pod gets its place with the next `filter`.
            Answer::Bind { .. } => Ok(PreemptResult::default()),
            Answer::Wait { .. } => {
                self.set_waiting(&call.pod.uid, &call.spec, &call.nodes);
                Ok(PreemptResult::default())
            }
            Answer::Preempt { victims } => {
                self.set_pending(&call.pod.uid, &call.spec, &call.nodes, Some(now));
                self.update_record(&call.pod.uid, |record| record.state = PodState::Preempting);
                let victims: Vec<&str> = victims.iter().map(String::as_str).collect();
                Ok(self.victims_of_one_node(&victims, &call.nodes))
            }
        }
    }

    /// Picks the node whose victims kube-scheduler deletes next: one with victims that are not being deleted yet,
    /// preferably one that kube-scheduler proposes.
    fn victims_of_one_node(&self, victims: &[&str], proposed: &[String]) -> PreemptResult {
        // kube-scheduler can delete only pods that it knows to be bound.
        let is_bound = |uid: &&str| matches!(self.pods.get(*uid).map(|r| &r.state), Some(PodState::Bound(_)));
        let by_node = self.by_node(victims.iter().copied().filter(is_bound));
        let rank = |node: &str, pods: &[&PodRecord]| {
            let all_ending = pods.iter().all(|p| p.is_ending);
            let is_proposed = proposed.iter().any(|n| n == node);
            (all_ending, !is_proposed)
        };
        let best = by_node
            .into_iter()
            .filter(|(node, _)| self.nodes.contains_key(*node))
            .min_by_key(|(node, pods)| (rank(node, pods), *node));
        let mut result = PreemptResult::default();
        if let Some((node, pods)) = best {
            let pods = pods.iter().map(|p| MetaPod {
                uid: p.name.uid.clone(),
            });
            let victims = MetaVictims {
                pods: pods.collect(),
                violations: 0,
            };
            result.node_name_to_meta_victims.insert(node.to_owned(), victims);
        }
        result
    }

    /// Returns the command to bind a pod, or `None` if it is bound already.
    ///
    /// # Errors
    /// When this is not what was decided.
    pub fn bind(&self, call: &BindCall) -> Result<Option<Arc<BindCommand>>, ExtenderError> {
        let name = call.pod();
        let error = |what: String| ExtenderError::user(what).about(&name);
        let Some(record) = self.pods.get(&call.uid) else {
            return Err(error("does not exist or has ended".to_owned()));
        };
        match &record.state {
            PodState::Binding { command, .. } if command.node == call.node => Ok(Some(Arc::clone(command))),
            PodState::Bound(node) if *node == call.node => Ok(None),
            PodState::Binding { command, .. } => Err(error(format!(
                "binding node mismatch: expected {}, received {}",
                command.node, call.node
            ))),
            PodState::Bound(node) => Err(error(format!("has already been bound to node {node}"))),
            PodState::Waiting | PodState::Preempting => Err(error("has no place yet".to_owned())),
        }
    }

    /// Records that Kubernetes has bound a pod.
    pub fn set_bound(&mut self, command: &BindCommand) {
        self.update_record(&command.pod.uid, |record| {
            if matches!(&record.state, PodState::Binding { command: own, .. } if own.node == command.node) {
                record.state = PodState::Bound(command.node.clone());
            }
        });
    }

    /// Records a request for a pod.
    fn note_request(&mut self, pod: &PodName, now: Timestamp) -> Result<(), ExtenderError> {
        if self.deleted.contains(&pod.uid) {
            let what = "does not exist any more or has ended";
            return Err(ExtenderError::user(what).about(pod));
        }
        let record = self
            .pods
            .entry(pod.uid.clone())
            .or_insert_with(|| PodRecord::new(pod.clone(), now));
        record.last_asked = now;
        match &record.state {
            PodState::Bound(node) => {
                let what = format!("has already been bound to node {node}");
                Err(ExtenderError::user(what).about(pod))
            }
            PodState::Waiting | PodState::Preempting | PodState::Binding { .. } => Ok(()),
        }
    }

    pub(crate) fn decide(
        &mut self,
        pod: &PodName,
        spec: &PodSpec,
        phase: Phase,
        nodes: &[String],
        commit: bool,
        now: Timestamp,
    ) -> Result<Answer, ExtenderError> {
        let answer = self.groups.schedule(&pod.uid, spec, phase, Some(nodes), commit);
        self.note_downgraded(now);
        answer.map_err(|e| ExtenderError::user(e.to_string()).about(pod))
    }

    fn update_record(&mut self, uid: &str, change: impl FnOnce(&mut PodRecord)) {
        if let Some(record) = self.pods.get_mut(uid) {
            change(record);
        }
    }

    /// Records that no place was found for a pod.
    pub(crate) fn set_waiting(&mut self, uid: &str, spec: &PodSpec, nodes: &[String]) {
        self.set_pending(uid, spec, nodes, None);
        self.update_record(uid, |record| record.state = PodState::Waiting);
    }

    /// Records the request of a pod that has no place yet. `now` is set if it waits for victims.
    fn set_pending(&mut self, uid: &str, spec: &PodSpec, nodes: &[String], now: Option<Timestamp>) {
        let nodes = match spec.ignore_k8s_suggested_nodes {
            true => Vec::new(),
            false => nodes.to_vec(),
        };
        self.update_record(uid, |record| {
            let before = record.pending.as_ref().and_then(|p| p.victims_since);
            record.pending = Some(PendingRequest {
                spec: spec.clone(),
                nodes,
                victims_since: now.map(|now| before.unwrap_or(now)),
            });
        });
    }

    fn bind_command(&self, pod: &PodName) -> Result<BindCommand, ExtenderError> {
        let error = |what: String| ExtenderError::platform(what).about(pod);
        let Some((group, at)) = self.groups.place_of(&pod.uid) else {
            return Err(error("the place of the pod is not recorded".to_owned()));
        };
        let info = BindInfo::new(&group, at);
        let annotations = info.annotations().map_err(|e| error(e.to_string()))?;
        Ok(BindCommand {
            pod: pod.clone(),
            node: info.node,
            annotations,
        })
    }

    fn bind_answer(&self, command: &Arc<BindCommand>, attempts: u32, nodes: &[String]) -> FilterAnswer {
        // kube-scheduler does not bind to a node that it does not know or did not suggest.
        let is_unknown = !self.nodes.contains_key(&command.node) || !nodes.contains(&command.node);
        let force = is_unknown || attempts >= self.rules.force_bind_after;
        FilterAnswer::Bind {
            node: command.node.clone(),
            force: force.then(|| Arc::clone(command)),
        }
    }

    /// Groups pods by their node.
    fn by_node<'a>(&'a self, uids: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, Vec<&'a PodRecord>> {
        let mut nodes: BTreeMap<&str, Vec<&PodRecord>> = BTreeMap::new();
        for record in uids.filter_map(|uid| self.pods.get(uid)) {
            if let Some(node) = record.node() {
                nodes.entry(node).or_default().push(record);
            }
        }
        nodes
    }
}

/// Returns why a pod waits, starting with HiveD's words.
fn wait_message(reason: Option<&WaitReason>, spec: &PodSpec) -> String {
    let vc = &spec.virtual_cluster;
    match reason {
        None => "its affinity group is being preempted".to_owned(),
        Some(WaitReason::NoRoom {
            borrower,
            asked,
            available,
            unusable,
        }) => {
            let place = match borrower {
                true => "physical cluster".to_owned(),
                false => format!("VC {vc}"),
            };
            let mut text = format!(
                "insufficient capacity when scheduling in {place}: {asked} leaf cells requested, {available} available"
            );
            if *unusable > 0 {
                text += &format!(", of which {unusable} are on bad or not suggested nodes");
            }
            text
        }
        Some(WaitReason::NoHealthyCell { free, bad, .. }) => format!(
            "insufficient capacity when scheduling in VC {vc}: have to use at least one bad or not suggested node; {bad} of {free} free cells have bad nodes"
        ),
        Some(WaitReason::UserLimit { limit, held, asked }) => format!(
            "user limit reached in VC {vc}: {held} of {limit} leaf cells held, {asked} more requested"
        ),
    }
}
