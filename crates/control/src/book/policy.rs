//! A policy from its words.

use dovetail_engine::Policy;
use dovetail_policies::presets::{self, Overrides};

use crate::fact::PolicyText;

/// Builds it. Where nothing else is said everybody is let in: nodes may still join, and a job that could never fit is
/// refused when it is sent, by the nodes there are.
pub(super) fn build(text: &PolicyText) -> Result<Policy, String> {
    let mut overrides = Overrides {
        admission: Some("accept-all".to_owned()),
        ..Overrides::default()
    };
    for (kind, part) in &text.parts {
        let place = match kind.as_str() {
            "admission" => &mut overrides.admission,
            "order" => &mut overrides.order,
            "discipline" => &mut overrides.discipline,
            "sizing" => &mut overrides.sizing,
            "grouping" => &mut overrides.grouping,
            "placement" => &mut overrides.placement,
            "tenancy" => &mut overrides.tenancy,
            _ => {
                return Err(format!(
                    "{kind:?} is no part of a policy; they are admission, order, discipline, sizing, grouping, \
                     placement and tenancy"
                ));
            }
        };
        *place = Some(part.clone());
    }
    // A quota is by the names of tenants, which the engine does not know: it would give everybody the default.
    if let Some(tenancy) = overrides.tenancy.as_ref().filter(|t| *t != "none") {
        return Err(format!(
            "tenancy {tenancy:?}: a live cluster has only \"none\" so far; every tenant may use every GPU"
        ));
    }
    let (policy, _) = presets::build(&text.policy, &overrides).map_err(|e| e.to_string())?;
    Ok(policy)
}
