//! A policy from its words, for the virtual clusters and the nodes there are.

use dovetail_engine::Policy;
use dovetail_model::ids::IdVec;
use dovetail_model::{ClusterSpec, NodeId, TenantId};
use dovetail_policies::order::PerTenant;
use dovetail_policies::tenancy::{CellMap, QuotaShare, QuotaShares, SharedCells};
use dovetail_policies::{Kind, Overrides, build as build_policy, reclaiming_discipline};

use super::{Names, NodeRecord};
use crate::clusters::{GuaranteeMode, VirtualClusters};
use crate::fact::PolicyText;

/// What a policy is built for.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) clusters: &'a VirtualClusters,
    pub(super) names: &'a Names,
    pub(super) nodes: &'a IdVec<NodeId, NodeRecord>,
}

/// Builds it. Where nothing else is said everybody is let in: nodes may still join, and a job that could never fit is
/// refused when it is sent, by the nodes there are.
pub(super) fn build(text: &PolicyText, ground: Ground<'_>) -> Result<Policy, String> {
    let mut overrides = Overrides {
        admission: Some("accept-all".to_owned()),
        ..Overrides::default()
    };
    for (kind, part) in &text.parts {
        let Some(known) = Kind::ALL.into_iter().find(|k| k.name() == kind) else {
            return Err(format!(
                "{kind:?} is no part of a policy; they are admission, order, discipline, sizing, grouping, \
                 placement and tenancy"
            ));
        };
        *overrides.part_mut(known) = Some(part.clone());
    }
    if let Some(tenancy) = overrides.tenancy.as_ref().filter(|t| *t != "none") {
        return Err(format!(
            "tenancy {tenancy:?}: on a live cluster it follows from the virtual clusters; see `dovetail vc`"
        ));
    }
    overrides.tenants = ground.names.tenants.clone();
    // A promise is kept only where whoever borrowed can be sent away.
    if ground.clusters.mode != GuaranteeMode::Open && overrides.discipline.is_none() {
        let discipline = reclaiming_discipline(&text.policy).map_err(|e| e.to_string())?;
        overrides.discipline = discipline.map(str::to_owned);
    }
    match ground.clusters.mode {
        GuaranteeMode::Open => {}
        GuaranteeMode::Quota => overrides.tenancy = Some(format!("quota:{}", shares(ground.clusters))),
        GuaranteeMode::Cells => {
            overrides.cells = Some(cells(ground)?);
            overrides.tenancy = Some("cells:live".to_owned());
        }
    }
    let (mut policy, _) = build_policy(&text.policy, &overrides).map_err(|e| e.to_string())?;
    let own = orders(ground);
    if !own.is_empty() {
        policy.order = Box::new(PerTenant::new(policy.order, &own).map_err(|e| e.to_string())?);
    }
    Ok(policy)
}

/// Tenants that have an order of their own.
fn orders(ground: Ground<'_>) -> Vec<(TenantId, String)> {
    let tenants = ground.names.tenants.iter().enumerate();
    let own = tenants.filter_map(|(i, name)| {
        let order = ground.clusters.named.get(name)?.order.clone()?;
        Some((TenantId(u32::try_from(i).ok()?), order))
    });
    own.collect()
}

fn shares(clusters: &VirtualClusters) -> QuotaShares {
    let mut shares = QuotaShares::default();
    for (name, cluster) in &clusters.named {
        let share = QuotaShare {
            guaranteed: cluster.guaranteed_gpus,
            borrowed: cluster.most_borrowed.unwrap_or(u32::MAX),
        };
        match name.as_str() {
            // In the words of a quota it stands for every other tenant, and there is none.
            crate::DEFAULT_VIRTUAL_CLUSTER => shares.default = Some(share),
            _ => drop(shares.named.insert(name.clone(), share)),
        }
    }
    shares.default.get_or_insert(QuotaShare {
        guaranteed: 0,
        borrowed: u32::MAX,
    });
    shares
}

/// The cells, with those nodes that are machines of them. Others are not used.
fn cells(ground: Ground<'_>) -> Result<SharedCells, String> {
    let config = ground.clusters.cells.as_ref();
    let compiled = config.ok_or("cells: are missing")?.compile();
    let layout = compiled
        .map_err(|faults| {
            faults
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; ")
        })?
        .layout;
    let cluster = ClusterSpec {
        gpu_types: ground.names.gpu_types.iter().cloned().collect(),
        nodes: ground.nodes.values().map(|n| n.spec.clone()).collect(),
        ..ClusterSpec::default()
    };
    let (map, _) = CellMap::of_matching_nodes(layout, &cluster, &ground.names.tenants);
    Ok(SharedCells::new(map.with_users(&ground.names.users)))
}
