//! What Kubernetes tells of pods and nodes, and a new configuration.

use std::collections::BTreeSet;

use dovetail_cells::{Carried, Layout};
use dovetail_kubeapi::{Node, Pod};

use crate::annotation::{BindInfo, read_spec};
use crate::extender::{Extender, Rules};
use crate::pods::{Known, Moment, PodName, State, is_managed, is_over};

/// A pod only kube-scheduler has told of is forgotten after so long, in microseconds.
pub(crate) const UNHEARD: i64 = 60_000_000;

impl Extender {
    /// All pods there are: those that were known and are not among them have gone.
    pub fn pods_all(&mut self, pods: &[Pod], now: Moment) {
        // Those that were bound first are counted first.
        let mut order: Vec<&Pod> = pods.iter().collect();
        order.sort_by_cached_key(|pod| {
            let scheduled = pod.status.conditions.iter().find(|c| c.kind == "PodScheduled");
            let scheduled = scheduled.and_then(|c| c.last_transition_time.clone());
            let created = pod.metadata.creation_timestamp.clone();
            (scheduled, created, PodName::of(pod))
        });
        let there: BTreeSet<&str> = pods.iter().map(|p| p.metadata.uid.as_str()).collect();
        let gone: Vec<String> = self
            .pods
            .values()
            .filter(|k| !there.contains(k.name.uid.as_str()))
            // The list may be older than what kube-scheduler asked for.
            .filter(|k| k.is_heard || now.since(k.touched) > UNHEARD)
            .map(|k| k.name.uid.clone())
            .collect();
        for uid in gone {
            self.pod_gone(&uid, now);
        }
        for pod in order {
            self.pod_put(pod, now);
        }
    }

    /// A pod is new, or has changed.
    pub fn pod_put(&mut self, pod: &Pod, now: Moment) {
        let name = PodName::of(pod);
        if !is_managed(pod) || self.gone.contains(&name.uid) {
            return;
        }
        if is_over(pod) {
            self.pod_gone(&name.uid, now);
            return;
        }
        let known = self
            .pods
            .entry(name.uid.clone())
            .or_insert_with(|| Known::new(name, now));
        known.is_heard = true;
        known.is_ending = pod.metadata.deletion_timestamp.is_some();
        let node = &pod.spec.node_name;
        if node.is_empty() {
            return;
        }
        let expected = known.node() == Some(node);
        known.asked = None;
        known.state = State::Bound(node.clone());
        if !expected {
            self.adopt(pod, now);
        }
    }

    /// A pod that was bound before we knew of it, or by somebody else.
    fn adopt(&mut self, pod: &Pod, now: Moment) {
        let name = PodName::of(pod);
        self.groups.delete(&name.uid);
        let read = read_spec(pod).and_then(|spec| Ok((spec, BindInfo::read(pod)?)));
        let (spec, info) = match read {
            Ok(read) => read,
            Err(fault) => {
                tracing::warn!(pod = %name, %fault, "a bound pod does not say which cells it has: they are not counted");
                return;
            }
        };
        let own = (info.node.as_str(), info.leaf_cell_isolation.as_slice());
        let adopted = self
            .groups
            .adopt(&name.uid, &spec, &info.cell_chain, &info.places(), own);
        if let Err(error) = adopted {
            tracing::warn!(pod = %name, %error, "the cells of a bound pod are not counted");
        }
        self.note_downgraded(now);
    }

    /// A pod is gone, or has ended: its place is free when its whole group is gone.
    pub fn pod_gone(&mut self, uid: &str, now: Moment) {
        if self.pods.remove(uid).is_some() {
            self.groups.delete(uid);
            self.note_downgraded(now);
            self.note_freed(now);
        }
        self.gone.add(uid);
    }

    /// All nodes there are.
    pub fn nodes_all(&mut self, nodes: &[Node], now: Moment) {
        let there: BTreeSet<&str> = nodes.iter().map(|n| n.metadata.name.as_str()).collect();
        let known: Vec<String> = self.nodes.keys().cloned().collect();
        for name in known.iter().filter(|n| !there.contains(n.as_str())) {
            self.node_gone(name, now);
        }
        for node in nodes {
            self.node_put(node, now);
        }
    }

    /// A node is new, or has changed.
    pub fn node_put(&mut self, node: &Node, now: Moment) {
        let is_ready = node
            .status
            .conditions
            .iter()
            .any(|c| c.kind == "Ready" && c.status == "True");
        let healthy = is_ready && !node.spec.unschedulable;
        let name = &node.metadata.name;
        if self.nodes.insert(name.clone(), healthy) != Some(healthy) {
            self.groups.set_health(name, healthy);
            self.note_downgraded(now);
            self.note_freed(now);
        }
    }

    /// A node is gone.
    pub fn node_gone(&mut self, name: &str, now: Moment) {
        self.nodes.remove(name);
        self.groups.set_health(name, false);
        self.note_downgraded(now);
    }

    /// Goes on under another configuration; says what becomes of each group.
    pub fn reconfigure(&mut self, layout: Layout, now: Moment) -> Vec<(String, Carried)> {
        let told = self.groups.reconfigure(layout);
        let machines = &self.groups.cells().layout().machines;
        let names: Vec<String> = machines.iter().map(|m| m.name.clone()).collect();
        for name in names {
            let healthy = self.nodes.get(&name).copied().unwrap_or(false);
            self.groups.set_health(&name, healthy);
        }
        for known in self.pods.values_mut() {
            if matches!(known.state, State::Preempting) {
                known.state = State::Waiting;
            }
        }
        self.note_downgraded(now);
        self.note_freed(now);
        told
    }

    /// Goes on under other rules.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Pods that wait may start now.
    pub(crate) fn note_freed(&mut self, now: Moment) {
        let first = self.freed.map_or(now, |(first, _)| first);
        self.freed = Some((first, now));
    }

    /// Keeps the moments at which groups were downgraded.
    pub(crate) fn note_downgraded(&mut self, now: Moment) {
        let cells = self.groups.cells();
        let keys: BTreeSet<u64> = cells
            .downgraded()
            .filter_map(|id| Some(cells.group(id)?.key))
            .collect();
        self.downgraded.retain(|key, _| keys.contains(key));
        for key in keys {
            self.downgraded.entry(key).or_insert(now);
        }
    }
}
