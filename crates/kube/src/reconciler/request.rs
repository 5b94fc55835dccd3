//! What the pods of a gang request together.

use std::collections::BTreeMap;

use dovetail_cluster::{DEFAULT_VIRTUAL_CLUSTER, GangRequest, JobRequest, PodSet};
use dovetail_model::NodeConstraintId;

use super::error::GangError;
use super::gang::{Gang, Member};
use super::{ClusterTransaction, Reconciler};
use crate::identity::GangKey;
use crate::pod_resources::PodResources;

/// Returns the request of a gang that starts with these pods, limited to the nodes that may take them.
pub(super) fn constrained_request(
    r: &mut Reconciler,
    key: &GangKey,
    members: &[Member],
    tx: &mut impl ClusterTransaction,
) -> Result<GangRequest, GangError> {
    let gang = &r.gangs[key];
    let parent = gang.parent.as_ref().and_then(|parent| r.gangs.get(parent));
    let avoided = parent.unwrap_or(gang).avoided.clone();
    let constraint = r
        .constraints
        .with_nodes(members, &avoided, (&r.nodes, &r.gangs), tx)?;
    gang_request(&r.gangs[key], members, Some(constraint), tx)
}

/// Returns the request of a gang that starts with these pods.
pub(super) fn gang_request(
    gang: &Gang,
    members: &[Member],
    constraint: Option<NodeConstraintId>,
    tx: &impl ClusterTransaction,
) -> Result<GangRequest, GangError> {
    let identity = &members.first().ok_or(GangError::NoPods)?.identity;
    if gang.parent.is_some() && identity.resources.gpus == 0 {
        return Err(GangError::ElasticPodWithoutGpu);
    }
    let namespace = &gang.key.namespace;
    let of_namespace = || {
        // A virtual cluster with the name of the namespace is its default.
        let names = tx.state().virtual_clusters().names();
        names.contains(namespace).then(|| namespace.clone())
    };
    let virtual_cluster = identity.virtual_cluster.clone().or_else(of_namespace);
    let request = GangRequest {
        name: gang.job_name(identity),
        user: identity.user.clone(),
        virtual_cluster: virtual_cluster.unwrap_or_else(|| DEFAULT_VIRTUAL_CLUSTER.to_owned()),
        priority: identity.priority,
        gpu_type: identity.gpu_type.clone(),
        behaviour: identity.behaviour.clone(),
        constraint,
        is_elastic: gang.parent.is_some(),
        pods: pod_sets(members.iter().map(|m| m.identity.resources)),
    };
    job(&request)?;
    Ok(request)
}

/// Returns the job of a gang.
pub(super) fn job(request: &GangRequest) -> Result<JobRequest, GangError> {
    let job = request.job();
    job.map_err(|error| GangError::Resources(error.to_string()))
}

/// Returns one set for each different request for resources, the largest first.
pub(super) fn pod_sets(pods: impl Iterator<Item = PodResources>) -> Vec<PodSet> {
    let mut counts: BTreeMap<PodResources, u32> = BTreeMap::new();
    for resources in pods {
        *counts.entry(resources).or_insert(0) += 1;
    }
    let set = |(resources, pods): (PodResources, u32)| PodSet {
        pods,
        gpus: resources.gpus,
        cpu_milli: resources.cpu_milli,
        memory_mib: resources.memory_mib,
    };
    counts.into_iter().rev().map(set).collect()
}
