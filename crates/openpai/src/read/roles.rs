//! Task roles.

use super::reader::{Cursor, Reader};
use crate::job::{CellRequest, Prerequisite, Role};

/// Maximum number of instances of a role, and of a resource per instance.
const MAX: i64 = 1 << 20;
const KEYS: &[&str] = &[
    "instances",
    "completion",
    "taskRetryCount",
    "dockerImage",
    "data",
    "output",
    "script",
    "prerequisites",
    "extraContainerOptions",
    "resourcePerInstance",
    "commands",
];

/// Reads all roles of a job, in the order of the file.
pub(super) fn read(r: &mut Reader, top: &Cursor<'_>, prerequisites: &[Prerequisite]) -> Vec<Role> {
    let expected = "at least one role with resources and commands";
    if r.required(top, "taskRoles", expected).is_none() {
        return Vec::new();
    }
    let entries = r.entries(top, "taskRoles");
    if entries.is_empty() && matches!(top.at("taskRoles").value, crate::value::Value::Map(_)) {
        r.fault(&top.at("taskRoles"), format!("empty: expected {expected}"));
    }
    let mut read: Vec<Role> = Vec::new();
    for entry in entries {
        let name = entry.key.clone();
        if !is_name(&name) {
            r.fault(
                &entry,
                "invalid role name: expected letters, digits and `_`, starting with a letter or `_`",
            );
        }
        if read.iter().any(|role| role.name == name) {
            r.fault(&entry, "duplicate role");
        }
        if r.is_map(&entry, KEYS) {
            read.push(role(r, &entry, name, prerequisites));
        }
    }
    read
}

/// Returns whether the name consists of letters, digits and `_` and does not start with a digit.
pub(super) fn is_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(good) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn role(r: &mut Reader, entry: &Cursor<'_>, name: String, prerequisites: &[Prerequisite]) -> Role {
    let instances = r.integer(entry, "instances", 1, MAX).unwrap_or(1) as u32;
    let (min_failed, min_succeeded) = completion(r, entry, instances);
    let (mut shm_mb, mut infiniband) = (512, false);
    if let Some(options) = r.map(entry, "extraContainerOptions", &["shmMB", "infiniband"]) {
        shm_mb = r.integer(&options, "shmMB", 1, i64::MAX).unwrap_or(512) as u64;
        infiniband = r.flag(&options, "infiniband").unwrap_or(false);
    }
    let image = r.required_text(
        entry,
        "dockerImage",
        "the name of a prerequisite of type dockerimage",
    );
    if let Some(image) = &image {
        check_reference(r, &entry.at("dockerImage"), image, "dockerimage", prerequisites);
    }
    let mut named = |kind: &str| {
        let name = r.text(entry, kind)?;
        check_reference(r, &entry.at(kind), &name, kind, prerequisites);
        Some(name)
    };
    let (data, output, script) = (named("data"), named("output"), named("script"));
    let used = r.texts(entry, "prerequisites");
    for (i, name) in used.iter().enumerate() {
        if !prerequisites.iter().any(|p| p.name == *name) {
            let names: Vec<&str> = prerequisites.iter().map(|p| p.name.as_str()).collect();
            r.unknown_name(
                &entry.at(&format!("prerequisites[{i}]")),
                name,
                "prerequisite",
                names.into_iter(),
            );
        }
    }
    let resources = resources(r, entry);
    let commands = match r.required(entry, "commands", "a list of commands") {
        Some(_) => r.lines(entry, "commands"),
        None => Vec::new(),
    };
    if commands.is_empty() && matches!(entry.at("commands").value, crate::value::Value::List(_)) {
        r.fault(&entry.at("commands"), "empty: expected at least one command");
    }
    Role {
        name,
        instances,
        min_failed,
        min_succeeded,
        task_retries: r
            .integer(entry, "taskRetryCount", 0, i64::from(u16::MAX))
            .unwrap_or(0) as u32,
        image: image.unwrap_or_default(),
        data,
        output,
        script,
        prerequisites: used,
        shm_mb,
        infiniband,
        gpu: resources.gpu,
        cpu: resources.cpu,
        memory_mb: resources.memory_mb,
        ports: resources.ports,
        commands,
        cells: CellRequest::default(),
    }
}

/// Reads the completion rules: number of failed and of succeeded instances that end the attempt. Zero means the default, −1
/// no rule.
fn completion(r: &mut Reader, entry: &Cursor<'_>, instances: u32) -> (Option<u32>, Option<u32>) {
    let keys = ["minFailedInstances", "minSucceededInstances"];
    let completion = r.map(entry, "completion", &keys);
    let mut rule = |key: &str, default: u32| {
        let count = completion.as_ref().and_then(|c| r.integer(c, key, -1, MAX));
        match count {
            Some(-1) => None,
            None | Some(0) => Some(default),
            Some(number) => Some(number as u32),
        }
    };
    (rule(keys[0], 1), rule(keys[1], instances))
}

/// Reports a reference to a prerequisite that does not exist or is of another kind.
fn check_reference(r: &mut Reader, at: &Cursor<'_>, name: &str, kind: &str, prerequisites: &[Prerequisite]) {
    let of_kind = prerequisites.iter().filter(|p| p.kind.name() == kind);
    let names: Vec<&str> = of_kind.map(|p| p.name.as_str()).collect();
    if !names.contains(&name) {
        r.unknown_name(
            at,
            name,
            &format!("prerequisite of type {kind}"),
            names.into_iter(),
        );
    }
}

#[derive(Default)]
struct Resources {
    gpu: u32,
    cpu: u32,
    memory_mb: u64,
    ports: Vec<(String, u32)>,
}

fn resources(r: &mut Reader, entry: &Cursor<'_>) -> Resources {
    let expected = "cpu, memoryMB and gpu";
    if r.required(entry, "resourcePerInstance", expected).is_none() {
        return Resources::default();
    }
    let known = ["gpu", "cpu", "memoryMB", "ports"];
    let Some(resources) = r.map(entry, "resourcePerInstance", &known) else {
        return Resources::default();
    };
    let mut amount = |key: &str, min: i64, max: i64| match r.required(&resources, key, "an integer") {
        Some(_) => r.integer(&resources, key, min, max).unwrap_or(min),
        None => min,
    };
    let (gpu, cpu) = (amount("gpu", 0, MAX), amount("cpu", 1, MAX));
    let memory_mb = amount("memoryMB", 1, 1 << 40);
    let mut ports = Vec::new();
    for port in r.entries(&resources, "ports") {
        let label = port.key.clone();
        if !is_name(&label) {
            r.fault(
                &port,
                "invalid port label: expected letters, digits and `_`, starting with a letter or `_`",
            );
        }
        if let Some(count) = r.integer(&resources.at("ports"), &label, 0, 1024) {
            ports.push((label, count as u32));
        }
    }
    Resources {
        gpu: gpu as u32,
        cpu: cpu as u32,
        memory_mb: memory_mb as u64,
        ports,
    }
}
