//! HiveD's configuration, a YAML file; `docs/virtual-clusters.md` describes it.
//!
//! Like HiveD, the parser ignores keys it does not know, so a file written for OpenPAI works. Errors about known keys
//! name the path of the key.

use std::path::Path;

use dovetail_cells::{
    CellType, CompiledConfig, Config, Fault, PhysicalCell, Sku, VirtualCells, VirtualCluster,
};
use dovetail_yaml::{Entry, YamlError, parse};

/// Maximum depth of a tree of cells.
const MAX_DEPTH: usize = 16;
/// Maximum number of cells in one key.
const MAX_NUMBER: u64 = 1 << 22;

/// A HiveD configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{file}: cannot open: {reason}")]
    Open {
        /// The file.
        file: String,
        /// The error of the operating system.
        reason: std::io::Error,
    },
    /// The text is not YAML, or does not have the form of a configuration.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// The cells or virtual clusters contradict each other.
    #[error("{}", .faults.iter().map(|f| format!("{file}: {f}")).collect::<Vec<_>>().join("\n"))]
    Faults {
        /// The file.
        file: String,
        /// All contradictions.
        faults: Vec<Fault>,
    },
}

/// Reads and compiles a configuration file.
///
/// # Errors
/// All errors of the file, each with its path.
pub fn read_config(path: &Path) -> Result<(Config, CompiledConfig), ConfigError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|reason| ConfigError::Open {
        file: file.clone(),
        reason,
    })?;
    let config = parse_config(&text, &file)?;
    let compiled = config
        .compile()
        .map_err(|faults| ConfigError::Faults { file, faults })?;
    Ok((config, compiled))
}

/// Parses a configuration; `file` is its name in errors.
///
/// # Errors
/// When the text does not have the form of a configuration. [`Config::compile`] checks whether it is consistent.
pub fn parse_config(text: &str, file: &str) -> Result<Config, YamlError> {
    let value = parse(text, file)?;
    config_of(&Entry::top(file, &value))
}

/// Reads a configuration from YAML that is parsed already.
///
/// # Errors
/// As [`parse_config`].
pub fn config_of(top: &Entry<'_>) -> Result<Config, YamlError> {
    let mut config = Config::default();
    let Some(physical) = top.get("physicalCluster")? else {
        return Err(top.wrong("physicalCluster is missing; expected cellTypes and physicalCells in it"));
    };
    for (name, entry) in members(physical.get("skuTypes")?)? {
        config.sku_types.insert(name.to_owned(), sku(&entry)?);
    }
    for (name, entry) in members(physical.get("cellTypes")?)? {
        config.cell_types.insert(name.to_owned(), cell_type(&entry)?);
    }
    for cell in items(physical.get("physicalCells")?, "a list of cells")? {
        config.physical_cells.push(physical_cell(&cell, 0)?);
    }
    for (name, entry) in members(top.get("virtualClusters")?)? {
        config
            .virtual_clusters
            .insert(name.to_owned(), virtual_cluster(&entry)?);
    }
    Ok(config)
}

/// Returns the keys and values of a mapping that may be missing or null.
fn members<'a>(entry: Option<Entry<'a>>) -> Result<Vec<(&'a str, Entry<'a>)>, YamlError> {
    match entry.filter(|e| !e.is_null()) {
        Some(entry) => entry.all_entries(),
        None => Ok(Vec::new()),
    }
}

/// Returns the elements of a list that may be missing or null.
fn items<'a>(entry: Option<Entry<'a>>, expected: &str) -> Result<Vec<Entry<'a>>, YamlError> {
    match entry.filter(|e| !e.is_null()) {
        Some(entry) => entry.list().ok_or_else(|| entry.expected(expected)),
        None => Ok(Vec::new()),
    }
}

fn required<'a>(entry: &Entry<'a>, key: &str, what: &str) -> Result<Entry<'a>, YamlError> {
    optional(entry, key)?.ok_or_else(|| entry.wrong(format!("{key} is missing; expected {what}")))
}

/// Returns the value of a key, `None` if it is missing or null.
fn optional<'a>(entry: &Entry<'a>, key: &str) -> Result<Option<Entry<'a>>, YamlError> {
    Ok(entry.get(key)?.filter(|e| !e.is_null()))
}

fn cell_type(entry: &Entry<'_>) -> Result<CellType, YamlError> {
    let is_node = match optional(entry, "isNodeLevel")? {
        Some(value) => value.flag()?,
        None => false,
    };
    Ok(CellType {
        child: required(entry, "childCellType", "the type of its children")?.text()?,
        children: required(entry, "childCellNumber", "the number of its children")?.whole(1, MAX_NUMBER)?
            as u32,
        is_node,
    })
}

fn sku(entry: &Entry<'_>) -> Result<Sku, YamlError> {
    let mut sku = Sku::default();
    if let Some(gpu) = optional(entry, "gpu")? {
        sku.gpu = gpu.whole(0, 1024)? as u32;
    }
    if let Some(cpu) = optional(entry, "cpu")? {
        sku.cpu_milli = (cpu.amount(0.0, 4e6)? * 1e3).round() as u64;
    }
    if let Some(memory) = optional(entry, "memory")? {
        let text = memory.text()?;
        sku.memory_mib = quantity_mib(&text)
            .ok_or_else(|| memory.expected("an amount of memory such as 8192Mi or 64Gi"))?;
    }
    Ok(sku)
}

/// Converts a Kubernetes quantity to MiB, rounded down.
fn quantity_mib(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match &text[digits..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    Some(number.checked_mul(unit)? >> 20)
}

fn physical_cell(entry: &Entry<'_>, depth: usize) -> Result<PhysicalCell, YamlError> {
    if depth > MAX_DEPTH {
        return Err(entry.wrong(format!("cells are nested deeper than {MAX_DEPTH} levels")));
    }
    let text = |key: &str| -> Result<Option<String>, YamlError> {
        optional(entry, key)?.map(|e| e.text()).transpose()
    };
    let children = items(entry.get("cellChildren")?, "a list of cells")?;
    Ok(PhysicalCell {
        cell_type: text("cellType")?,
        address: text("cellAddress")?,
        pinned: text("pinnedCellId")?,
        children: children
            .iter()
            .map(|c| physical_cell(c, depth + 1))
            .collect::<Result<_, _>>()?,
    })
}

fn virtual_cluster(entry: &Entry<'_>) -> Result<VirtualCluster, YamlError> {
    let mut vc = VirtualCluster::default();
    if entry.is_null() {
        return Ok(vc);
    }
    for cells in items(entry.get("virtualCells")?, "a list of cellType and cellNumber")? {
        vc.cells.push(VirtualCells {
            path: required(&cells, "cellType", "a path of cell types such as RACK.NODE")?.text()?,
            number: required(&cells, "cellNumber", "the number of cells")?.whole(0, MAX_NUMBER)? as u32,
        });
    }
    for pin in items(entry.get("pinnedCells")?, "a list of pinnedCellId")? {
        vc.pinned
            .push(required(&pin, "pinnedCellId", "the name of a pinned cell")?.text()?);
    }
    if let Some(limit) = optional(entry, "leafCellsPerUser")? {
        vc.leaves_per_user = Some(limit.whole(0, MAX_NUMBER)? as u32);
    }
    for (user, limit) in members(entry.get("userLimits")?)? {
        vc.user_limits
            .insert(user.to_owned(), limit.whole(0, MAX_NUMBER)? as u32);
    }
    Ok(vc)
}
