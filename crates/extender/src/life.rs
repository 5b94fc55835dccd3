//! What Kubernetes tells of pods and nodes, a new configuration, and what is due.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use dovetail_cells::hived::{Answer, Phase};
use dovetail_cells::{Carried, Layout};
use dovetail_kubeapi::{Node, Pod};

use crate::annotation::{BindInfo, read_spec};
use crate::extender::{Extender, Filtered, Rules};
use crate::pods::{Asked, BindOrder, Known, Moment, PodName, State, is_managed, is_over};

/// A pod only kube-scheduler has told of is forgotten after so long, in microseconds.
const UNHEARD: i64 = 60_000_000;

/// So many times longer a pod may take from its decision to its node.
const STUCK: i64 = 10;

/// Something that is due, for Kubernetes to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Delete a pod.
    Evict(Eviction),
    /// Bind a pod kube-scheduler does not ask for.
    Bind(Arc<BindOrder>),
}

/// A pod that is to be deleted, because others need its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// The pod.
    pub pod: PodName,
    /// The pod it has to go for.
    pub preemptor: PodName,
}

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

    /// What kube-scheduler should have done and has not: victims are deleted, and pods bound that could start.
    pub fn due(&mut self, now: Moment) -> Vec<Command> {
        self.forget_unheard(now);
        let mut commands: Vec<Command> = self
            .overdue_victims(now)
            .into_iter()
            .map(Command::Evict)
            .collect();
        commands.extend(self.overdue_starts(now).into_iter().map(Command::Bind));
        commands
    }

    /// Victims that nobody has deleted for too long: kube-scheduler deletes those of one node at a time, and in versions of
    /// today none at all where it sees no lack of CPU, memory or other resources it counts itself.
    fn overdue_victims(&mut self, now: Moment) -> Vec<Eviction> {
        let Some(patience) = self.rules.evict_after else {
            return Vec::new();
        };
        let is_due = |since: Moment| now.since(since) >= patience;
        let waiting = self
            .pods
            .values()
            .filter_map(|k| Some((&k.name, k.asked.as_ref()?)));
        let due = waiting.filter(|(_, asked)| asked.for_victims.is_some_and(is_due));
        let due: Vec<(PodName, Asked)> = due.map(|(n, a)| (n.clone(), a.clone())).collect();
        let mut evictions: Vec<Eviction> = Vec::new();
        for (preemptor, asked) in due {
            let answer = self.decide(
                &preemptor,
                &asked.spec,
                Phase::Preempting,
                &asked.nodes,
                false,
                now,
            );
            let Ok(Answer::Preempt { victims }) = answer else {
                self.wait(&preemptor.uid, &asked.spec, &asked.nodes);
                self.note_freed(now);
                continue;
            };
            if let Some(known) = self.pods.get_mut(&preemptor.uid) {
                known.state = State::Preempting;
                known.asked = Some(Asked {
                    for_victims: Some(now),
                    ..asked
                });
            }
            for victim in victims.iter().filter_map(|uid| self.pods.get(uid)) {
                let is_new = evictions.iter().all(|e| e.pod != victim.name);
                if !victim.is_ending && is_new {
                    evictions.push(Eviction {
                        pod: victim.name.clone(),
                        preemptor: preemptor.clone(),
                    });
                }
            }
        }
        evictions
    }

    /// Pods that could start since something was freed, and that nobody has asked for since. kube-scheduler often asks when it
    /// hears of the same change, before we have heard of it, and then not again for minutes.
    fn overdue_starts(&mut self, now: Moment) -> Vec<Arc<BindOrder>> {
        let Some(patience) = self.rules.start_after else {
            return Vec::new();
        };
        let mut orders = self.stuck(patience.saturating_mul(STUCK), now);
        let Some((_, last)) = self.freed.filter(|(first, _)| now.since(*first) >= patience) else {
            return orders;
        };
        self.freed = None;
        let waiting = |k: &&Known| matches!(k.state, State::Waiting | State::Preempting);
        let mut line: Vec<(&Known, &Asked)> = self
            .pods
            .values()
            .filter(waiting)
            .filter(|k| k.is_heard && !k.is_ending && k.touched <= last)
            .filter_map(|k| Some((k, k.asked.as_ref()?)))
            .collect();
        line.sort_by_key(|(known, asked)| (Reverse(asked.spec.priority), known.first, &known.name));
        let line: Vec<(PodName, Asked)> = line
            .into_iter()
            .map(|(known, asked)| (known.name.clone(), asked.clone()))
            .collect();
        for (pod, asked) in line {
            let placed = self.place(&pod, &asked.spec, &asked.nodes, now);
            let Ok(Filtered::Bind { .. }) = placed else {
                continue;
            };
            if let Some(known) = self.pods.get_mut(&pod.uid)
                && let State::Binding { order, .. } = &known.state
            {
                known.touched = now;
                orders.push(Arc::clone(order));
            }
        }
        orders
    }

    /// Pods that have their place and were not bound for so long.
    fn stuck(&mut self, patience: i64, now: Moment) -> Vec<Arc<BindOrder>> {
        let mut orders = Vec::new();
        for known in self.pods.values_mut().filter(|k| k.is_heard && !k.is_ending) {
            if let State::Binding { order, .. } = &known.state
                && now.since(known.touched) >= patience
            {
                orders.push(Arc::clone(order));
                known.touched = now;
            }
        }
        orders
    }

    /// Pods that wait may start now.
    fn note_freed(&mut self, now: Moment) {
        let first = self.freed.map_or(now, |(first, _)| first);
        self.freed = Some((first, now));
    }

    /// Pods only kube-scheduler has told of, long ago: they came and went between two lists.
    fn forget_unheard(&mut self, now: Moment) {
        let lost = self
            .pods
            .values()
            .filter(|k| !k.is_heard && now.since(k.touched) > UNHEARD)
            .filter(|k| !matches!(k.state, State::Bound(_)))
            .map(|k| k.name.uid.clone())
            .collect::<Vec<_>>();
        for uid in lost {
            self.pods.remove(&uid);
            self.groups.delete(&uid);
            self.note_downgraded(now);
        }
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
