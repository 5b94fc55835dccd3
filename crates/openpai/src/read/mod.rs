//! From text to a job: every mistake is found, not just the first.

mod extras;
mod prerequisites;
mod reader;
mod roles;

use dovetail_model::suggest::nearest;

use crate::job::{Deployment, Hooks, Job};
use crate::node::Node;
use crate::remark::{Faults, Remark};
use crate::script::script;
use reader::{At, Reader};

/// What counts as a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Unknown keys, unknown names in templates and everything else that is not of the protocol.
    #[default]
    Strict,
    /// Only what leaves no job: the rest is left out, or taken as it stands, and said.
    Lenient,
}

/// A job and what there is to say about its file.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The job.
    pub job: Job,
    /// What was left out or taken as it stands.
    pub remarks: Vec<Remark>,
    /// The file as a tree.
    pub tree: Node,
}

/// Whether a text is meant to be a job of OpenPAI: it has a `protocolVersion`.
pub fn is_openpai(text: &str) -> bool {
    tree(text).is_ok_and(|tree| tree.get("protocolVersion").is_some())
}

/// The job in a text, YAML or JSON.
///
/// # Errors
/// Everything that is wrong, by path.
pub fn parse(text: &str, mode: Mode) -> Result<Parsed, Faults> {
    one(&tree(text)?, "", mode)
}

/// The jobs in a text that has one, or a list of them.
///
/// # Errors
/// Everything that is wrong, by path.
pub fn parse_all(text: &str, mode: Mode) -> Result<Vec<Parsed>, Faults> {
    let Node::List(jobs) = tree(text)? else {
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

fn tree(text: &str) -> Result<Node, Faults> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| {
        let first = e.to_string().lines().next().unwrap_or_default().to_owned();
        Faults::one("", format!("not YAML: {first}"))
    })
}

fn one(tree: &Node, path: &str, mode: Mode) -> Result<Parsed, Faults> {
    let mut reader = Reader::new(mode);
    let top = At {
        path: path.to_owned(),
        key: String::new(),
        node: tree,
    };
    let job = job(&mut reader, &top);
    if let Some(job) = &job {
        for role in &job.roles {
            for remark in script(job, role).unknown {
                reader.doubtful(remark, "stays in the text as it is");
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

fn job(r: &mut Reader, top: &At<'_>) -> Option<Job> {
    if !matches!(top.node, Node::Keys(_)) {
        r.expected(top, "keys with values, such as `protocolVersion: 2`");
        return None;
    }
    r.only(top, KEYS);
    r.protocol_version(top, true);
    if let Some(kind) = r.required(top, "type", "job")
        && !matches!(kind.node, Node::Text(t) if t == "job")
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
    let defaults = r.keys(top, "defaults", &["virtualCluster", "deployment"]);
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
        parameters: r.free_keys(top, "parameters"),
        secrets: r.free_keys(top, "secrets"),
        retries: r.whole(top, "jobRetryCount", 0, i64::from(u16::MAX)).unwrap_or(0) as u32,
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

fn deployments(r: &mut Reader, top: &At<'_>, roles: &[crate::job::Role]) -> Vec<Deployment> {
    let mut read: Vec<Deployment> = Vec::new();
    for entry in r.list(top, "deployments") {
        if !r.is_keys(&entry, &["name", "taskRoles"]) {
            continue;
        }
        let Some(name) = r.required_text(&entry, "name", "the name of the deployment") else {
            continue;
        };
        if read.iter().any(|d| d.name == name) {
            r.fault(&entry.at("name"), format!("there are two deployments {name}"));
        }
        let mut around = Vec::new();
        for role in r.entries(&entry, "taskRoles") {
            if !r.is_keys(&role, &["preCommands", "postCommands"]) {
                continue;
            }
            let last = &role.key;
            if !roles.iter().any(|known| known.name == *last) {
                let names: Vec<&str> = roles.iter().map(|known| known.name.as_str()).collect();
                r.unknown_name(&role, last, "task role", names.into_iter());
            }
            let hooks = Hooks {
                before: r.lines(&role, "preCommands"),
                after: r.lines(&role, "postCommands"),
                ..Hooks::default()
            };
            around.push((last.clone(), hooks));
        }
        read.push(Deployment { name, roles: around });
    }
    read
}

/// ` (did you mean x?)`, where something is near.
pub(crate) fn hint<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = nearest(word, known);
    let near = near.first().map(|n| format!(" (did you mean {n}?)"));
    near.unwrap_or_default()
}
