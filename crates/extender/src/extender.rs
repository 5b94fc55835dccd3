//! The three questions of kube-scheduler.

use std::collections::BTreeMap;
use std::sync::Arc;

use dovetail_cells::hived::{Answer, Extender as Groups, Phase, PodSpec};
use dovetail_cells::{Cells, Layout, MachineId, Wait};

use crate::annotation::BindInfo;
use crate::pods::{Asked, BindOrder, Gone, Known, Moment, PodName, State};
use crate::wire::{
    BindCall, Fault, FilterCall, FilterResult, MetaPod, MetaVictims, PreemptCall, PreemptResult,
};

/// Under this name the reason stands when no node can be blamed.
const NOBODY: &str = "hivedscheduler";

/// How the extender goes about its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// A pod that has its place and is asked for so often is bound without kube-scheduler.
    pub force_bind_after: u32,
    /// Victims nobody deletes for so long, in microseconds, are deleted by us; never if there is none.
    pub evict_after: Option<i64>,
    /// Pods that could start and that nobody asks for within so long, in microseconds, are bound by us; never if there is none.
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

/// All that is known of pods, nodes and cells. Nothing happens by itself: every change is a call, and what has to be done
/// outside comes back as a value.
#[derive(Debug, Clone)]
pub struct Extender {
    pub(crate) groups: Groups,
    pub(crate) rules: Rules,
    pub(crate) pods: BTreeMap<String, Known>,
    pub(crate) gone: Gone,
    /// Nodes that were heard of, and whether they can be used.
    pub(crate) nodes: BTreeMap<String, bool>,
    /// Since when groups are downgraded, by key.
    pub(crate) downgraded: BTreeMap<u64, Moment>,
    /// The first and the last change after which pods that wait may start, and that was not followed up yet.
    pub(crate) freed: Option<(Moment, Moment)>,
}

/// The answer to `filter`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filtered {
    /// The pod goes to this node.
    Bind {
        /// The node.
        node: String,
        /// Set if the pod is to be bound at once, without kube-scheduler.
        force: Option<Arc<BindOrder>>,
    },
    /// Pods have to go first.
    Preempt {
        /// Which, in words, by node.
        nodes: BTreeMap<String, String>,
    },
    /// The pod has to wait.
    Wait {
        /// Why.
        why: String,
    },
}

impl Filtered {
    /// As it is sent.
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
            Self::Wait { why } => FilterResult {
                failed_nodes: BTreeMap::from([(
                    NOBODY.to_owned(),
                    format!("Pod is waiting for preemptible or free resource to appear: {why}"),
                )]),
                ..FilterResult::default()
            },
        }
    }
}

impl Extender {
    /// No pods yet, and all machines bad until they are heard of.
    pub fn new(layout: Layout, rules: Rules) -> Self {
        let mut cells = Cells::new(layout);
        cells.set_repromotion(rules.repromote);
        for at in 0..cells.layout().machines.len() {
            cells.set_health(MachineId(at as u32), false);
        }
        Self {
            groups: Groups::new(cells),
            rules,
            pods: BTreeMap::new(),
            gone: Gone::default(),
            nodes: BTreeMap::new(),
            downgraded: BTreeMap::new(),
            freed: None,
        }
    }

    /// The groups and their cells.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Where may this pod go? A pod that can start has its place from now on, and with it its whole group.
    ///
    /// # Errors
    /// When the pod asks for something that cannot be.
    pub fn filter(&mut self, call: &FilterCall, now: Moment) -> Result<Filtered, Fault> {
        self.meet(&call.pod, now)?;
        if let Some(Known {
            state: State::Binding { order, attempts },
            ..
        }) = self.pods.get_mut(&call.pod.uid)
        {
            *attempts = attempts.saturating_add(1);
            let (order, attempts) = (Arc::clone(order), *attempts);
            return Ok(self.bind_answer(&order, attempts, &call.nodes));
        }
        self.place(&call.pod, &call.spec, &call.nodes, now)
    }

    /// Finds a place for a pod that has none.
    pub(crate) fn place(
        &mut self,
        pod: &PodName,
        spec: &PodSpec,
        nodes: &[String],
        now: Moment,
    ) -> Result<Filtered, Fault> {
        match self.decide(pod, spec, Phase::Filtering, nodes, true, now)? {
            Answer::Bind { .. } => {
                let order = Arc::new(self.order(pod)?);
                self.turn(&pod.uid, |known| {
                    known.asked = None;
                    known.state = State::Binding {
                        order: Arc::clone(&order),
                        attempts: 0,
                    };
                });
                Ok(self.bind_answer(&order, 0, nodes))
            }
            Answer::Preempt { victims } => {
                self.ask(&pod.uid, spec, nodes, Some(now));
                let by_node = self.by_node(victims.iter().map(String::as_str));
                if by_node.is_empty() {
                    let why = "the Pods it preempts are going".to_owned();
                    return Ok(Filtered::Wait { why });
                }
                let told = by_node.into_iter().map(|(node, pods)| {
                    let names: Vec<String> = pods.iter().map(|p| p.name.to_string()).collect();
                    let why = format!("node({node}) has preemptible Pods: {}", names.join(", "));
                    (node.to_owned(), why)
                });
                Ok(Filtered::Preempt {
                    nodes: told.collect(),
                })
            }
            Answer::Wait { why } => {
                self.wait(&pod.uid, spec, nodes);
                Ok(Filtered::Wait {
                    why: why_words(why.as_ref(), spec),
                })
            }
        }
    }

    /// Which pods have to go for this one? Its group claims their cells from now on. They are those of one node, since
    /// kube-scheduler takes no more; the others follow, see [`Extender::due`].
    ///
    /// # Errors
    /// When the pod asks for something that cannot be.
    pub fn preempt(&mut self, call: &PreemptCall, now: Moment) -> Result<PreemptResult, Fault> {
        self.meet(&call.pod, now)?;
        let mut result = PreemptResult::default();
        if let Some(State::Binding { .. }) = self.pods.get(&call.pod.uid).map(|k| &k.state) {
            return Ok(result);
        }
        match self.decide(&call.pod, &call.spec, Phase::Preempting, &call.nodes, false, now)? {
            // It is given to the pod when kube-scheduler asks where it may go.
            Answer::Bind { .. } => {}
            Answer::Wait { .. } => self.wait(&call.pod.uid, &call.spec, &call.nodes),
            Answer::Preempt { victims } => {
                self.ask(&call.pod.uid, &call.spec, &call.nodes, Some(now));
                self.turn(&call.pod.uid, |known| known.state = State::Preempting);
                // Only what kube-scheduler knows to be there can be deleted by it.
                let there = victims.iter().map(String::as_str);
                let there =
                    there.filter(|v| matches!(self.pods.get(*v).map(|k| &k.state), Some(State::Bound(_))));
                let nodes = self.by_node(there);
                let rank = |node: &str, pods: &[&Known]| {
                    let is_candidate = call.nodes.iter().any(|n| n == node);
                    let all_ending = pods.iter().all(|p| p.is_ending);
                    (all_ending, !is_candidate)
                };
                let best = nodes
                    .into_iter()
                    .filter(|(node, _)| self.nodes.contains_key(*node))
                    .min_by_key(|(node, pods)| (rank(node, pods), *node));
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
            }
        }
        Ok(result)
    }

    /// Put this pod on this node: what has to be done for it, or nothing if it is there.
    ///
    /// # Errors
    /// When that is not what was decided.
    pub fn bind(&self, call: &BindCall) -> Result<Option<Arc<BindOrder>>, Fault> {
        let name = call.pod();
        let fault = |what: String| Fault::user(what).about(&name);
        let Some(known) = self.pods.get(&call.uid) else {
            return Err(fault("it is not there, or has ended".to_owned()));
        };
        match &known.state {
            State::Binding { order, .. } if order.node == call.node => Ok(Some(Arc::clone(order))),
            State::Bound(node) if *node == call.node => Ok(None),
            State::Binding { order, .. } => Err(fault(format!(
                "binding node mismatch: expected {}, received {}",
                order.node, call.node
            ))),
            State::Bound(node) => Err(fault(format!("it has already been bound to node {node}"))),
            State::Waiting | State::Preempting => Err(fault("it has no place yet".to_owned())),
        }
    }

    /// Kubernetes has bound the pod.
    pub fn bound(&mut self, order: &BindOrder) {
        self.turn(&order.pod.uid, |known| {
            if matches!(&known.state, State::Binding { order: mine, .. } if mine.node == order.node) {
                known.state = State::Bound(order.node.clone());
            }
        });
    }

    /// A pod somebody asks for.
    fn meet(&mut self, pod: &PodName, now: Moment) -> Result<(), Fault> {
        if self.gone.contains(&pod.uid) {
            let what = "it is not there any more, or has ended";
            return Err(Fault::user(what).about(pod));
        }
        let known = self
            .pods
            .entry(pod.uid.clone())
            .or_insert_with(|| Known::new(pod.clone(), now));
        known.touched = now;
        match &known.state {
            State::Bound(node) => {
                let what = format!("it has already been bound to node {node}");
                Err(Fault::user(what).about(pod))
            }
            State::Waiting | State::Preempting | State::Binding { .. } => Ok(()),
        }
    }

    pub(crate) fn decide(
        &mut self,
        pod: &PodName,
        spec: &PodSpec,
        phase: Phase,
        nodes: &[String],
        keep: bool,
        now: Moment,
    ) -> Result<Answer, Fault> {
        let answer = self.groups.schedule(&pod.uid, spec, phase, Some(nodes), keep);
        self.note_downgraded(now);
        answer.map_err(|e| Fault::user(e.to_string()).about(pod))
    }

    fn turn(&mut self, uid: &str, act: impl FnOnce(&mut Known)) {
        if let Some(known) = self.pods.get_mut(uid) {
            act(known);
        }
    }

    /// Nothing was found for a pod.
    pub(crate) fn wait(&mut self, uid: &str, spec: &PodSpec, nodes: &[String]) {
        self.ask(uid, spec, nodes, None);
        self.turn(uid, |known| known.state = State::Waiting);
    }

    /// A pod has no place yet; with a moment, because others have to be deleted first.
    fn ask(&mut self, uid: &str, spec: &PodSpec, nodes: &[String], for_victims: Option<Moment>) {
        let nodes = match spec.ignore_k8s_suggested_nodes {
            true => Vec::new(),
            false => nodes.to_vec(),
        };
        self.turn(uid, |known| {
            let before = known.asked.as_ref().and_then(|asked| asked.for_victims);
            known.asked = Some(Asked {
                spec: spec.clone(),
                nodes,
                for_victims: for_victims.map(|now| before.unwrap_or(now)),
            });
        });
    }

    fn order(&self, pod: &PodName) -> Result<BindOrder, Fault> {
        let Some((group, at)) = self.groups.place_of(&pod.uid) else {
            return Err(Fault::platform("it has a place that cannot be found").about(pod));
        };
        let info = BindInfo::new(&group, at);
        Ok(BindOrder {
            pod: pod.clone(),
            node: info.node.clone(),
            annotations: info.annotations()?,
        })
    }

    fn bind_answer(&self, order: &Arc<BindOrder>, attempts: u32, nodes: &[String]) -> Filtered {
        let unknown = !self.nodes.contains_key(&order.node) || !nodes.contains(&order.node);
        let force = unknown || attempts >= self.rules.force_bind_after;
        Filtered::Bind {
            node: order.node.clone(),
            force: force.then(|| Arc::clone(order)),
        }
    }

    /// Pods by the node they are on.
    fn by_node<'a>(&'a self, pods: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, Vec<&'a Known>> {
        let mut nodes: BTreeMap<&str, Vec<&Known>> = BTreeMap::new();
        for known in pods.filter_map(|uid| self.pods.get(uid)) {
            if let Some(node) = known.node() {
                nodes.entry(node).or_default().push(known);
            }
        }
        nodes
    }
}

/// Why a pod waits, beginning with HiveD's words.
fn why_words(why: Option<&Wait>, spec: &PodSpec) -> String {
    let vc = &spec.virtual_cluster;
    match why {
        None => "its affinity group is being preempted".to_owned(),
        Some(Wait::NoRoom {
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
                "insufficient capacity when scheduling in {place}: {asked} leaf cells are asked for, {available} can be had"
            );
            if *unusable > 0 {
                text += &format!(", {unusable} are on bad or not suggested nodes");
            }
            text
        }
        Some(Wait::NoHealthyCell { free, bad, .. }) => format!(
            "insufficient capacity when scheduling in VC {vc}: have to use at least one bad or not suggested node; of {free} free cells {bad} have bad nodes"
        ),
        Some(Wait::UserLimit { limit, held, asked }) => {
            format!("its user may hold {limit} leaf cells in VC {vc}, holds {held} and asks for {asked} more")
        }
    }
}
