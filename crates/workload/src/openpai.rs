//! OpenPAI jobs, protocol version 2: as much of them as a scheduler has to know.
//!
//! A file has one job, or a list of them. Keys that say nothing about scheduling (images, ports, plugins) are ignored.

use std::collections::BTreeMap;
use std::path::Path;

use dovetail_cells::Sku;

use crate::error::TraceError;
use crate::yaml::{Entry, YamlError, parse as parse_yaml};

/// The most instances of a role, and the most of a resource for one.
const MOST: u64 = 1 << 20;
/// What counts as a priority class, and the priority it stands for.
const CLASSES: [(&str, i32); 4] = [("crit", 120), ("prod", 100), ("test", 10), ("oppo", -1)];

/// A file of jobs that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenPaiError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] TraceError),
    /// It is not YAML or JSON, or not of the right shape.
    #[error(transparent)]
    Yaml(#[from] YamlError),
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaiJob {
    /// Its name.
    pub name: String,
    /// The virtual cluster it goes to.
    pub virtual_cluster: String,
    /// Its priority: −1 borrows.
    pub priority: i32,
    /// Whether all instances start together or not at all.
    pub gang: bool,
    /// Its task roles, by name.
    pub roles: Vec<PaiRole>,
}

/// Instances that do the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaiRole {
    /// Its name.
    pub name: String,
    /// How many instances there are.
    pub instances: u32,
    /// GPUs for each.
    pub gpu: u32,
    /// CPU for each, in milli-cores.
    pub cpu_milli: u32,
    /// Memory for each, in MiB.
    pub memory_mib: u64,
    /// The SKU it insists on.
    pub sku: Option<String>,
    /// The pinned cell it insists on.
    pub pinned: Option<String>,
    /// What each instance runs, line by line.
    pub commands: Vec<String>,
}

impl PaiJob {
    /// The name of its priority class.
    pub fn class(&self) -> &'static str {
        let class = CLASSES.iter().find(|(_, priority)| *priority == self.priority);
        class.map_or("test", |(name, _)| name)
    }
}

impl PaiRole {
    /// Leaf cells one instance takes if a leaf brings so much; none if it asks for something a leaf has nothing of.
    pub fn leaves(&self, leaf: &Sku) -> Option<u32> {
        let needed = |asked: u64, each: u64| match (asked, each) {
            (0, _) => Some(0),
            (_, 0) => None,
            (asked, each) => Some(asked.div_ceil(each)),
        };
        let gpu = needed(self.gpu.into(), leaf.gpu.into())?;
        let cpu = needed(self.cpu_milli.into(), leaf.cpu_milli)?;
        let memory = needed(self.memory_mib, leaf.memory_mib)?;
        u32::try_from(gpu.max(cpu).max(memory).max(1)).ok()
    }

    /// Seconds its commands sleep, as `sleep 5m` says.
    pub fn sleeps_s(&self) -> u64 {
        let lines = self.commands.iter().flat_map(|c| c.lines());
        lines.filter_map(sleep_s).sum()
    }
}

/// Seconds a command sleeps; nothing for other commands.
fn sleep_s(command: &str) -> Option<u64> {
    let time = command.trim().strip_prefix("sleep ")?.trim();
    let (number, unit) = match time.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, &time[number.len()..]),
        None => (time, "s"),
    };
    let unit = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => 1,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Reads a file of jobs.
///
/// # Errors
/// What is wrong, with file and path.
pub fn read_openpai(path: &Path) -> Result<Vec<PaiJob>, OpenPaiError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|reason| TraceError::Open {
        file: file.clone(),
        reason,
    })?;
    Ok(parse_openpai(&text, &file)?)
}

/// The jobs in a text, YAML or JSON; `file` is what errors call it.
///
/// # Errors
/// What is wrong with a job, by path.
pub fn parse_openpai(text: &str, file: &str) -> Result<Vec<PaiJob>, YamlError> {
    let value = parse_yaml(text, file)?;
    let top = Entry::top(file, &value);
    match top.list() {
        Some(jobs) => jobs.iter().map(job).collect(),
        None => Ok(vec![job(&top)?]),
    }
}

fn job(entry: &Entry<'_>) -> Result<PaiJob, YamlError> {
    let version = required(entry, "protocolVersion", "protocolVersion: 2")?;
    version.whole(2, 2).or_else(|_| match version.text()?.as_str() {
        "2" => Ok(2),
        _ => Err(version.expected("2, the version of the protocol")),
    })?;
    let name = required(entry, "name", "the name of the job")?;
    let text = name.text()?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if text.is_empty() || text.len() > 255 || !text.chars().all(allowed) {
        return Err(name.expected("up to 255 letters, digits, `_` and `-`"));
    }
    let extras = present(entry.get("extras")?);
    let hived = match &extras {
        Some(extras) => present(extras.get("hivedScheduler")?),
        None => None,
    };
    let gang = match extras
        .as_ref()
        .map(|e| e.get("gangAllocation"))
        .transpose()?
        .flatten()
    {
        Some(gang) => gang.flag()?,
        None => true,
    };
    let priority = match hived
        .as_ref()
        .map(|h| h.get("jobPriorityClass"))
        .transpose()?
        .flatten()
    {
        Some(class) => priority(&class)?,
        None => 10,
    };
    let defaults = present(entry.get("defaults")?);
    let vc = defaults
        .as_ref()
        .map(|d| d.get("virtualCluster"))
        .transpose()?
        .flatten();
    let mut wishes = BTreeMap::new();
    if let Some(roles) = match &hived {
        Some(hived) => present(hived.get("taskRoles")?),
        None => None,
    } {
        wishes.extend(roles.all_entries()?);
    }
    let roles = required(
        entry,
        "taskRoles",
        "at least one role with instances and commands",
    )?;
    let roles = roles.all_entries()?;
    if roles.is_empty() {
        return Err(entry.wrong("there are no taskRoles; expected at least one"));
    }
    if let Some((name, wish)) = wishes
        .iter()
        .find(|(name, _)| !roles.iter().any(|(r, _)| r == *name))
    {
        return Err(wish.wrong(format!("there is no task role {name}; expected one of taskRoles")));
    }
    Ok(PaiJob {
        name: text,
        virtual_cluster: vc.map_or(Ok("default".to_owned()), |v| v.text())?,
        priority,
        gang,
        roles: roles
            .iter()
            .map(|(name, entry)| role(name, entry, wishes.get(name)))
            .collect::<Result<_, _>>()?,
    })
}

fn role(name: &str, entry: &Entry<'_>, wish: Option<&Entry<'_>>) -> Result<PaiRole, YamlError> {
    let instances = match present(entry.get("instances")?) {
        Some(instances) => instances.whole(1, MOST)? as u32,
        None => 1,
    };
    let resources = required(entry, "resourcePerInstance", "cpu, memoryMB and gpu")?;
    let amount =
        |key: &str| -> Result<u64, YamlError> { required(&resources, key, "a whole number")?.whole(0, MOST) };
    let commands = required(entry, "commands", "a list of commands")?;
    let lines = commands
        .list()
        .ok_or_else(|| commands.expected("a list of commands"))?;
    let wished = |key: &str| -> Result<Option<String>, YamlError> {
        match wish {
            Some(wish) => present(wish.get(key)?).map(|e| e.text()).transpose(),
            None => Ok(None),
        }
    };
    let (sku, pinned) = (wished("skuType")?, wished("pinnedCellId")?);
    if let (Some(_), Some(_), Some(wish)) = (&sku, &pinned, wish) {
        return Err(wish.wrong("there are both skuType and pinnedCellId; expected one of them"));
    }
    Ok(PaiRole {
        name: name.to_owned(),
        instances,
        gpu: present(resources.get("gpu")?).map_or(Ok(0), |g| g.whole(0, MOST))? as u32,
        cpu_milli: (amount("cpu")? * 1000).try_into().unwrap_or(u32::MAX),
        memory_mib: amount("memoryMB")?,
        sku,
        pinned,
        commands: lines.iter().map(Entry::text).collect::<Result<_, _>>()?,
    })
}

fn priority(class: &Entry<'_>) -> Result<i32, YamlError> {
    let text = class.text()?;
    let known = CLASSES.iter().find(|(name, _)| *name == text);
    known
        .map(|(_, priority)| *priority)
        .ok_or_else(|| class.expected("crit, prod, test or oppo"))
}

fn present(entry: Option<Entry<'_>>) -> Option<Entry<'_>> {
    entry.filter(|e| !e.is_null())
}

fn required<'a>(entry: &Entry<'a>, key: &str, what: &str) -> Result<Entry<'a>, YamlError> {
    present(entry.get(key)?).ok_or_else(|| entry.wrong(format!("there is no {key}; expected {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "
protocolVersion: 2
name: mnist
type: job
prerequisites: [{type: dockerimage, name: image, uri: somewhere}]
taskRoles:
  train:
    instances: 2
    dockerImage: image
    resourcePerInstance: {cpu: 3, memoryMB: 4096, gpu: 1}
    commands: [\"python3 main.py\\nsleep 5m\", sleep 7]
defaults: {virtualCluster: vision}
extras:
  gangAllocation: false
  hivedScheduler: {jobPriorityClass: oppo, taskRoles: {train: {skuType: V100}}}
";

    #[test]
    fn a_job_is_read() {
        let jobs = parse_openpai(JOB, "job.yaml").unwrap();
        let [job] = &jobs[..] else { panic!("{jobs:?}") };
        assert_eq!(
            (job.name.as_str(), job.virtual_cluster.as_str()),
            ("mnist", "vision")
        );
        assert_eq!((job.priority, job.class(), job.gang), (-1, "oppo", false));
        let role = &job.roles[0];
        assert_eq!(
            (role.instances, role.sku.as_deref(), role.sleeps_s()),
            (2, Some("V100"), 307)
        );
        let leaf = |gpu, cpu_milli, memory_mib| Sku {
            gpu,
            cpu_milli,
            memory_mib,
        };
        assert_eq!(
            role.leaves(&leaf(1, 2000, 4096)),
            Some(2),
            "two leaves for three cores"
        );
        assert_eq!(
            role.leaves(&leaf(1, 8000, 1024)),
            Some(4),
            "four leaves for the memory"
        );
        assert_eq!(role.leaves(&leaf(0, 8000, 9999)), None, "no leaf has a GPU");
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let text = "{protocolVersion: \"2\", name: a, taskRoles: {t: {resourcePerInstance: {cpu: 1, memoryMB: 1}, commands: [x]}}}";
        let job = &parse_openpai(text, "job.yaml").unwrap()[0];
        assert_eq!(
            (job.virtual_cluster.as_str(), job.class(), job.gang),
            ("default", "test", true)
        );
        assert_eq!((job.roles[0].instances, job.roles[0].gpu), (1, 0));
    }

    #[test]
    fn every_mistake_is_named_by_its_path() {
        let cases = [
            ("protocolVersion: 2", "protocolVersion: 1", "protocolVersion: "),
            ("name: mnist", "name: \"a b\"", "name: "),
            (
                "jobPriorityClass: oppo",
                "jobPriorityClass: urgent",
                "crit, prod, test or oppo",
            ),
            ("{train: {skuType", "{eval: {skuType", "no task role eval"),
            (
                "{skuType: V100}",
                "{skuType: V100, pinnedCellId: x}",
                "both skuType and pinnedCellId",
            ),
            ("instances: 2", "instances: 0", "taskRoles.train.instances"),
            ("cpu: 3", "cpu: many", "taskRoles.train.resourcePerInstance.cpu"),
            (
                "gangAllocation: false",
                "gangAllocation: 3",
                "extras.gangAllocation",
            ),
            ("    commands:", "    orders:", "there is no commands"),
        ];
        for (right, wrong, said) in cases {
            assert!(JOB.contains(right), "{right}");
            let error = parse_openpai(&JOB.replace(right, wrong), "job.yaml")
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with("job.yaml: ") && error.contains(said),
                "{wrong}: {error}"
            );
        }
    }
}
