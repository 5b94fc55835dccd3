//! Pods as they come, change and go.

use dovetail_kubeapi::{Pod, parse_time};

use super::gang::{Member, Phase};
use super::others::Other;
use super::riders::Beside;
use super::{Claimed, Ledger, Reconciler};
use crate::action::{Action, PodId};
use crate::ask::Needs;
use crate::fit::Wants;
use crate::identity::{GangKey, Identity};
use crate::plan::parse_gpus;
use crate::words;

impl Reconciler {
    /// A pod is new, or has changed.
    pub fn pod_put(&mut self, pod: &Pod, ledger: &mut impl Ledger) {
        let key = self.take_note(pod);
        if let Some(key) = key {
            self.look_at(&key, ledger);
        }
        if self.settled {
            self.withhold_changed(ledger);
            self.let_nodes_return(ledger);
        }
    }

    /// A pod is gone.
    pub fn pod_gone(&mut self, pod: &Pod, ledger: &mut impl Ledger) {
        self.forget_pod(&pod.metadata.uid, ledger);
        self.withhold_changed(ledger);
        self.let_nodes_return(ledger);
    }

    pub(super) fn forget_pod(&mut self, uid: &str, ledger: &mut impl Ledger) {
        self.strange.remove(uid);
        self.forget_claimant(uid);
        if let Some(other) = self.others.remove(uid) {
            self.changed_nodes.insert(other.node);
        }
        let Some(key) = self.pods.remove(uid) else { return };
        let gang = self.gang_entry(&key);
        if let Some(member) = gang.members.remove(uid) {
            for seat in gang.seats.iter_mut().filter(|s| s.pod.as_deref() == Some(uid)) {
                // How it ended counts even if nobody keeps the pod.
                if !member.phase.is_over() {
                    seat.pod = None;
                }
            }
            if member.phase.is_over()
                && gang.job.is_some()
                && gang.seats.iter().any(|s| s.pod.as_deref() == Some(uid))
            {
                gang.members.insert(
                    uid.to_owned(),
                    Member {
                        deleting: true,
                        ..member
                    },
                );
            }
        }
        self.look_at(&key, ledger);
    }

    /// Writes down what the pod is; its gang, if it is one of ours.
    pub(super) fn take_note(&mut self, pod: &Pod) -> Option<GangKey> {
        let uid = pod.metadata.uid.clone();
        if pod.spec.scheduler_name != self.settings.scheduler_name {
            self.note_other(pod);
            return None;
        }
        self.keep_claimant(pod);
        let known = Identity::of(pod, &self.settings.gpu_resources)
            .and_then(|identity| Ok((identity, self.claimed(pod)?)));
        let (mut identity, claimed) = match known {
            Ok(known) => known,
            Err(why) => {
                self.note_other(pod);
                self.say_strange(pod, why);
                return None;
            }
        };
        let waits_for_claims = claimed.is_none();
        let claims = claimed.unwrap_or_default();
        identity.needs.gpus += claims.iter().map(Claimed::devices).sum::<u32>();
        if identity.needs.gpus == 0
            && !waits_for_claims
            && matches!(identity.size, crate::identity::Size::Known(1, 1))
        {
            self.note_other(pod);
            self.say_strange(
                pod,
                format!(
                    "it asks for no GPU (none of {}); leave such pods to the scheduler of the cluster, or make them part of a gang",
                    self.settings.gpu_resources.join(", ")
                ),
            );
            return None;
        }
        self.strange.remove(&uid);
        let mut member = self.member(pod, identity);
        let key = self.gang_or_ride(&member);
        member.claims = claims;
        // What is not known yet cannot be given.
        member.gated |= waits_for_claims;
        let bound_by_others =
            member.node.is_some() && member.bound_as.is_none() && !self.is_meant(&key, &uid);
        match bound_by_others && !member.phase.is_over() {
            true => self.note_other(pod),
            false => {
                if let Some(other) = self.others.remove(&uid) {
                    self.changed_nodes.insert(other.node);
                }
            }
        }
        self.pods.insert(uid.clone(), key.clone());
        let gang = self.gang_entry(&key);
        let before = gang.members.get(&uid);
        let removed = before.is_some_and(|m| m.removed);
        let in_flight = before
            .and_then(|m| m.in_flight.clone())
            .filter(|_| member.node.is_none());
        let known = Member {
            removed,
            in_flight,
            ..member
        };
        gang.looked_after |= known.identity.controller.is_some();
        gang.members.insert(uid, known);
        Some(key)
    }

    /// Whether we have given the pod a seat.
    fn is_meant(&self, key: &GangKey, uid: &str) -> bool {
        let gang = self.gangs.get(key);
        gang.is_some_and(|g| g.seats.iter().any(|s| s.pod.as_deref() == Some(uid)))
    }

    fn member(&self, pod: &Pod, identity: Identity) -> Member {
        let meta = &pod.metadata;
        let said = |name: &str| meta.annotations.get(name);
        let bound_as = || {
            let job = said(words::JOB)?.parse().ok()?;
            let attempt_id = said(words::ATTEMPT)?.parse().ok()?;
            Some((job, attempt_id, parse_gpus(said(words::GPUS)?)?))
        };
        let exit = || {
            let ended = pod
                .status
                .container_statuses
                .iter()
                .filter_map(|c| c.state.terminated.as_ref());
            ended.map(|t| t.exit_code).find(|code| *code != 0).unwrap_or(0)
        };
        Member {
            id: PodId {
                namespace: meta.namespace.clone(),
                name: meta.name.clone(),
                uid: meta.uid.clone(),
            },
            identity,
            wants: Wants::of(&pod.spec),
            claims: Vec::new(),
            node: Some(pod.spec.node_name.clone()).filter(|n| !n.is_empty()),
            bound_as: bound_as(),
            plan: said(words::PLAN).cloned(),
            phase: match pod.status.phase.as_str() {
                "Running" => Phase::Running,
                "Succeeded" => Phase::Succeeded,
                "Failed" => Phase::Failed(exit()),
                _ => Phase::Pending,
            },
            started: pod.status.start_time.as_deref().and_then(parse_time),
            deleting: meta.deletion_timestamp.is_some(),
            gated: !pod.spec.scheduling_gates.is_empty(),
            rides_on: said(words::RIDES_ON).and_then(|text| Beside::parse(text)),
            removed: false,
            in_flight: None,
        }
    }

    /// A pod that we do not look after uses a node, or does not any more.
    fn note_other(&mut self, pod: &Pod) {
        let uid = &pod.metadata.uid;
        let over = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        let now = match pod.spec.node_name.as_str() {
            "" => None,
            _ if over => None,
            node => Some(Other {
                node: node.to_owned(),
                needs: Needs::of(pod, &self.settings.gpu_resources).unwrap_or_default(),
            }),
        };
        let before = self.others.get(uid);
        if before == now.as_ref() {
            return;
        }
        self.changed_nodes.extend(before.map(|o| o.node.clone()));
        self.changed_nodes.extend(now.as_ref().map(|o| o.node.clone()));
        match now {
            Some(other) => self.others.insert(uid, other),
            None => drop(self.others.remove(uid)),
        }
    }

    /// Tells the owner of a pod what is wrong with it, once.
    fn say_strange(&mut self, pod: &Pod, why: String) {
        let meta = &pod.metadata;
        if !pod.spec.node_name.is_empty() || self.strange.get(&meta.uid) == Some(&why) {
            return;
        }
        self.strange.insert(meta.uid.clone(), why.clone());
        self.actions.push(Action::Explain {
            pod: PodId {
                namespace: meta.namespace.clone(),
                name: meta.name.clone(),
                uid: meta.uid.clone(),
            },
            reason: "SchedulerError",
            message: why,
        });
    }

    /// Gangs with a seat on the node will be launched again only when their pods were made anew.
    pub(super) fn scatter_all_on(&mut self, node: dovetail_model::NodeId, ledger: &mut impl Ledger) {
        let here = |g: &&super::Gang| g.seats.iter().any(|s| s.node == node);
        let jobs: Vec<dovetail_cluster::JobId> =
            self.gangs.values().filter(here).filter_map(|g| g.job).collect();
        for job in jobs {
            ledger.record(dovetail_cluster::Fact::WorkloadLost { job });
        }
    }

    pub(super) fn look_at_all_on(&mut self, node: &str, ledger: &mut impl Ledger) {
        let id = self
            .node_names
            .iter()
            .find(|(_, name)| *name == node)
            .map(|(id, _)| *id);
        let here = |g: &&super::Gang| {
            g.members.values().any(|m| m.node.as_deref() == Some(node))
                || g.seats.iter().any(|s| Some(s.node) == id)
        };
        let gangs: Vec<GangKey> = self.gangs.values().filter(here).map(|g| g.key.clone()).collect();
        for key in gangs {
            self.look_at(&key, ledger);
        }
    }
}
