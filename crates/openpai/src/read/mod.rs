//! The parser of job files. It reports all mistakes, not just the first.

mod extras;
mod prerequisites;
mod reader;
mod roles;

use dovetail_model::suggest::nearest;

use crate::job::{Deployment, Hooks, Job};
use crate::remark::{Faults, Remark};
use crate::script::script;
use crate::value::Value;
use reader::{Cursor, Reader};

/// How mistakes are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Everything that does not follow the protocol is a mistake, including unknown keys and names in templates.
    #[default]
    Strict,
    /// Unknown keys are ignored and unknown names in templates left unchanged, each with a remark.
    Lenient,
}

/// A parsed job file.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The job.
    pub job: Job,
    /// What was ignored or left unchanged.
    pub remarks: Vec<Remark>,
    /// The file as a value.
    pub tree: Value,
}

/// Returns whether a text is a job file of OpenPAI: it has a `protocolVersion`.
pub fn is_openpai(text: &str) -> bool {
    tree(text).is_ok_and(|tree| tree.get("protocolVersion").is_some())
}

/// Parses a job file in YAML or JSON.
///
/// # Errors
/// All mistakes, with their paths.
pub fn parse(text: &str, mode: Mode) -> Result<Parsed, Faults> {
    one(&tree(text)?, "", mode)
}

/// Parses a file with one job or a list of jobs.
///
/// # Errors
/// All mistakes, with their paths.
pub fn parse_all(text: &str, mode: Mode) -> Result<Vec<Parsed>, Faults> {
    let Value::List(jobs) = tree(text)? else {
        return Ok(vec![parse(text, mode)?]);
    };
    let mut faults = Vec::new();
    let mut read = Vec::new();
    for (i, job) in jobs.iter().enumerate() {
        match one(job, &format!("[{i}]"), mode) {
            Ok(job) => read.push(job),
            Err(Faults(more)) => faults.extend(more),
        }
    }
    if faults.is_empty() {
        Ok(read)
    } else {
        Err(Faults(faults))
    }
}

fn tree(text: &str) -> Result<Value, Faults> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| {
        let first = e.to_string().lines().next().unwrap_or_default().to_owned();
        Faults::one("", format!("invalid YAML: {first}"))
    })
}

fn one(tree: &Value, path: &str, mode: Mode) -> Result<Parsed, Faults> {
    let mut reader = Reader::new(mode);
    let top = Cursor {
        path: path.to_owned(),
        key: String::new(),
        value: tree,
    };
    let job = job(&mut reader, &top);
    if let Some(job) = &job {
        for role in &job.roles {
            for remark in script(job, role).unknown {
                reader.doubtful(remark, "left unchanged");
            }
        }
    }
    match job {
        Some(job) if reader.faults.is_empty() => Ok(Parsed {
            job,
            remarks: reader.remarks,
            tree: tree.clone(),
        }),
        _ => Err(Faults(reader.faults)),
    }
}

const KEYS: &[&str] = &[
    "protocolVersion",
    "name",
    "type",
    "version",
    "contributor",
    "description",
    "prerequisites",
    "parameters",
    "secrets",
    "jobRetryCount",
    "taskRoles",
    "deployments",
    "defaults",
    "extras",
];

fn job(r: &mut Reader, top: &Cursor<'_>) -> Option<Job> {
    if !matches!(top.value, Value::Map(_)) {
        r.expected(top, "a map with keys such as `protocolVersion: 2`");
        return None;
    }
    r.only(top, KEYS);
    r.protocol_version(top, true);
    if let Some(kind) = r.required(top, "type", "job")
        && !matches!(kind.value, Value::Text(t) if t == "job")
    {
        r.expected(&kind, "job");
    }
    let name = r.required_text(top, "name", "the name of the job");
    if let Some(name) = &name {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if name.is_empty() || name.len() > 255 || !name.chars().all(allowed) {
            r.expected(&top.at("name"), "up to 255 letters, digits, `_` and `-`");
        }
    }
    let prerequisites = prerequisites::read(r, top);
    let roles = roles::read(r, top, &prerequisites);
    let deployments = deployments(r, top, &roles);
    let defaults = r.map(top, "defaults", &["virtualCluster", "deployment"]);
    let (mut vc, mut deployment) = (None, None);
    if let Some(defaults) = &defaults {
        vc = r.text(defaults, "virtualCluster");
        deployment = r.text(defaults, "deployment");
        if let Some(chosen) = &deployment
            && !deployments.iter().any(|d| d.name == *chosen)
        {
            let names = deployments.iter().map(|d| d.name.as_str());
            r.unknown_name(&defaults.at("deployment"), chosen, "deployment", names);
        }
    }
    let mut job = Job {
        name: name.unwrap_or_default(),
        version: r.text_or_number(top, "version"),
        contributor: r.text(top, "contributor"),
        description: r.text(top, "description"),
        prerequisites,
        parameters: r.any_map(top, "parameters"),
        secrets: r.any_map(top, "secrets"),
        retries: r
            .integer(top, "jobRetryCount", 0, i64::from(u16::MAX))
            .unwrap_or(0) as u32,
        roles,
        deployments,
        virtual_cluster: vc.unwrap_or_else(|| "default".to_owned()),
        deployment,
        gang: true,
        class: crate::job::PriorityClass::Test,
        gang_release: None,
        lazy_preemption: None,
        ignore_suggested_nodes: None,
        storages: None,
        notify: Vec::new(),
        plugins: Vec::new(),
        submitted_from: None,
    };
    extras::read(r, top, &mut job);
    (!job.roles.is_empty()).then_some(job)
}

fn deployments(r: &mut Reader, top: &Cursor<'_>, roles: &[crate::job::Role]) -> Vec<Deployment> {
    let mut read: Vec<Deployment> = Vec::new();
    for entry in r.list(top, "deployments") {
        if !r.is_map(&entry, &["name", "taskRoles"]) {
            continue;
        }
        let Some(name) = r.required_text(&entry, "name", "the name of the deployment") else {
            continue;
        };
        if read.iter().any(|d| d.name == name) {
            r.fault(&entry.at("name"), format!("duplicate deployment `{name}`"));
        }
        let mut hooks_by_role = Vec::new();
        for role in r.entries(&entry, "taskRoles") {
            if !r.is_map(&role, &["preCommands", "postCommands"]) {
                continue;
            }
            let name = &role.key;
            if !roles.iter().any(|known| known.name == *name) {
                let names: Vec<&str> = roles.iter().map(|known| known.name.as_str()).collect();
                r.unknown_name(&role, name, "task role", names.into_iter());
            }
            let hooks = Hooks {
                before: r.lines(&role, "preCommands"),
                after: r.lines(&role, "postCommands"),
                ..Hooks::default()
            };
            hooks_by_role.push((name.clone(), hooks));
        }
        read.push(Deployment {
            name,
            roles: hooks_by_role,
        });
    }
    read
}

/// Returns ` (did you mean x?)` if a known name is similar.
pub(crate) fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let similar = nearest(name, known);
    let similar = similar.first().map(|n| format!(" (did you mean `{n}`?)"));
    similar.unwrap_or_default()
}
