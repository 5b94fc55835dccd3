//! Updates from outside: pods and nodes that Kubernetes reports, and a new configuration.

use std::collections::BTreeSet;

use dovetail_cells::{Layout, ReconfiguredGroup};
use dovetail_kubeapi::{Node, Pod};

use crate::annotation::{read_bind_info, read_spec};
use crate::extender::{Extender, Rules};
use crate::pods::{PodName, PodRecord, PodState, Timestamp, has_ended, is_managed};

/// Time after which a pod that only kube-scheduler has reported is forgotten, in microseconds.
pub(crate) const UNREPORTED_TIMEOUT: i64 = 60_000_000;

impl Extender {
    /// Takes over the list of all pods. Known pods that are not in it are removed.
    pub fn sync_pods(&mut self, pods: &[Pod], now: Timestamp) {
        // Pods that were bound first are counted first.
        let mut order: Vec<&Pod> = pods.iter().collect();
        order.sort_by_cached_key(|pod| {
            let scheduled = pod.status.conditions.iter().find(|c| c.kind == "PodScheduled");
            let scheduled = scheduled.and_then(|c| c.last_transition_time.clone());
            let created = pod.metadata.creation_timestamp.clone();
            (scheduled, created, PodName::of(pod))
        });
        let listed: BTreeSet<&str> = pods.iter().map(|p| p.metadata.uid.as_str()).collect();
        let missing: Vec<String> = self
            .pods
            .values()
            .filter(|r| !listed.contains(r.name.uid.as_str()))
            // The list may be older than a request of kube-scheduler.
            .filter(|r| r.is_reported || now.since(r.last_asked) > UNREPORTED_TIMEOUT)
            .map(|r| r.name.uid.clone())
            .collect();
        for uid in missing {
            self.remove_pod(&uid, now);
        }
        for pod in order {
            self.update_pod(pod, now);
        }
    }

    /// Takes over a pod that is new or has changed.
    pub fn update_pod(&mut self, pod: &Pod, now: Timestamp) {
        let name = PodName::of(pod);
        if !is_managed(pod) || self.deleted.contains(&name.uid) {
            return;
        }
        if has_ended(pod) {
            self.remove_pod(&name.uid, now);
            return;
        }
        let record = self
            .pods
            .entry(name.uid.clone())
            .or_insert_with(|| PodRecord::new(name, now));
        record.is_reported = true;
        record.is_ending = pod.metadata.deletion_timestamp.is_some();
        let node = &pod.spec.node_name;
        if node.is_empty() {
            return;
        }
        let is_expected = record.node() == Some(node);
        record.pending = None;
        record.state = PodState::Bound(node.clone());
        if !is_expected {
            self.adopt(pod, now);
        }
    }

    /// Adds a pod that was bound before this process started, or by another scheduler.
    fn adopt(&mut self, pod: &Pod, now: Timestamp) {
        let name = PodName::of(pod);
        self.groups.delete(&name.uid);
        let read = read_spec(pod).and_then(|spec| Ok((spec, read_bind_info(pod)?)));
        let (spec, info) = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(pod = %name, %error, "cells of a bound pod are not counted: invalid annotation");
                return;
            }
        };
        let own = (info.node.as_str(), info.leaf_cell_isolation.as_slice());
        let adopted = self
            .groups
            .adopt(&name.uid, &spec, &info.cell_chain, &info.places(), own);
        if let Err(error) = adopted {
            tracing::warn!(pod = %name, %error, "cells of a bound pod are not counted");
        }
        self.note_downgraded(now);
    }

    /// Removes a pod that was deleted or has ended. Its place is free when its whole group is removed.
    pub fn remove_pod(&mut self, uid: &str, now: Timestamp) {
        if self.pods.remove(uid).is_some() {
            self.groups.delete(uid);
            self.note_downgraded(now);
            self.note_freed(now);
        }
        self.deleted.add(uid);
    }

    /// Takes over the list of all nodes.
    pub fn sync_nodes(&mut self, nodes: &[Node], now: Timestamp) {
        let listed: BTreeSet<&str> = nodes.iter().map(|n| n.metadata.name.as_str()).collect();
        let known: Vec<String> = self.nodes.keys().cloned().collect();
        for name in known.iter().filter(|n| !listed.contains(n.as_str())) {
            self.remove_node(name, now);
        }
        for node in nodes {
            self.update_node(node, now);
        }
    }

    /// Takes over a node that is new or has changed.
    pub fn update_node(&mut self, node: &Node, now: Timestamp) {
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

    /// Removes a node.
    pub fn remove_node(&mut self, name: &str, now: Timestamp) {
        self.nodes.remove(name);
        self.groups.set_health(name, false);
        self.note_downgraded(now);
    }

    /// Changes the configuration. Returns what happened to each group.
    pub fn reconfigure(&mut self, layout: Layout, now: Timestamp) -> Vec<(String, ReconfiguredGroup)> {
        let result = self.groups.reconfigure(layout);
        let machines = &self.groups.cells().layout().machines;
        let names: Vec<String> = machines.iter().map(|m| m.name.clone()).collect();
        for name in names {
            let healthy = self.nodes.get(&name).copied().unwrap_or(false);
            self.groups.set_health(&name, healthy);
        }
        for record in self.pods.values_mut() {
            if matches!(record.state, PodState::Preempting) {
                record.state = PodState::Waiting;
            }
        }
        self.note_downgraded(now);
        self.note_freed(now);
        result
    }

    /// Changes the rules.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Records a change that may let waiting pods start.
    pub(crate) fn note_freed(&mut self, now: Timestamp) {
        let first = self.freed.map_or(now, |(first, _)| first);
        self.freed = Some((first, now));
    }

    /// Records when groups were downgraded.
    pub(crate) fn note_downgraded(&mut self, now: Timestamp) {
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
