//! Images, data, scripts and outputs.

use super::reader::{Cursor, Reader};
use crate::job::{Auth, Event, FailurePolicy, Hooks, Image, Prerequisite, PrerequisiteKind};
use crate::value::Value;

const IMAGE_KEYS: &[&str] = &[
    "protocolVersion",
    "name",
    "type",
    "version",
    "contributor",
    "description",
    "uri",
    "auth",
];
const OTHER_KEYS: &[&str] = &[
    "protocolVersion",
    "name",
    "type",
    "version",
    "contributor",
    "description",
    "uri",
    "plugin",
    "require",
    "failurePolicy",
    "callbacks",
];
/// Plugin that runs commands.
const CMD: &str = "com.microsoft.pai.runtimeplugin.cmd";

/// Reads all prerequisites of a job.
pub(super) fn read(r: &mut Reader, top: &Cursor<'_>) -> Vec<Prerequisite> {
    let mut read: Vec<Prerequisite> = Vec::new();
    let entries = r.list(top, "prerequisites");
    for entry in &entries {
        let Some(prerequisite) = one(r, entry) else {
            continue;
        };
        let kind = prerequisite.kind.name();
        if read
            .iter()
            .any(|p| p.name == prerequisite.name && p.kind.name() == kind)
        {
            let message = format!("duplicate prerequisite `{}` of type {kind}", prerequisite.name);
            r.fault(&entry.at("name"), message);
        }
        read.push(prerequisite);
    }
    let names: Vec<&str> = read.iter().map(|p| p.name.as_str()).collect();
    for prerequisite in &read {
        for needed in prerequisite
            .require
            .iter()
            .filter(|n| !names.contains(&n.as_str()))
        {
            let Some(entry) = entries.iter().find(|e| *e.value == prerequisite.keys) else {
                continue;
            };
            r.unknown_name(
                &entry.at("require"),
                needed,
                "prerequisite",
                names.iter().copied(),
            );
        }
    }
    read
}

fn one(r: &mut Reader, entry: &Cursor<'_>) -> Option<Prerequisite> {
    if !matches!(entry.value, Value::Map(_)) {
        r.expected(entry, "a map with type, name and uri");
        return None;
    }
    r.protocol_version(entry, false);
    let kind = r.required_text(entry, "type", "dockerimage, data, script or output");
    let name = r.required_text(entry, "name", "a name that roles refer to");
    r.text_or_number(entry, "version");
    r.text(entry, "contributor");
    r.text(entry, "description");
    let kind = match kind?.as_str() {
        "dockerimage" => PrerequisiteKind::Image(image(r, entry)?),
        "script" => PrerequisiteKind::Script,
        "output" => PrerequisiteKind::Output,
        "data" => PrerequisiteKind::Data,
        _ => {
            r.expected(&entry.at("type"), "dockerimage, data, script or output");
            return None;
        }
    };
    let mut prerequisite = Prerequisite {
        name: name?,
        kind,
        require: Vec::new(),
        hooks: Hooks::default(),
        plugin: None,
        keys: entry.value.clone(),
    };
    if !matches!(prerequisite.kind, PrerequisiteKind::Image(_)) {
        other(r, entry, &mut prerequisite);
    }
    Some(prerequisite)
}

fn image(r: &mut Reader, entry: &Cursor<'_>) -> Option<Image> {
    r.only(entry, IMAGE_KEYS);
    let auth = r.map(entry, "auth", &["username", "password", "registryuri"]);
    let auth = auth.map(|auth| Auth {
        username: r
            .required_text(&auth, "username", "the user name")
            .unwrap_or_default(),
        password: r
            .required_text(&auth, "password", "the password, preferably as <% $secrets.x %>")
            .unwrap_or_default(),
        registry: r.text(&auth, "registryuri"),
    });
    let uri = r.required_text(entry, "uri", "the address of the image")?;
    if uri.trim().is_empty() {
        r.expected(&entry.at("uri"), "the address of the image");
    }
    Some(Image {
        uri: uri.trim().to_owned(),
        auth,
    })
}

/// Reads the keys that only scripts, outputs and data have.
fn other(r: &mut Reader, entry: &Cursor<'_>, prerequisite: &mut Prerequisite) {
    match prerequisite.kind {
        PrerequisiteKind::Data => drop(r.texts(entry, "uri")),
        _ => drop(r.text(entry, "uri")),
    }
    prerequisite.require = r.texts(entry, "require");
    prerequisite.plugin = r.text(entry, "plugin");
    let plugin = prerequisite.plugin.as_deref();
    if plugin.is_none_or(|p| p == CMD) {
        r.only(entry, OTHER_KEYS);
    } else {
        // Other plugins have keys of their own.
        r.ignored(&entry.at("plugin"), "plugins other than cmd are not run");
    }
    prerequisite.hooks = callbacks(r, entry);
    prerequisite.hooks.on_failure = failure_policy(r, entry);
}

/// Reads `callbacks`: commands by event.
pub(super) fn callbacks(r: &mut Reader, entry: &Cursor<'_>) -> Hooks {
    let mut hooks = Hooks::default();
    for callback in r.list(entry, "callbacks") {
        if !r.is_map(&callback, &["event", "commands"]) {
            continue;
        }
        let accepted = "taskStarts or taskSucceeds";
        let Some(event) = r.required_text(&callback, "event", accepted) else {
            continue;
        };
        let event = match event.as_str() {
            "taskStarts" | "containerStarts" => Event::Starts,
            "taskSucceeds" | "containerEnds" => Event::Succeeds,
            _ => {
                r.expected(&callback.at("event"), accepted);
                continue;
            }
        };
        let lines = r.lines(&callback, "commands");
        hooks.of(event).extend(lines);
    }
    hooks
}

/// Reads `failurePolicy`.
pub(super) fn failure_policy(r: &mut Reader, entry: &Cursor<'_>) -> FailurePolicy {
    match r.text(entry, "failurePolicy").as_deref() {
        None | Some("fail") => FailurePolicy::Fail,
        Some("ignore") => FailurePolicy::Ignore,
        Some(_) => {
            r.expected(&entry.at("failurePolicy"), "fail or ignore");
            FailurePolicy::Fail
        }
    }
}
