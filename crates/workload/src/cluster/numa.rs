//! The NUMA domains of a node in the native description.

use dovetail_model::{CpuSet, GpuSet, NumaDomain};

use super::MAX_NODE_GPUS;
use dovetail_yaml::{Entry, YamlError};

/// The most domains a node may have.
const MAX_DOMAINS: u64 = 1024;

/// NUMA domains as described in a file, for nodes of any size.
#[derive(Debug, Clone)]
pub(super) enum Numa {
    /// A number of equal domains.
    Equal(u32),
    /// CPUs and GPU slots of each.
    Listed(Vec<(CpuSet, CpuSet)>),
}

impl Numa {
    /// Parses a number, or a list of `{cpus: 0-11, gpus: 0-3}`.
    pub(super) fn read(entry: &Entry<'_>) -> Result<Self, YamlError> {
        let Some(items) = entry.list() else {
            return Ok(Self::Equal(entry.whole(1, MAX_DOMAINS)? as u32));
        };
        if items.is_empty() || items.len() as u64 > MAX_DOMAINS {
            return Err(entry.expected(&format!("1 to {MAX_DOMAINS} domains")));
        }
        let (mut domains, mut cpus_seen, mut gpus_seen) = (Vec::new(), CpuSet::default(), CpuSet::default());
        for item in items {
            item.entries(&["cpus", "gpus"])?;
            let cpus = item.get("cpus")?;
            let Some(cpus) = cpus
                .map(|e| numbers(&e, CpuSet::LIMIT, &mut cpus_seen))
                .transpose()?
            else {
                return Err(item.wrong("missing `cpus`: expected the CPUs of the domain, such as 0-11,24-35"));
            };
            let gpus = item.get("gpus")?;
            let gpus = gpus
                .map(|e| numbers(&e, MAX_NODE_GPUS, &mut gpus_seen))
                .transpose()?;
            domains.push((cpus, gpus.unwrap_or_default()));
        }
        Ok(Self::Listed(domains))
    }

    /// Returns the domains of a node with this much CPU and this many GPUs.
    pub(super) fn domains(
        &self,
        at: &Entry<'_>,
        cpu_milli: u32,
        gpus: u32,
    ) -> Result<Vec<NumaDomain>, YamlError> {
        let cpus = cpu_milli / 1000;
        match self {
            Self::Equal(count) if *count > cpus => {
                Err(at.wrong(format!("{count} NUMA domains, but only {cpus} whole CPUs")))
            }
            Self::Equal(count) => Ok(NumaDomain::equal(*count, cpus, gpus)),
            Self::Listed(listed) => {
                let in_domains: u32 = listed.iter().map(|(cpus, _)| cpus.count()).sum();
                if in_domains != cpus {
                    return Err(at.wrong(format!(
                        "its NUMA domains have {in_domains} CPUs, but the node has {cpus}"
                    )));
                }
                let slots = |set: &CpuSet| match set.iter().find(|slot| *slot >= gpus) {
                    Some(slot) => Err(at.wrong(format!(
                        "unknown GPU {slot} in its NUMA domains: expected 0 to {}",
                        gpus - 1
                    ))),
                    None => {
                        let mut slots = GpuSet::empty(gpus);
                        set.iter().for_each(|slot| slots.insert(slot));
                        Ok(slots)
                    }
                };
                listed
                    .iter()
                    .map(|(cpus, gpus)| {
                        Ok(NumaDomain {
                            cpus: cpus.clone(),
                            gpus: slots(gpus)?,
                        })
                    })
                    .collect()
            }
        }
    }
}

/// Parses a list of numbers that must not have occurred before.
fn numbers(entry: &Entry<'_>, limit: u32, seen: &mut CpuSet) -> Result<CpuSet, YamlError> {
    let expected = || entry.expected(&format!("numbers below {limit}, such as 0-11,24-35"));
    let text = match entry.list() {
        None => entry.text().map_err(|_| expected())?,
        Some(items) => {
            let texts = items.iter().map(Entry::text).collect::<Result<Vec<_>, _>>();
            texts.map_err(|_| expected())?.join(",")
        }
    };
    let set: CpuSet = text.parse().map_err(|_| expected())?;
    if set.is_empty() || set.iter().any(|n| n >= limit) {
        return Err(expected());
    }
    if let Some(twice) = set.common(seen).iter().next() {
        return Err(entry.wrong(format!("{twice} is in two domains")));
    }
    seen.add(&set);
    Ok(set)
}
