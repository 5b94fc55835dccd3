//! Builds the policy of a live cluster from its text, the virtual clusters and the nodes.

use dovetail_engine::{Capabilities, Policy};
use dovetail_model::{ClusterSpec, TenantId};
use dovetail_policies::order::PerTenant;
use dovetail_policies::tenancy::{CellMap, QuotaShare, QuotaShares, SharedCells};
use dovetail_policies::{Kind, Overrides, build as build_policy, check_runtime, reclaiming_discipline};

use super::error::PolicyTextError;
use super::names::Names;
use super::nodes::NodeTable;
use crate::fact::PolicyText;
use crate::virtual_clusters::{DEFAULT_VIRTUAL_CLUSTER, GuaranteeMode, VirtualClusters};

/// What a policy is built for.
#[derive(Clone, Copy)]
pub(super) struct PolicyContext<'a> {
    pub(super) virtual_clusters: &'a VirtualClusters,
    pub(super) names: &'a Names,
    pub(super) nodes: &'a NodeTable,
    pub(super) runtime: &'a Capabilities,
}

/// Builds a policy. By default it admits all jobs: nodes may still join, and a job that could never fit on the nodes there
/// are is refused when it is submitted. A policy that needs a mechanism that the runtime does not have is refused.
pub(super) fn build(text: &PolicyText, context: PolicyContext<'_>) -> Result<Policy, PolicyTextError> {
    let mut overrides = Overrides {
        admission: Some("accept-all".to_owned()),
        ..Overrides::default()
    };
    for (kind, part) in &text.parts {
        let Some(known) = Kind::ALL.into_iter().find(|k| k.name() == kind) else {
            return Err(PolicyTextError::UnknownPart(kind.clone()));
        };
        *overrides.part_mut(known) = Some(part.clone());
    }
    if let Some(tenancy) = overrides.tenancy.as_ref().filter(|t| *t != "none") {
        return Err(PolicyTextError::Tenancy(tenancy.clone()));
    }
    overrides.tenants = context.names.tenants.clone();
    // A guarantee holds only where borrowers can be preempted.
    if context.virtual_clusters.mode != GuaranteeMode::Open && overrides.discipline.is_none() {
        overrides.discipline = reclaiming_discipline(&text.policy)?.map(str::to_owned);
    }
    match context.virtual_clusters.mode {
        GuaranteeMode::Open => {}
        GuaranteeMode::Quota => {
            overrides.tenancy = Some(format!("quota:{}", shares(context.virtual_clusters)));
        }
        GuaranteeMode::Cells => {
            overrides.cells = Some(cells(context)?);
            overrides.tenancy = Some("cells:live".to_owned());
        }
    }
    let (mut policy, _) = build_policy(&text.policy, &overrides)?;
    let orders = tenant_orders(context);
    if !orders.is_empty() {
        policy.order = Box::new(PerTenant::new(policy.order, &orders)?);
    }
    check_runtime(&policy, context.runtime)?;
    Ok(policy)
}

/// Returns the tenants with an order of their own.
fn tenant_orders(context: PolicyContext<'_>) -> Vec<(TenantId, String)> {
    let tenants = context.names.tenants.iter().enumerate();
    let own = tenants.filter_map(|(i, name)| {
        let order = context.virtual_clusters.named.get(name)?.order.clone()?;
        Some((TenantId(u32::try_from(i).ok()?), order))
    });
    own.collect()
}

fn shares(virtual_clusters: &VirtualClusters) -> QuotaShares {
    let mut shares = QuotaShares::default();
    for (name, cluster) in &virtual_clusters.named {
        let share = QuotaShare {
            guaranteed: cluster.guaranteed_gpus,
            borrowed: cluster.most_borrowed.unwrap_or(u32::MAX),
        };
        match name.as_str() {
            // In the text of a quota this name stands for all other tenants.
            DEFAULT_VIRTUAL_CLUSTER => shares.default = Some(share),
            _ => drop(shares.named.insert(name.clone(), share)),
        }
    }
    shares.default.get_or_insert(QuotaShare {
        guaranteed: 0,
        borrowed: u32::MAX,
    });
    shares
}

/// Returns the cells, with the nodes that are machines of them. Other nodes are not used.
fn cells(context: PolicyContext<'_>) -> Result<SharedCells, PolicyTextError> {
    let config = context.virtual_clusters.cells.as_ref();
    let config = config.ok_or(PolicyTextError::MissingCells)?;
    let layout = config.compile().map_err(PolicyTextError::Cells)?.layout;
    let cluster = ClusterSpec {
        gpu_types: context.names.gpu_types.iter().cloned().collect(),
        nodes: context.nodes.iter().map(|(_, n)| n.spec.clone()).collect(),
        ..ClusterSpec::default()
    };
    let (map, _) = CellMap::of_matching_nodes(layout, &cluster, &context.names.tenants);
    Ok(SharedCells::new(map.with_users(&context.names.users)))
}
