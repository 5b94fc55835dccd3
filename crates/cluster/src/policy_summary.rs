//! Summaries of all policies.

use dovetail_engine::{Capabilities, NeedSet};
use dovetail_policies::presets::presets;
use dovetail_policies::registry::ORDERS;
use dovetail_policies::{Overrides, build, check_runtime};

/// Summary of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySummary {
    /// Name of the policy.
    pub name: &'static str,
    /// Description in one sentence.
    pub what: &'static str,
    /// Paper or system it comes from.
    pub source: &'static str,
    /// Sort key of the queue, smallest first.
    pub key: &'static str,
    /// Data and mechanisms it needs.
    pub needs: NeedSet,
    /// Why the runtime cannot carry it out; none if it can.
    pub refused: Option<String>,
}

/// Returns the summaries of all policies on a runtime.
pub fn policy_summaries(runtime: &Capabilities) -> Vec<PolicySummary> {
    let summary = |preset: &dovetail_policies::presets::Preset| {
        let built = build(preset.name, &Overrides::default());
        let (needs, refused) = match built {
            Ok((policy, _)) => (policy.needs().union(), check_runtime(&policy, runtime).err()),
            Err(error) => (NeedSet::EMPTY, Some(error)),
        };
        let order = preset.order.split(':').next().unwrap_or_default();
        let order = ORDERS.iter().find(|entry| entry.name == order);
        PolicySummary {
            name: preset.name,
            what: preset.what,
            source: order.map_or("", |o| o.source),
            key: order.map_or("", |o| o.key),
            needs,
            refused: refused.map(|error| error.to_string()),
        }
    };
    presets().iter().map(summary).collect()
}
