//! HiveD's configuration, a YAML file, read as it is; see the page on virtual clusters.
//!
//! HiveD ignores keys it does not know, so this reader does too: a file made for OpenPAI works. What it knows has to be
//! right, and every mistake is named by its path.

use std::path::Path;

use dovetail_cells::{CellType, Compiled, Config, Fault, PhysicalCell, Sku, VirtualCells, VirtualCluster};

use crate::error::TraceError;
use crate::yaml::{Entry, YamlError, parse as parse_yaml};

/// The deepest tree of cells.
const MAX_DEPTH: usize = 16;
/// The most cells of a kind.
const MAX_NUMBER: u64 = 1 << 22;

/// A HiveD configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HivedError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] TraceError),
    /// It is not YAML, or not of the right shape.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// It has the right shape, but what it says is wrong.
    #[error("{}", .faults.iter().map(|f| format!("{file}: {f}")).collect::<Vec<_>>().join("\n"))]
    Faults {
        /// The file.
        file: String,
        /// All that is wrong.
        faults: Vec<Fault>,
    },
}

/// Reads a file and compiles it.
///
/// # Errors
/// What is wrong, each with file and path.
pub fn read_hived(path: &Path) -> Result<(Config, Compiled), HivedError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|reason| TraceError::Open {
        file: file.clone(),
        reason,
    })?;
    let config = parse_hived(&text, &file)?;
    let compiled = config
        .compile()
        .map_err(|faults| HivedError::Faults { file, faults })?;
    Ok((config, compiled))
}

/// The configuration in a text; `file` is what errors call it.
///
/// # Errors
/// What is wrong with its shape. Whether it makes sense is for [`Config::compile`] to say.
pub fn parse_hived(text: &str, file: &str) -> Result<Config, YamlError> {
    let value = parse_yaml(text, file)?;
    read_config(&Entry::top(file, &value))
}

pub(crate) fn read_config(top: &Entry<'_>) -> Result<Config, YamlError> {
    let mut config = Config::default();
    let Some(physical) = top.get("physicalCluster")? else {
        return Err(top.wrong("there is no physicalCluster; expected cellTypes and physicalCells in it"));
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

/// The keys and values of a map; none if it is not there or empty.
fn members<'a>(entry: Option<Entry<'a>>) -> Result<Vec<(&'a str, Entry<'a>)>, YamlError> {
    match entry.filter(|e| !e.is_null()) {
        Some(entry) => entry.all_entries(),
        None => Ok(Vec::new()),
    }
}

/// The elements of a list; none if it is not there or empty.
fn items<'a>(entry: Option<Entry<'a>>, expected: &str) -> Result<Vec<Entry<'a>>, YamlError> {
    match entry.filter(|e| !e.is_null()) {
        Some(entry) => entry.list().ok_or_else(|| entry.expected(expected)),
        None => Ok(Vec::new()),
    }
}

fn required<'a>(entry: &Entry<'a>, key: &str, what: &str) -> Result<Entry<'a>, YamlError> {
    entry
        .get(key)?
        .filter(|e| !e.is_null())
        .ok_or_else(|| entry.wrong(format!("there is no {key}; expected {what}")))
}

fn cell_type(entry: &Entry<'_>) -> Result<CellType, YamlError> {
    let is_node = match entry.get("isNodeLevel")?.filter(|e| !e.is_null()) {
        Some(value) => value.flag()?,
        None => false,
    };
    Ok(CellType {
        child: required(entry, "childCellType", "the type of its children")?.text()?,
        children: required(entry, "childCellNumber", "how many children it has")?.whole(1, MAX_NUMBER)?
            as u32,
        is_node,
    })
}

fn sku(entry: &Entry<'_>) -> Result<Sku, YamlError> {
    let mut sku = Sku::default();
    if let Some(gpu) = entry.get("gpu")?.filter(|e| !e.is_null()) {
        sku.gpu = gpu.whole(0, 1024)? as u32;
    }
    if let Some(cpu) = entry.get("cpu")?.filter(|e| !e.is_null()) {
        sku.cpu_milli = (cpu.amount(0.0, 4e6)? * 1e3).round() as u64;
    }
    if let Some(memory) = entry.get("memory")?.filter(|e| !e.is_null()) {
        let text = memory.text()?;
        sku.memory_mib = quantity_mib(&text)
            .ok_or_else(|| memory.expected("an amount of memory such as 8192Mi or 64Gi"))?;
    }
    Ok(sku)
}

/// A Kubernetes quantity in MiB, rounded down.
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
        entry
            .get(key)?
            .filter(|e| !e.is_null())
            .map(|e| e.text())
            .transpose()
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
            path: required(&cells, "cellType", "the way to a type, such as RACK.NODE")?.text()?,
            number: required(&cells, "cellNumber", "how many of them")?.whole(0, MAX_NUMBER)? as u32,
        });
    }
    for pin in items(entry.get("pinnedCells")?, "a list of pinnedCellId")? {
        vc.pinned
            .push(required(&pin, "pinnedCellId", "the name of a pinned cell")?.text()?);
    }
    if let Some(limit) = entry.get("leafCellsPerUser")?.filter(|e| !e.is_null()) {
        vc.leaves_per_user = Some(limit.whole(0, MAX_NUMBER)? as u32);
    }
    for (user, limit) in members(entry.get("userLimits")?)? {
        vc.user_limits
            .insert(user.to_owned(), limit.whole(0, MAX_NUMBER)? as u32);
    }
    Ok(vc)
}
