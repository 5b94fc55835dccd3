//! HiveD's configuration as Kubernetes objects: a ClusterTopology, and a VirtualCluster for each virtual cluster.

use dovetail_cells::Fault;
use dovetail_yaml::YamlError;
use serde_json::{Map, Value, json};

use crate::crds::API_VERSION;

/// Fields of a virtual cluster in HiveD's configuration that have a counterpart.
const KNOWN_FIELDS: [&str; 2] = ["virtualCells", "pinnedCells"];
/// Longest name of an object.
const MAX_NAME: usize = 63;

/// Why a configuration of HiveD cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The text is not YAML.
    #[error("{file}: {problem}")]
    Syntax {
        /// The file.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// A ConfigMap holds no configuration.
    #[error("{file}: data: missing a value with a physicalCluster")]
    MissingConfig {
        /// The file.
        file: String,
    },
    /// The text does not have the form of a configuration.
    #[error(transparent)]
    Config(#[from] YamlError),
    /// The cells or virtual clusters contradict each other.
    #[error("{file}: {}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Faults {
        /// The file.
        file: String,
        /// All contradictions.
        faults: Vec<Fault>,
    },
    /// A virtual cluster cannot have its name in Kubernetes.
    #[error(
        "{file}: virtualClusters.{name}: names in Kubernetes must consist of lower-case letters, digits and `-`; rename it here and on \
         its pods"
    )]
    InvalidName {
        /// The file.
        file: String,
        /// The virtual cluster.
        name: String,
    },
    /// A field of a virtual cluster has no counterpart.
    #[error(
        "{file}: virtualClusters.{name}.{field}: unknown field: expected virtualCells or pinnedCells; the limit of one user is \
         userCapGpus"
    )]
    UnknownField {
        /// The file.
        file: String,
        /// The virtual cluster.
        name: String,
        /// The field.
        field: String,
    },
}

/// Converts a configuration, or a ConfigMap that holds one. `file` is its name in errors, `topology` the name of the
/// ClusterTopology. All errors are found before anything is returned.
///
/// # Errors
/// Names the file and the path of the key.
pub fn convert_hived(text: &str, file: &str, topology: &str) -> Result<Vec<Value>, ConvertError> {
    let (config, object) = find_config(text, file)?;
    if let Err(faults) = dovetail_hived::parse_config(&config, file)?.compile() {
        let file = file.to_owned();
        return Err(ConvertError::Faults { file, faults });
    }
    let mut documents = vec![json!({
        "apiVersion": API_VERSION, "kind": "ClusterTopology", "metadata": {"name": topology},
        "spec": object.get("physicalCluster").cloned().unwrap_or_else(|| Value::Object(Map::new())),
    })];
    let clusters = object.get("virtualClusters").and_then(Value::as_object);
    for (name, owned) in clusters.into_iter().flatten() {
        check_virtual_cluster(file, name, owned)?;
        documents.push(json!({
            "apiVersion": API_VERSION, "kind": "VirtualCluster", "metadata": {"name": name}, "spec": owned,
        }));
    }
    Ok(documents)
}

/// Returns the configuration as text and as a value; a ConfigMap is unwrapped.
fn find_config(text: &str, file: &str) -> Result<(String, Value), ConvertError> {
    let parse = |text: &str| -> Result<Value, ConvertError> {
        serde_saphyr::from_str(text).map_err(|e| ConvertError::Syntax {
            file: file.to_owned(),
            problem: e.to_string().lines().next().unwrap_or_default().to_owned(),
        })
    };
    let object = parse(text)?;
    if object.get("kind").and_then(Value::as_str) != Some("ConfigMap") {
        return Ok((text.to_owned(), object));
    }
    let data = object.get("data").and_then(Value::as_object);
    let mut values = data.into_iter().flatten().filter_map(|(_, value)| value.as_str());
    let inner = values.find(|text| text.contains("physicalCluster"));
    let inner = inner.ok_or_else(|| ConvertError::MissingConfig {
        file: file.to_owned(),
    })?;
    Ok((inner.to_owned(), parse(inner)?))
}

fn check_virtual_cluster(file: &str, name: &str, owned: &Value) -> Result<(), ConvertError> {
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let (file, name) = (file.to_owned(), name.to_owned());
    if name.is_empty()
        || name.len() > MAX_NAME
        || !name.chars().all(is_valid)
        || name.starts_with('-')
        || name.ends_with('-')
    {
        return Err(ConvertError::InvalidName { file, name });
    }
    let mut fields = owned.as_object().into_iter().flatten().map(|(field, _)| field);
    match fields.find(|field| !KNOWN_FIELDS.contains(&field.as_str())) {
        Some(field) => Err(ConvertError::UnknownField {
            file,
            name,
            field: field.clone(),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: a}
virtualClusters:
  prod:
    virtualCells: [{cellType: NODE, cellNumber: 1}]
";

    #[test]
    fn a_virtual_cluster_becomes_an_object() {
        let documents = convert_hived(CONFIG, "hived.yaml", "lab").unwrap();
        let kinds: Vec<&str> = documents.iter().filter_map(|d| d["kind"].as_str()).collect();
        assert_eq!(kinds, ["ClusterTopology", "VirtualCluster"]);
        assert_eq!(documents[0]["metadata"]["name"], "lab");
        assert_eq!(documents[1]["spec"]["virtualCells"][0]["cellNumber"], 1);
    }

    #[test]
    fn errors_name_the_key() {
        let error = |text: &str| convert_hived(text, "hived.yaml", "lab").unwrap_err().to_string();
        assert!(
            error(&CONFIG.replace("prod", "Prod")).starts_with("hived.yaml: virtualClusters.Prod: names")
        );
        let limited = CONFIG.replace("  prod:\n", "  prod:\n    leafCellsPerUser: 1\n");
        assert!(error(&limited).contains("virtualClusters.prod.leafCellsPerUser: unknown field"));
        assert!(error("kind: ConfigMap").contains("missing a value with a physicalCluster"));
    }
}
