//! Whether a pod may be on a node: selectors, required affinity, taints.

use std::collections::BTreeMap;

use dovetail_kubeapi::{NodeSelectorTerm, PodSpec, Requirement, Taint, Toleration};

/// What of a pod decides on which nodes it may be. Pods of one gang usually have the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wants {
    selector: BTreeMap<String, String>,
    terms: Option<Vec<NodeSelectorTerm>>,
    tolerations: Vec<Toleration>,
}

impl Wants {
    /// Of a pod.
    pub fn of(spec: &PodSpec) -> Self {
        let required = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
        let required = required.and_then(|n| n.required_during_scheduling_ignored_during_execution.as_ref());
        Self {
            selector: spec.node_selector.clone(),
            terms: required.map(|r| r.node_selector_terms.clone()),
            tolerations: spec.tolerations.clone(),
        }
    }

    /// Why the pod may not be on a node with this name, these labels and these taints; none if it may.
    pub fn against(&self, name: &str, labels: &BTreeMap<String, String>, taints: &[Taint]) -> Option<String> {
        if let Some((key, value)) = self
            .selector
            .iter()
            .find(|(key, value)| labels.get(*key) != Some(*value))
        {
            return Some(format!("nodeSelector {key}={value}"));
        }
        if let Some(terms) = &self.terms
            && !terms.iter().any(|term| holds(term, name, labels))
        {
            return Some("required node affinity".to_owned());
        }
        let keeps = |taint: &&Taint| taint.effect != "PreferNoSchedule" && !self.tolerates(taint);
        let taint = taints.iter().find(keeps)?;
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

/// A term without conditions holds nowhere.
fn holds(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let any = !(term.match_expressions.is_empty() && term.match_fields.is_empty());
    let label = |r: &Requirement| compare(r, labels.get(&r.key).map(String::as_str));
    let field = |r: &Requirement| compare(r, (r.key == "metadata.name").then_some(name));
    any && term.match_expressions.iter().all(label) && term.match_fields.iter().all(field)
}

fn compare(requirement: &Requirement, value: Option<&str>) -> bool {
    let values = &requirement.values;
    let among = value.is_some_and(|value| values.iter().any(|v| v == value));
    let number = |text: Option<&str>| text.and_then(|t| t.parse::<i64>().ok());
    let bound = number(values.first().map(String::as_str));
    match requirement.operator.as_str() {
        "In" => among,
        "NotIn" => !among,
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

    fn against(
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
        Wants::of(&spec).against("n1", &labels, &taints)
    }

    #[test]
    fn selectors_affinity_and_taints_keep_pods_away() {
        let plain = json!({});
        assert_eq!(against(plain.clone(), &[], None), None);
        assert_eq!(
            against(plain.clone(), &[], Some(("x", "NoSchedule"))).as_deref(),
            Some("taint x:NoSchedule")
        );
        assert_eq!(against(plain, &[], Some(("x", "PreferNoSchedule"))), None);
        let tolerant = json!({"tolerations": [{"key": "x", "operator": "Exists"}]});
        assert_eq!(against(tolerant, &[], Some(("x", "NoSchedule"))), None);
        let selects = json!({"nodeSelector": {"zone": "a"}});
        assert_eq!(against(selects.clone(), &[("zone", "a")], None), None);
        assert_eq!(
            against(selects, &[("zone", "b")], None).as_deref(),
            Some("nodeSelector zone=a")
        );
        let term = |op: &str, values: serde_json::Value| {
            json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "k", "operator": op, "values": values}]}]}}}})
        };
        assert_eq!(against(term("In", json!(["1", "2"])), &[("k", "2")], None), None);
        assert!(against(term("NotIn", json!(["2"])), &[("k", "2")], None).is_some());
        assert!(against(term("Gt", json!(["2"])), &[("k", "2")], None).is_some());
        assert_eq!(against(term("Lt", json!(["3"])), &[("k", "2")], None), None);
        assert!(against(term("Exists", json!(null)), &[], None).is_some());
        let named = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}}});
        assert_eq!(against(named, &[], None), None);
    }
}
