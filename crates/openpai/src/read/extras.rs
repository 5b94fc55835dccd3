//! `extras`: cells, gangs, storage, mail and plugins.

use super::prerequisites::{callbacks, failure_policy};
use super::reader::{At, Reader};
use crate::job::{Affinity, CellWish, Hooks, Job, Plugin, PriorityClass, Storage};
use crate::node::Node;

const KNOWN: &[&str] = &[
    "gangAllocation",
    "hivedScheduler",
    "storages",
    "jobStatusChangeNotification",
    "com.microsoft.pai.runtimeplugin",
    "submitFrom",
];

/// Reads `extras` into the job.
pub(super) fn read(r: &mut Reader, top: &At<'_>, job: &mut Job) {
    let extras = top.at("extras");
    match extras.node {
        Node::Null => return,
        Node::Keys(keys) => {
            // It is a free object: what nobody knows is allowed, and said.
            for (key, _) in keys.iter().filter(|(key, _)| !KNOWN.contains(&key.as_str())) {
                r.ignored(&extras.at(key), "nothing here knows this key");
            }
        }
        _ => return r.expected(&extras, "keys with values"),
    }
    job.gang = r.flag(&extras, "gangAllocation").unwrap_or(true);
    job.submitted_from = r.text(&extras, "submitFrom");
    hived(r, &extras, job);
    if *extras.at("storages").node != Node::Null {
        let entries = r.list(&extras, "storages");
        job.storages = Some(entries.iter().filter_map(|entry| storage(r, entry)).collect());
    }
    let states = ["running", "succeeded", "stopped", "failed", "retried"];
    if let Some(notify) = r.keys(&extras, "jobStatusChangeNotification", &states) {
        let wanted = states.iter().filter(|state| r.flag(&notify, state) == Some(true));
        job.notify = wanted.map(|state| (*state).to_owned()).collect();
    }
    for entry in r.list(&extras, "com.microsoft.pai.runtimeplugin") {
        if let Some(plugin) = plugin(r, &entry) {
            job.plugins.push(plugin);
        }
    }
}

fn hived(r: &mut Reader, extras: &At<'_>, job: &mut Job) {
    let known = [
        "jobPriorityClass",
        "taskRoles",
        "gangReleaseEnable",
        "lazyPreemptionEnable",
        "ignoreK8sSuggestedNodes",
    ];
    let Some(hived) = r.keys(extras, "hivedScheduler", &known) else {
        return;
    };
    if let Some(class) = r.text(&hived, "jobPriorityClass") {
        match PriorityClass::ALL.into_iter().find(|c| c.name() == class) {
            Some(class) => job.class = class,
            None => r.expected(&hived.at("jobPriorityClass"), "crit, prod, test or oppo"),
        }
    }
    job.gang_release = r.flag(&hived, "gangReleaseEnable");
    job.lazy_preemption = r.flag(&hived, "lazyPreemptionEnable");
    job.ignore_suggested_nodes = r.flag(&hived, "ignoreK8sSuggestedNodes");
    for entry in r.entries(&hived, "taskRoles") {
        let wish = wish(r, &entry);
        let name = &entry.key;
        match job.roles.iter_mut().find(|role| role.name == *name) {
            Some(role) => role.cells = wish,
            None => {
                let names: Vec<&str> = job.roles.iter().map(|role| role.name.as_str()).collect();
                r.unknown_name(&entry, name, "task role", names.into_iter());
            }
        }
    }
    for (i, role) in job.roles.iter().enumerate() {
        let of_group = |other: &&crate::job::Role| {
            other.cells.affinity.is_some() && other.cells.affinity == role.cells.affinity
        };
        let first = job.roles[..i].iter().find(of_group);
        if let Some(first) = first
            && (&first.cells.sku_type, &first.cells.pinned) != (&role.cells.sku_type, &role.cells.pinned)
        {
            let what = format!(
                "is of the same affinity group as {}, but asks for another skuType or pinnedCellId; expected the same",
                first.name
            );
            r.fault(&hived.at("taskRoles").at(&role.name), what);
        }
    }
}

fn wish(r: &mut Reader, entry: &At<'_>) -> CellWish {
    let known = [
        "skuType",
        "skuNum",
        "skuNumber",
        "pinnedCellId",
        "affinityGroupName",
    ];
    if *entry.node == Node::Null || !r.is_keys(entry, &known) {
        return CellWish::default();
    }
    let wish = CellWish {
        sku_type: r.text_or_number(entry, "skuType"),
        sku_num: r
            .whole(entry, "skuNum", 0, 1 << 20)
            .or(r.whole(entry, "skuNumber", 0, 1 << 20))
            .map(|n| n as u32),
        pinned: r.text_or_number(entry, "pinnedCellId"),
        affinity: r.text(entry, "affinityGroupName").map(Affinity),
    };
    if wish.sku_type.is_some() && wish.pinned.is_some() {
        r.fault(
            entry,
            "there are both skuType and pinnedCellId; expected one of them",
        );
    }
    wish
}

fn storage(r: &mut Reader, entry: &At<'_>) -> Option<Storage> {
    if !r.is_keys(entry, &["name", "mountPath"]) {
        return None;
    }
    Some(Storage {
        name: r.required_text(entry, "name", "the name of the storage")?,
        mount_path: r.text(entry, "mountPath"),
    })
}

fn plugin(r: &mut Reader, entry: &At<'_>) -> Option<Plugin> {
    if !r.is_keys(entry, &["plugin", "failurePolicy", "parameters"]) {
        return None;
    }
    let accepted = "ssh, tensorboard, cmd, git or teamwise_storage";
    let name = r.required_text(entry, "plugin", accepted)?;
    let on_failure = failure_policy(r, entry);
    let given = entry.at("parameters");
    let nothing = Node::Keys(Vec::new());
    let p = match given.node {
        Node::Null => At {
            path: given.path.clone(),
            key: given.key.clone(),
            node: &nothing,
        },
        _ => given,
    };
    match name.as_str() {
        "ssh" => {
            let known = ["jobssh", "sshbarrier", "sshbarrierTimeout", "userssh"];
            if !r.is_keys(&p, &known) {
                return None;
            }
            r.whole(&p, "sshbarrierTimeout", 0, i64::MAX);
            let users = r.keys(&p, "userssh", &["type", "value"]);
            let value = users.as_ref().and_then(|u| {
                r.text(u, "type");
                r.text(u, "value")
            });
            Some(Plugin::Ssh {
                between_tasks: r.flag(&p, "jobssh").unwrap_or(false),
                barrier: r.flag(&p, "sshbarrier").unwrap_or(false),
                users: value.is_some(),
            })
        }
        "tensorboard" => {
            if r.is_keys(&p, &["port", "logdir"]) {
                r.whole(&p, "port", 1, 65_535);
                r.free_keys(&p, "logdir");
            }
            Some(Plugin::Tensorboard)
        }
        "cmd" => {
            if !r.is_keys(&p, &["preCommands", "postCommands", "callbacks"]) {
                return None;
            }
            let mut hooks = Hooks {
                before: r.lines(&p, "preCommands"),
                after: r.lines(&p, "postCommands"),
                on_failure,
            };
            let more = callbacks(r, &p);
            let plain = !hooks.before.is_empty() || !hooks.after.is_empty();
            if plain && *p.at("callbacks").node != Node::Null {
                r.fault(
                    &p,
                    "there are both callbacks and preCommands or postCommands; expected one of them",
                );
            }
            hooks.before.extend(more.before);
            hooks.after.extend(more.after);
            Some(Plugin::Cmd(hooks))
        }
        "git" => {
            if !r.is_keys(&p, &["repo_uri", "options", "clone_dir"]) {
                return None;
            }
            Some(Plugin::Git {
                repo: r.required_text(&p, "repo_uri", "the address of the repository")?,
                options: r.texts(&p, "options"),
                folder: r.text(&p, "clone_dir"),
                on_failure,
            })
        }
        "teamwise_storage" => r
            .is_keys(&p, &["storageConfigNames"])
            .then(|| Plugin::TeamwiseStorage(r.texts(&p, "storageConfigNames"))),
        _ => {
            r.expected(&entry.at("plugin"), accepted);
            None
        }
    }
}
