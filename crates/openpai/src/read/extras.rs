//! `extras`: gangs, HiveD, storage, notifications and plugins.

use super::prerequisites::{callbacks, failure_policy};
use super::reader::{Cursor, Reader};
use crate::job::{Affinity, CellRequest, FailurePolicy, Hooks, Job, Plugin, PriorityClass, Storage};
use crate::value::Value;

const KNOWN: &[&str] = &[
    "gangAllocation",
    "hivedScheduler",
    "storages",
    "jobStatusChangeNotification",
    "com.microsoft.pai.runtimeplugin",
    "submitFrom",
];

/// Reads `extras` into the job.
pub(super) fn read(r: &mut Reader, top: &Cursor<'_>, job: &mut Job) {
    let extras = top.at("extras");
    match extras.value {
        Value::Null => return,
        Value::Map(entries) => {
            // Any keys are allowed here, and unknown ones have no effect.
            for (key, _) in entries.iter().filter(|(key, _)| !KNOWN.contains(&key.as_str())) {
                r.ignored(&extras.at(key), "unknown key; ignored");
            }
        }
        _ => return r.expected(&extras, "a map"),
    }
    job.gang = r.flag(&extras, "gangAllocation").unwrap_or(true);
    job.submitted_from = r.text(&extras, "submitFrom");
    hived(r, &extras, job);
    if *extras.at("storages").value != Value::Null {
        let entries = r.list(&extras, "storages");
        job.storages = Some(entries.iter().filter_map(|entry| storage(r, entry)).collect());
    }
    let states = ["running", "succeeded", "stopped", "failed", "retried"];
    if let Some(notify) = r.map(&extras, "jobStatusChangeNotification", &states) {
        let enabled = states.iter().filter(|state| r.flag(&notify, state) == Some(true));
        job.notify = enabled.map(|state| (*state).to_owned()).collect();
    }
    for entry in r.list(&extras, "com.microsoft.pai.runtimeplugin") {
        if let Some(plugin) = plugin(r, &entry) {
            job.plugins.push(plugin);
        }
    }
}

fn hived(r: &mut Reader, extras: &Cursor<'_>, job: &mut Job) {
    let known = [
        "jobPriorityClass",
        "taskRoles",
        "gangReleaseEnable",
        "lazyPreemptionEnable",
        "ignoreK8sSuggestedNodes",
    ];
    let Some(hived) = r.map(extras, "hivedScheduler", &known) else {
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
        let request = cell_request(r, &entry);
        let name = &entry.key;
        match job.roles.iter_mut().find(|role| role.name == *name) {
            Some(role) => role.cells = request,
            None => {
                let names: Vec<&str> = job.roles.iter().map(|role| role.name.as_str()).collect();
                r.unknown_name(&entry, name, "task role", names.into_iter());
            }
        }
    }
    for (i, role) in job.roles.iter().enumerate() {
        let is_same_group = |other: &&crate::job::Role| {
            other.cells.affinity.is_some() && other.cells.affinity == role.cells.affinity
        };
        let first = job.roles[..i].iter().find(is_same_group);
        if let Some(first) = first
            && (&first.cells.sku_type, &first.cells.pinned) != (&role.cells.sku_type, &role.cells.pinned)
        {
            let message = format!(
                "skuType and pinnedCellId must equal those of `{}`, which is in the same affinity group",
                first.name
            );
            r.fault(&hived.at("taskRoles").at(&role.name), message);
        }
    }
}

fn cell_request(r: &mut Reader, entry: &Cursor<'_>) -> CellRequest {
    let known = [
        "skuType",
        "skuNum",
        "skuNumber",
        "pinnedCellId",
        "affinityGroupName",
    ];
    if *entry.value == Value::Null || !r.is_map(entry, &known) {
        return CellRequest::default();
    }
    let request = CellRequest {
        sku_type: r.text_or_number(entry, "skuType"),
        sku_num: r
            .integer(entry, "skuNum", 0, 1 << 20)
            .or(r.integer(entry, "skuNumber", 0, 1 << 20))
            .map(|n| n as u32),
        pinned: r.text_or_number(entry, "pinnedCellId"),
        affinity: r.text(entry, "affinityGroupName").map(Affinity),
    };
    if request.sku_type.is_some() && request.pinned.is_some() {
        r.fault(
            entry,
            "skuType and pinnedCellId exclude each other: expected one of them",
        );
    }
    request
}

fn storage(r: &mut Reader, entry: &Cursor<'_>) -> Option<Storage> {
    if !r.is_map(entry, &["name", "mountPath"]) {
        return None;
    }
    Some(Storage {
        name: r.required_text(entry, "name", "the name of the storage")?,
        mount_path: r.text(entry, "mountPath"),
    })
}

const PLUGINS: &str = "ssh, tensorboard, cmd, git or teamwise_storage";

fn plugin(r: &mut Reader, entry: &Cursor<'_>) -> Option<Plugin> {
    if !r.is_map(entry, &["plugin", "failurePolicy", "parameters"]) {
        return None;
    }
    let name = r.required_text(entry, "plugin", PLUGINS)?;
    let on_failure = failure_policy(r, entry);
    let empty = Value::Map(Vec::new());
    let mut parameters = entry.at("parameters");
    if *parameters.value == Value::Null {
        parameters.value = &empty;
    }
    match name.as_str() {
        "ssh" => ssh(r, &parameters),
        "tensorboard" => {
            if r.is_map(&parameters, &["port", "logdir"]) {
                r.integer(&parameters, "port", 1, 65_535);
                r.any_map(&parameters, "logdir");
            }
            Some(Plugin::Tensorboard)
        }
        "cmd" => cmd(r, &parameters, on_failure),
        "git" => {
            if !r.is_map(&parameters, &["repo_uri", "options", "clone_dir"]) {
                return None;
            }
            Some(Plugin::Git {
                repo: r.required_text(&parameters, "repo_uri", "the address of the repository")?,
                options: r.texts(&parameters, "options"),
                folder: r.text(&parameters, "clone_dir"),
                on_failure,
            })
        }
        "teamwise_storage" => r
            .is_map(&parameters, &["storageConfigNames"])
            .then(|| Plugin::TeamwiseStorage(r.texts(&parameters, "storageConfigNames"))),
        _ => {
            r.expected(&entry.at("plugin"), PLUGINS);
            None
        }
    }
}

fn ssh(r: &mut Reader, parameters: &Cursor<'_>) -> Option<Plugin> {
    if !r.is_map(
        parameters,
        &["jobssh", "sshbarrier", "sshbarrierTimeout", "userssh"],
    ) {
        return None;
    }
    r.integer(parameters, "sshbarrierTimeout", 0, i64::MAX);
    let users = r.map(parameters, "userssh", &["type", "value"]);
    let key = users.as_ref().and_then(|users| {
        r.text(users, "type");
        r.text(users, "value")
    });
    Some(Plugin::Ssh {
        between_tasks: r.flag(parameters, "jobssh").unwrap_or(false),
        barrier: r.flag(parameters, "sshbarrier").unwrap_or(false),
        users: key.is_some(),
    })
}

fn cmd(r: &mut Reader, parameters: &Cursor<'_>, on_failure: FailurePolicy) -> Option<Plugin> {
    if !r.is_map(parameters, &["preCommands", "postCommands", "callbacks"]) {
        return None;
    }
    let mut hooks = Hooks {
        before: r.lines(parameters, "preCommands"),
        after: r.lines(parameters, "postCommands"),
        on_failure,
    };
    let by_event = callbacks(r, parameters);
    let has_commands = !hooks.before.is_empty() || !hooks.after.is_empty();
    if has_commands && *parameters.at("callbacks").value != Value::Null {
        r.fault(
            parameters,
            "callbacks exclude preCommands and postCommands: expected one of them",
        );
    }
    hooks.before.extend(by_event.before);
    hooks.after.extend(by_event.after);
    Some(Plugin::Cmd(hooks))
}
