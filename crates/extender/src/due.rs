//! What is due although kube-scheduler has not asked for it.

use std::cmp::Reverse;
use std::sync::Arc;

use dovetail_cells::hived::{Answer, Phase};

use crate::extender::{Extender, Filtered};
use crate::life::UNHEARD;
use crate::pods::{Asked, BindOrder, Known, Moment, PodName, State};

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
}
