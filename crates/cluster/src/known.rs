//! The policies there are.

use dovetail_policies::presets::presets;
use dovetail_policies::registry::ORDERS;

/// A policy by name, and where it is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicySummary {
    /// Its name.
    pub name: &'static str,
    /// One sentence.
    pub what: &'static str,
    /// The paper or the rule it comes from.
    pub source: &'static str,
    /// What the line is sorted by, smaller first.
    pub key: &'static str,
}

/// All of them.
pub fn policy_summaries() -> Vec<PolicySummary> {
    let one = |preset: &dovetail_policies::presets::Preset| {
        let order = preset.order.split(':').next().unwrap_or_default();
        let order = ORDERS.iter().find(|entry| entry.name == order);
        PolicySummary {
            name: preset.name,
            what: preset.what,
            source: order.map_or("", |o| o.source),
            key: order.map_or("", |o| o.key),
        }
    };
    presets().iter().map(one).collect()
}
