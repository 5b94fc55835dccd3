//! The job request of a gang.

use std::collections::BTreeMap;

use dovetail_cluster::{Cpus, DEFAULT_VIRTUAL_CLUSTER, JobRequest, Retries, Role};
use dovetail_model::{NodeConstraintId, Time};

use super::error::GangError;
use super::gang::{Gang, Member};
use super::{ClusterTransaction, Reconciler};
use crate::identity::GangKey;
use crate::pod_resources::PodResources;

/// A request, and the user who submits it.
pub(super) struct Submission {
    pub(super) user: String,
    pub(super) request: JobRequest,
}

/// Returns the request of a gang that starts with these pods, limited to the nodes that may take them.
pub(super) fn constrained_submission(
    r: &mut Reconciler,
    key: &GangKey,
    members: &[Member],
    tx: &mut impl ClusterTransaction,
) -> Result<Submission, GangError> {
    let gang = &r.gangs[key];
    let parent = gang.parent.as_ref().and_then(|parent| r.gangs.get(parent));
    let avoided = parent.unwrap_or(gang).avoided.clone();
    let constraint = r
        .constraints
        .with_nodes(members, &avoided, (&r.nodes, &r.gangs), tx)?;
    submission(&r.gangs[key], members, Some(constraint), tx)
}

/// Returns the request of a gang that starts with these pods.
pub(super) fn submission(
    gang: &Gang,
    members: &[Member],
    constraint: Option<NodeConstraintId>,
    tx: &impl ClusterTransaction,
) -> Result<Submission, GangError> {
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
    let tenant = identity.virtual_cluster.clone().or_else(of_namespace);
    let mut request = JobRequest {
        name: gang.job_name(identity),
        command: vec!["pods".to_owned()],
        tenant: tenant.unwrap_or_else(|| DEFAULT_VIRTUAL_CLUSTER.to_owned()),
        gpu_type: identity.gpu_type.clone(),
        constraint,
        best_effort: gang.parent.is_some(),
        priority: identity.priority,
        expected: identity.expected_s.map(|s| Time::from_secs(i64::from(s))),
        retries: Retries {
            user: 0,
            platform: 0,
            node: u32::MAX,
        },
        roles: roles(members),
        ..JobRequest::default()
    };
    request
        .size_by_roles()
        .map_err(|error| GangError::Resources(error.to_string()))?;
    request.roles.clear();
    Ok(Submission {
        user: identity.user.clone(),
        request,
    })
}

/// Returns one role for each different request for resources, the largest first.
fn roles(members: &[Member]) -> Vec<Role> {
    let mut counts: BTreeMap<PodResources, u32> = BTreeMap::new();
    for member in members {
        *counts.entry(member.identity.resources).or_insert(0) += 1;
    }
    let role = |(i, (resources, count)): (usize, (PodResources, u32))| Role {
        name: format!("r{i}"),
        instances: count,
        gpus: resources.gpus,
        cpus: Cpus::from_milli(i64::from(resources.cpu_milli)),
        memory_mib: resources.memory_mib,
        command: vec!["pod".to_owned()],
        ..Role::default()
    };
    counts.into_iter().rev().enumerate().map(role).collect()
}
