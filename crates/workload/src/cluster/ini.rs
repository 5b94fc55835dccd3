//! Synergy's cluster configuration, an `.ini` file.
//!
//! ```ini
//! [CLUSTER]
//! racks = 1                 # the values here are the defaults
//! servers_per_rack = 4
//! gpus_per_server = 8
//! cpus_per_server = 24
//! dram_per_server = 500     # GB
//! sspeed_per_server = 300   # disk, MB/s
//! net_per_server = 40       # network, Gb/s
//! [SCHEDULER]
//! policy = FIFO             # not used by Synergy; flags decide here, and a note names them
//! lease_time = 5            # minutes of a round
//! ```

use dovetail_model::suggest::nearest;
use dovetail_model::{ClusterSpec, NodeSpec, Zone};

use super::{ClusterDescription, ClusterError, MAX_NODE_GPUS, MAX_NODES};
use crate::error::{FieldError, Place, TraceError, shown};

/// Keys of `[CLUSTER]`, their defaults, and their largest accepted values.
const CLUSTER: [(&str, u64, u64); 7] = [
    ("racks", 1, MAX_NODES as u64),
    ("servers_per_rack", 4, MAX_NODES as u64),
    ("gpus_per_server", 8, MAX_NODE_GPUS as u64),
    ("cpus_per_server", 24, 4_000_000),
    ("dram_per_server", 500, 1_000_000_000),
    ("sspeed_per_server", 300, 4_000_000_000),
    ("net_per_server", 40, 4_000_000),
];
const SCHEDULER: [&str; 2] = ["policy", "lease_time"];
/// Policies of Synergy, and the corresponding flags.
const POLICIES: [(&str, &str); 7] = [
    ("FIFO", "fifo-backfill"),
    ("SRTF", "srtf"),
    ("LAS", "las"),
    ("FTF", "ftf"),
    ("DRF", "drf"),
    ("TETRIS", "tetris"),
    ("SRSF", "srsf"),
];
/// Suffixes of a policy's name.
const SUFFIXES: [&str; 4] = ["place", "fair", "tune", "opt"];
/// The longest lease, in minutes: a year.
const MAX_LEASE: u64 = 525_600;

/// One `key = value` with its line.
struct Setting<'a> {
    line: u64,
    section: &'a str,
    key: String,
    value: &'a str,
}

/// Parses an `.ini` text.
pub(super) fn parse(text: &str, file: &str) -> Result<ClusterDescription, ClusterError> {
    let settings = settings(text, file)?;
    let mut figures = CLUSTER.map(|(_, default, _)| default);
    let (mut policy, mut lease) = (None, None);
    for setting in &settings {
        if setting.section == "SCHEDULER" {
            match setting.key.as_str() {
                "policy" => policy = Some(flags_of(setting, file)?),
                _ => lease = Some(whole(setting, file, MAX_LEASE)?),
            }
        } else if let Some(at) = CLUSTER.iter().position(|(key, ..)| *key == setting.key) {
            figures[at] = whole(setting, file, CLUSTER[at].2)?;
        }
    }
    let [racks, servers, gpus, cpus, memory_gb, disk_mbps, network_gbps] = figures;
    if racks * servers > u64::from(MAX_NODES) {
        let what = format!("{racks} racks of {servers} servers are more than {MAX_NODES} nodes");
        return Err(ClusterError::Content {
            file: file.to_owned(),
            what,
        });
    }
    let mut cluster = ClusterSpec::default();
    let gpu_type = cluster.gpu_type("gpu");
    for rack in 0..racks {
        let name = format!("rack-{rack}");
        let zone = cluster.zones.push(Zone { name, parent: None });
        for _ in 0..servers {
            let name = format!("node-{}", cluster.nodes.len());
            cluster.nodes.push(NodeSpec {
                zone,
                gpu_type,
                cpu_milli: (cpus * 1000) as u32,
                memory_mib: memory_gb * 1024,
                disk_mbps: disk_mbps as u32,
                network_mbps: (network_gbps * 1000) as u32,
                ..NodeSpec::plain(name, gpus as u32)
            });
        }
    }
    Ok(ClusterDescription {
        cluster,
        notes: notes(file, policy, lease),
    })
}

/// Returns a note with the flags that correspond to `[SCHEDULER]`.
fn notes(file: &str, policy: Option<(String, String)>, lease: Option<u64>) -> Vec<String> {
    let policy = policy.map(|(found, flags)| (format!("policy {found}"), flags));
    let clock = lease.map(|minutes| {
        (
            format!("lease_time {minutes}"),
            format!("--clock rounds:{minutes}m"),
        )
    });
    let (found, flags): (Vec<_>, Vec<_>) = policy.into_iter().chain(clock).unzip();
    if found.is_empty() {
        return Vec::new();
    }
    let (found, flags) = (found.join(" and "), flags.join(" "));
    vec![format!(
        "{file}: {found} of [SCHEDULER] have no effect, as in Synergy; use the flags {flags}"
    )]
}

/// Parses the lines of the file; each key must be known and unique.
fn settings<'a>(text: &'a str, file: &str) -> Result<Vec<Setting<'a>>, ClusterError> {
    let mut settings: Vec<Setting<'a>> = Vec::new();
    let mut section = "";
    for (line, text) in (1..).zip(text.lines()) {
        let wrong = |what: String| ClusterError::Line {
            file: file.to_owned(),
            line,
            what,
        };
        let text = text.trim();
        if text.is_empty() || text.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = text.strip_prefix('[') {
            section = name
                .strip_suffix(']')
                .filter(|name| ["CLUSTER", "SCHEDULER"].contains(name))
                .ok_or_else(|| {
                    wrong(format!(
                        "found {}, expected [CLUSTER] or [SCHEDULER]",
                        shown(text)
                    ))
                })?;
            continue;
        }
        let Some((key, value)) = text.split_once(['=', ':']) else {
            return Err(wrong(format!("found {}, expected key = value", shown(text))));
        };
        let (key, value) = (key.trim().to_lowercase(), value.trim());
        let known: Vec<&str> = match section {
            "" => {
                return Err(wrong(format!(
                    "found {key:?} before any section, expected [CLUSTER] first"
                )));
            }
            "CLUSTER" => CLUSTER.iter().map(|(key, ..)| *key).collect(),
            _ => SCHEDULER.to_vec(),
        };
        if !known.contains(&key.as_str()) {
            let near = nearest(&key, known.iter().copied());
            let hint = near.first().map(|n| format!(" (did you mean {n}?)"));
            return Err(wrong(format!(
                "unknown key {} of [{section}]{}; expected one of {}",
                shown(&key),
                hint.unwrap_or_default(),
                known.join(", ")
            )));
        }
        if let Some(first) = settings.iter().find(|s| s.key == key) {
            let first = first.line;
            return Err(wrong(format!("duplicate key {key}, first on line {first}")));
        }
        settings.push(Setting {
            line,
            section,
            key,
            value,
        });
    }
    if settings.iter().any(|s| s.section == "CLUSTER") {
        return Ok(settings);
    }
    Err(ClusterError::Content {
        file: file.to_owned(),
        what: "missing section [CLUSTER]: expected at least one key in it, such as servers_per_rack = 4"
            .to_owned(),
    })
}

fn bad(setting: &Setting<'_>, file: &str, expected: String) -> ClusterError {
    let error = FieldError {
        file: file.to_owned(),
        place: Place::Line(setting.line),
        field: setting.key.clone(),
        found: setting.value.to_owned(),
        expected,
    };
    TraceError::Field(Box::new(error)).into()
}

fn whole(setting: &Setting<'_>, file: &str, most: u64) -> Result<u64, ClusterError> {
    let number = setting.value.parse().ok().filter(|n| (1..=most).contains(n));
    number.ok_or_else(|| bad(setting, file, format!("a whole number from 1 to {most}")))
}

/// Returns the policy as written in the file, and the corresponding flags.
fn flags_of(setting: &Setting<'_>, file: &str) -> Result<(String, String), ClusterError> {
    let mut words = setting.value.split('+');
    let name = words.next().unwrap_or_default();
    let known = POLICIES.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
    match known {
        Some((_, flag)) if words.all(|w| SUFFIXES.contains(&w)) => {
            Ok((setting.value.to_owned(), format!("--policy {flag}")))
        }
        _ => {
            let names = POLICIES.map(|(n, _)| n).join(", ");
            let suffixes = SUFFIXES.map(|s| format!("+{s}")).join(", ");
            Err(bad(
                setting,
                file,
                format!("one of {names}, and then any of {suffixes}"),
            ))
        }
    }
}
