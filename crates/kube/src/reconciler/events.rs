//! Events that the reconciler handles: changes of objects, commands of the cluster state, and results of actions.

use std::collections::BTreeSet;

use dovetail_cluster::{AttemptId, JobId};
use dovetail_kubeapi::{Node, Pod, ResourceClaim, ResourceSlice};
use dovetail_model::{Share, Time};

use super::{
    ClusterTransaction, Reconciler, active, machine, memory, node_events, pods, progress, queued, recreation,
    resize, stopping,
};
use crate::finished::FinishedJob;
use crate::gang_history::GangHistory;
use crate::identity::{GangKey, GangSize, SizeError};
use crate::pod_progress::PodProgress;

impl Reconciler {
    /// Handles a list of all nodes.
    pub fn list_nodes(&mut self, nodes: &[Node], tx: &mut impl ClusterTransaction) {
        for name in self.nodes.missing_from(nodes) {
            node_events::delete_node(self, &name, tx);
        }
        for node in nodes {
            node_events::put_node(self, node, tx);
        }
    }

    /// Handles a new or changed node.
    pub fn put_node(&mut self, node: &Node, tx: &mut impl ClusterTransaction) {
        node_events::put_node(self, node, tx);
    }

    /// Handles the deletion of a node.
    pub fn delete_node(&mut self, name: &str, tx: &mut impl ClusterTransaction) {
        node_events::delete_node(self, name, tx);
    }

    /// Handles a node that was not ready for too long.
    pub fn lose_node(&mut self, name: &str, tx: &mut impl ClusterTransaction) {
        node_events::lose_node(self, name, tx);
    }

    /// Handles a list of all pods. With the first list, running gangs are adopted.
    pub fn list_pods(&mut self, pods: &[Pod], tx: &mut impl ClusterTransaction) {
        pods::list_pods(self, pods, tx);
    }

    /// Handles a new or changed pod.
    pub fn put_pod(&mut self, pod: &Pod, tx: &mut impl ClusterTransaction) {
        pods::put_pod(self, pod, tx);
    }

    /// Handles the deletion of a pod.
    pub fn delete_pod(&mut self, pod: &Pod, tx: &mut impl ClusterTransaction) {
        pods::delete_pod(self, &pod.metadata.uid, tx);
    }

    /// Handles a list of all ResourceSlices.
    pub fn list_slices(&mut self, slices: Vec<ResourceSlice>, tx: &mut impl ClusterTransaction) {
        let nodes = self.devices.set_slices(slices);
        self.put_nodes_again(&nodes, tx);
    }

    /// Handles a new or changed ResourceSlice.
    pub fn put_slice(&mut self, slice: ResourceSlice, tx: &mut impl ClusterTransaction) {
        let nodes = self.devices.put_slice(slice);
        self.put_nodes_again(&nodes, tx);
    }

    /// Handles the deletion of a ResourceSlice.
    pub fn delete_slice(&mut self, name: &str, tx: &mut impl ClusterTransaction) {
        let nodes = self.devices.remove_slice(name);
        self.put_nodes_again(&nodes, tx);
    }

    fn put_nodes_again(&mut self, names: &BTreeSet<String>, tx: &mut impl ClusterTransaction) {
        let nodes: Vec<Node> = names.iter().filter_map(|name| self.nodes.object(name)).collect();
        for node in nodes {
            node_events::put_node(self, &node, tx);
        }
    }

    /// Handles a list of all ResourceClaims.
    pub fn list_claims(&mut self, claims: Vec<ResourceClaim>, tx: &mut impl ClusterTransaction) {
        let pods = self.devices.set_claims(claims);
        self.put_pods_again(&pods, tx);
    }

    /// Handles a new or changed ResourceClaim.
    pub fn put_claim(&mut self, claim: ResourceClaim, tx: &mut impl ClusterTransaction) {
        let pods = self.devices.put_claim(claim);
        self.put_pods_again(&pods, tx);
    }

    /// Handles the deletion of a ResourceClaim.
    pub fn delete_claim(&mut self, claim: &ResourceClaim, tx: &mut impl ClusterTransaction) {
        let pods = self.devices.remove_claim(claim);
        self.put_pods_again(&pods, tx);
    }

    /// Handles a list of all progress reports.
    pub fn list_progress(&mut self, all: &[PodProgress], tx: &mut impl ClusterTransaction) {
        progress::list(self, all, tx);
    }

    /// Handles a new or changed progress report.
    pub fn put_progress(&mut self, one: &PodProgress, tx: &mut impl ClusterTransaction) {
        progress::put(self, one, tx);
    }

    /// Handles the deletion of a progress report.
    pub fn delete_progress(&mut self, one: &PodProgress) {
        progress::remove(self, one);
    }

    fn put_pods_again(&mut self, pods: &[Pod], tx: &mut impl ClusterTransaction) {
        for pod in pods {
            pods::put_pod(self, pod, tx);
        }
    }

    /// Handles jobs that ended before this process started, as their objects show them. They enter the cluster state with
    /// the first list of pods.
    pub fn set_finished(&mut self, jobs: Vec<FinishedJob>) {
        self.finished = jobs.into_iter().map(|job| (job.id, job)).collect();
    }

    /// Handles the histories that earlier leaders wrote. They are known before pods are listed.
    pub fn set_histories(&mut self, histories: Vec<GangHistory>) {
        self.histories = memory::Histories::new(histories);
    }

    /// Handles the command to start an attempt. Commands for several nodes of one attempt are the same.
    pub fn start(&mut self, job: JobId, attempt: AttemptId, tx: &mut impl ClusterTransaction) {
        active::start(self, job, attempt, tx);
    }

    /// Handles the command to stop an attempt.
    pub fn stop(&mut self, job: JobId, attempt: AttemptId, tx: &mut impl ClusterTransaction) {
        stopping::stop(self, job, attempt, tx);
    }

    /// Handles the command to give an attempt other CPU and memory: all of it follows from the state.
    pub fn resize(&mut self, job: JobId, tx: &mut impl ClusterTransaction) {
        resize::resize(self, job, tx);
    }

    /// Handles the answer to a request that changes a pod to this size.
    pub fn resized(
        &mut self,
        uid: &str,
        target: Share,
        result: Result<(), String>,
        tx: &mut impl ClusterTransaction,
    ) {
        resize::finish(self, uid, (target, result), tx);
    }

    /// Handles the number of pods that was looked up for a gang.
    pub fn set_size(
        &mut self,
        key: &GangKey,
        pods: Result<u32, SizeError>,
        tx: &mut impl ClusterTransaction,
    ) {
        let Some(gang) = self.gangs.get_mut(key) else {
            return;
        };
        gang.size_requested = false;
        let min_pods = gang.members.values().find_map(|m| m.identity.min_pods);
        match pods.and_then(|pods| GangSize::new(pods.max(1), min_pods)) {
            Ok(size) => {
                gang.size = Some(size);
                gang.refused = None;
                machine::visit(self, key, tx);
            }
            Err(error) => gang.refused = Some(error.into()),
        }
    }

    /// Handles a binding that failed permanently.
    pub fn bind_failed(&mut self, uid: &str, tx: &mut impl ClusterTransaction) {
        let Some(key) = self.gangs.key_of_pod(uid).cloned() else {
            return;
        };
        let gang = self.gangs.entry(&key);
        if let Some(member) = gang.members.get_mut(uid) {
            member.in_flight = None;
        }
        if gang.members.get(uid).is_none_or(|m| m.node.is_none()) {
            gang.vacate(uid);
        }
        machine::visit(self, &key, tx);
        node_events::return_nodes(self, tx);
    }

    /// Tries again to submit gangs that were refused, after something has changed.
    pub fn retry_refused(&mut self, tx: &mut impl ClusterTransaction) {
        machine::retry_refused(self, tx);
    }

    /// Ends the avoidance of nodes whose time has passed, cancels jobs whose pods have been missing for `missing_timeout`, and
    /// records progress that came too early after other reports.
    pub fn expire(&mut self, now: Time, missing_timeout: Time, tx: &mut impl ClusterTransaction) {
        for gang in self.gangs.iter_mut() {
            gang.avoided.retain(|_, node| node.until > now);
        }
        self.constraints.expire_avoided(now, &self.nodes, tx);
        recreation::expire(self, now, tx);
        resize::expire(self, now, tx);
        queued::cancel_missing(self, now, missing_timeout, tx);
        progress::record_late(self, tx);
    }
}
