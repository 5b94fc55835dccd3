//! `dovetail kube convert`: HiveD's configuration as Kubernetes objects.

use anyhow::Context;
use dovetail_console::{self as console, Failure, OrFailure};
use serde_json::{Map, Value, json};

use super::args::ConvertArgs;

/// Prints a ClusterTopology and a VirtualCluster for each virtual cluster.
pub(super) fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let path = args.file.display().to_string();
    let text = std::fs::read_to_string(&args.file)
        .with_context(|| path.clone())
        .or_request()?;
    let wrong = |what: String| Failure::request(format!("{path}: {what}"));
    let parse = |text: &str| -> Result<Value, Failure> {
        serde_saphyr::from_str(text)
            .map_err(|e| wrong(e.to_string().lines().next().unwrap_or_default().to_owned()))
    };
    let mut object = parse(&text)?;
    let mut inner = text.clone();
    if object.get("kind").and_then(Value::as_str) == Some("ConfigMap") {
        let data = object.get("data").and_then(Value::as_object);
        let values = data.into_iter().flatten().filter_map(|(_, value)| value.as_str());
        inner = values
            .into_iter()
            .find(|text| text.contains("physicalCluster"))
            .ok_or_else(|| wrong("data: missing a value with a physicalCluster".to_owned()))?
            .to_owned();
        object = parse(&inner)?;
    }
    // All errors in HiveD's configuration are reported before anything is printed.
    let config = dovetail_hived::parse_config(&inner, &path).or_request()?;
    if let Err(faults) = config.compile() {
        let all: Vec<String> = faults.iter().map(ToString::to_string).collect();
        return Err(wrong(all.join("; ")));
    }
    let mut documents = vec![json!({
        "apiVersion": "dovetail.io/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": args.name},
        "spec": object.get("physicalCluster").cloned().unwrap_or_else(|| Value::Object(Map::new())),
    })];
    let clusters = object.get("virtualClusters").and_then(Value::as_object);
    for (name, owns) in clusters.into_iter().flatten() {
        let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty()
            || name.len() > 63
            || !name.chars().all(is_valid)
            || name.starts_with('-')
            || name.ends_with('-')
        {
            return Err(wrong(format!(
                "virtualClusters.{name}: names in Kubernetes must consist of lower-case letters, digits and `-`; rename it here and on \
                 its pods"
            )));
        }
        let known = ["virtualCells", "pinnedCells"];
        if let Some(key) = owns
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
            .find(|k| !known.contains(&k.as_str()))
        {
            return Err(wrong(format!(
                "virtualClusters.{name}.{key}: unknown field: expected virtualCells or pinnedCells; the limit of one user is \
                 userCapGpus"
            )));
        }
        documents.push(json!({
            "apiVersion": "dovetail.io/v1alpha1", "kind": "VirtualCluster", "metadata": {"name": name}, "spec": owns,
        }));
    }
    let mut out = String::new();
    for document in &documents {
        out.push_str("---\n");
        out.push_str(&serde_saphyr::to_string(document).or_work()?);
    }
    console::print(out.trim_end())
}
