//! Task roles.

use super::reader::{At, Reader};
use crate::job::{CellWish, Prerequisite, Role};

/// The most instances of a role, and the most of a resource for one.
const MOST: i64 = 1 << 20;
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

/// All roles of a job, in the order of the file.
pub(super) fn read(r: &mut Reader, top: &At<'_>, prerequisites: &[Prerequisite]) -> Vec<Role> {
    let what = "at least one role with its resources and commands";
    if r.required(top, "taskRoles", what).is_none() {
        return Vec::new();
    }
    let entries = r.entries(top, "taskRoles");
    if entries.is_empty() && matches!(top.at("taskRoles").node, crate::node::Node::Keys(_)) {
        r.fault(&top.at("taskRoles"), format!("is empty; expected {what}"));
    }
    let mut read: Vec<Role> = Vec::new();
    for entry in entries {
        let name = entry.key.clone();
        if !is_name(&name) {
            r.fault(
                &entry,
                "is no name of a role; expected letters, digits and `_`, not a digit first",
            );
        }
        if read.iter().any(|role| role.name == name) {
            r.fault(&entry, "is there twice");
        }
        if r.is_keys(&entry, KEYS) {
            read.push(role(r, &entry, name, prerequisites));
        }
    }
    read
}

/// Letters, digits and `_`, not a digit first.
pub(super) fn is_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(good) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn role(r: &mut Reader, entry: &At<'_>, name: String, prerequisites: &[Prerequisite]) -> Role {
    let instances = r.whole(entry, "instances", 1, MOST).unwrap_or(1) as u32;
    let (min_failed, min_succeeded) = completion(r, entry, instances);
    let (mut shm_mb, mut infiniband) = (512, false);
    if let Some(options) = r.keys(entry, "extraContainerOptions", &["shmMB", "infiniband"]) {
        shm_mb = r.whole(&options, "shmMB", 1, i64::MAX).unwrap_or(512) as u64;
        infiniband = r.flag(&options, "infiniband").unwrap_or(false);
    }
    let image = r.required_text(
        entry,
        "dockerImage",
        "the name of a prerequisite of type dockerimage",
    );
    if let Some(image) = &image {
        refers(r, &entry.at("dockerImage"), image, "dockerimage", prerequisites);
    }
    let mut named = |kind: &str| {
        let name = r.text(entry, kind)?;
        refers(r, &entry.at(kind), &name, kind, prerequisites);
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
    let commands = match r.required(entry, "commands", "a list of lines for the shell") {
        Some(_) => r.lines(entry, "commands"),
        None => Vec::new(),
    };
    if commands.is_empty() && matches!(entry.at("commands").node, crate::node::Node::List(_)) {
        r.fault(
            &entry.at("commands"),
            "is empty; expected at least one line for the shell",
        );
    }
    Role {
        name,
        instances,
        min_failed,
        min_succeeded,
        task_retries: r
            .whole(entry, "taskRetryCount", 0, i64::from(u16::MAX))
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
        cells: CellWish::default(),
    }
}

/// When the attempt is over: nothing and zero mean the same as not said, −1 means never; so does more than there are.
fn completion(r: &mut Reader, entry: &At<'_>, instances: u32) -> (Option<u32>, Option<u32>) {
    let keys = ["minFailedInstances", "minSucceededInstances"];
    let completion = r.keys(entry, "completion", &keys);
    let mut of = |key: &str, unset: u32| {
        let said = completion.as_ref().and_then(|c| r.whole(c, key, -1, MOST));
        match said {
            Some(-1) => None,
            None | Some(0) => Some(unset),
            Some(number) => Some(number as u32),
        }
    };
    (of(keys[0], 1), of(keys[1], instances))
}

fn refers(r: &mut Reader, at: &At<'_>, name: &str, kind: &str, prerequisites: &[Prerequisite]) {
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

fn resources(r: &mut Reader, entry: &At<'_>) -> Resources {
    let what = "cpu, memoryMB and gpu";
    if r.required(entry, "resourcePerInstance", what).is_none() {
        return Resources::default();
    }
    let known = ["gpu", "cpu", "memoryMB", "ports"];
    let Some(resources) = r.keys(entry, "resourcePerInstance", &known) else {
        return Resources::default();
    };
    let mut amount = |key: &str, least: i64, most: i64| match r.required(&resources, key, "a whole number") {
        Some(_) => r.whole(&resources, key, least, most).unwrap_or(least),
        None => least,
    };
    let (gpu, cpu) = (amount("gpu", 0, MOST), amount("cpu", 1, MOST));
    let memory_mb = amount("memoryMB", 1, 1 << 40);
    let mut ports = Vec::new();
    for port in r.entries(&resources, "ports") {
        let label = port.key.clone();
        if !is_name(&label) {
            r.fault(
                &port,
                "is no label of a port; expected letters, digits and `_`, not a digit first",
            );
        }
        if let Some(count) = r.whole(&resources.at("ports"), &label, 0, 1024) {
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
