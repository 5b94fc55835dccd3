//! Summaries of all policies.

use dovetail_policies::presets::presets;
use dovetail_policies::registry::ORDERS;

/// Summary of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicySummary {
    /// Name of the policy.
    pub name: &'static str,
    /// Description in one sentence.
    pub what: &'static str,
    /// Paper or system it comes from.
    pub source: &'static str,
    /// Sort key of the queue, smallest first.
    pub key: &'static str,
}

/// Returns the summaries of all policies.
pub fn policy_summaries() -> Vec<PolicySummary> {
    let summary = |preset: &dovetail_policies::presets::Preset| {
        let order = preset.order.split(':').next().unwrap_or_default();
        let order = ORDERS.iter().find(|entry| entry.name == order);
        PolicySummary {
            name: preset.name,
            what: preset.what,
            source: order.map_or("", |o| o.source),
            key: order.map_or("", |o| o.key),
        }
    };
    presets().iter().map(summary).collect()
}
