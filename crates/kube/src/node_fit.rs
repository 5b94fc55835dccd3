//! Checks whether a pod may run on a node: selector, required affinity and taints.

use std::collections::BTreeMap;

use dovetail_kubeapi::{NodeSelectorTerm, PodSpec, Requirement, Taint, Toleration};

/// What a pod requires of its node. Pods of one gang usually require the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeRequirements {
    selector: BTreeMap<String, String>,
    terms: Option<Vec<NodeSelectorTerm>>,
    tolerations: Vec<Toleration>,
}

impl NodeRequirements {
    /// Returns the requirements of a pod.
    pub fn of(spec: &PodSpec) -> Self {
        let required = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
        let required = required.and_then(|n| n.required_during_scheduling_ignored_during_execution.as_ref());
        Self {
            selector: spec.node_selector.clone(),
            terms: required.map(|r| r.node_selector_terms.clone()),
            tolerations: spec.tolerations.clone(),
        }
    }

    /// Returns why the pod may not run on a node with this name, these labels and these taints; `None` if it may.
    pub fn mismatch(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
        taints: &[Taint],
    ) -> Option<String> {
        if let Some((key, value)) = self
            .selector
            .iter()
            .find(|(key, value)| labels.get(*key) != Some(*value))
        {
            return Some(format!("nodeSelector {key}={value}"));
        }
        if let Some(terms) = &self.terms
            && !terms.iter().any(|term| matches_term(term, name, labels))
        {
            return Some("required node affinity".to_owned());
        }
        let repels = |taint: &&Taint| taint.effect != "PreferNoSchedule" && !self.tolerates(taint);
        let taint = taints.iter().find(repels)?;
        Some(format!("taint {}:{}", taint.key, taint.effect))
    }

    fn tolerates(&self, taint: &Taint) -> bool {
        self.tolerations.iter().any(|t| {
            let effect = t.effect.is_empty() || t.effect == taint.effect;
            let key = t.key == taint.key || (t.key.is_empty() && t.operator == "Exists");
            let value = t.operator == "Exists" || t.value == taint.value;
            effect && key && value
        })
    }
}

/// Checks whether a node matches a selector term. A term without conditions matches no node.
fn matches_term(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let has_conditions = !(term.match_expressions.is_empty() && term.match_fields.is_empty());
    let label = |r: &Requirement| meets(r, labels.get(&r.key).map(String::as_str));
    let field = |r: &Requirement| meets(r, (r.key == "metadata.name").then_some(name));
    has_conditions && term.match_expressions.iter().all(label) && term.match_fields.iter().all(field)
}

/// Checks whether a label value meets a requirement.
fn meets(requirement: &Requirement, value: Option<&str>) -> bool {
    let values = &requirement.values;
    let is_listed = value.is_some_and(|value| values.iter().any(|v| v == value));
    let number = |text: Option<&str>| text.and_then(|t| t.parse::<i64>().ok());
    let bound = number(values.first().map(String::as_str));
    match requirement.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => matches!((number(value), bound), (Some(value), Some(bound)) if value > bound),
        "Lt" => matches!((number(value), bound), (Some(value), Some(bound)) if value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mismatch(
        spec: serde_json::Value,
        labels: &[(&str, &str)],
        taint: Option<(&str, &str)>,
    ) -> Option<String> {
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        let taints: Vec<Taint> = taint
            .map(|(key, effect)| Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                value: String::new(),
            })
            .into_iter()
            .collect();
        NodeRequirements::of(&spec).mismatch("n1", &labels, &taints)
    }

    #[test]
    fn selectors_affinity_and_taints_limit_the_nodes_of_a_pod() {
        let plain = json!({});
        assert_eq!(mismatch(plain.clone(), &[], None), None);
        assert_eq!(
            mismatch(plain.clone(), &[], Some(("x", "NoSchedule"))).as_deref(),
            Some("taint x:NoSchedule")
        );
        assert_eq!(mismatch(plain, &[], Some(("x", "PreferNoSchedule"))), None);
        let tolerant = json!({"tolerations": [{"key": "x", "operator": "Exists"}]});
        assert_eq!(mismatch(tolerant, &[], Some(("x", "NoSchedule"))), None);
        let selects = json!({"nodeSelector": {"zone": "a"}});
        assert_eq!(mismatch(selects.clone(), &[("zone", "a")], None), None);
        assert_eq!(
            mismatch(selects, &[("zone", "b")], None).as_deref(),
            Some("nodeSelector zone=a")
        );
        let term = |op: &str, values: serde_json::Value| {
            json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "k", "operator": op, "values": values}]}]}}}})
        };
        assert_eq!(mismatch(term("In", json!(["1", "2"])), &[("k", "2")], None), None);
        assert!(mismatch(term("NotIn", json!(["2"])), &[("k", "2")], None).is_some());
        assert!(mismatch(term("Gt", json!(["2"])), &[("k", "2")], None).is_some());
        assert_eq!(mismatch(term("Lt", json!(["3"])), &[("k", "2")], None), None);
        assert!(mismatch(term("Exists", json!(null)), &[], None).is_some());
        let named = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}});
        assert_eq!(mismatch(named, &[], None), None);
    }
}
