//! The shell script of a role: its commands, surrounded by those of deployment, prerequisites and plugins. It stops at the
//! first command that fails.

use std::collections::BTreeMap;

use crate::job::{FailurePolicy, Job, Plugin, Prerequisite, Role};
use crate::remark::Remark;
use crate::template::{Scope, render};
use crate::value::Value;

/// The shell script of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    /// Text for `bash -c`. It contains the templates of secrets.
    pub text: String,
    /// Secrets that it uses, by the name in their template.
    pub secrets: BTreeMap<String, String>,
    /// Templates that refer to nothing; they are unchanged in the text.
    pub unknown: Vec<Remark>,
}

/// Returns the script of a role.
pub fn script(job: &Job, role: &Role) -> Script {
    let mut writer = Writer {
        scope: scope(job, role),
        script: Script {
            text: "set -e\n".to_owned(),
            ..Script::default()
        },
    };
    let find = |name: &String| {
        let mut all = job.prerequisites.iter().enumerate();
        all.find(|(_, p)| p.name == *name)
    };
    let used: Vec<(usize, &Prerequisite)> = role.prerequisites.iter().filter_map(find).collect();
    for (i, plugin) in job.plugins.iter().enumerate() {
        writer.before_plugin(i, plugin);
    }
    for (i, prerequisite) in &used {
        let hooks = &prerequisite.hooks;
        writer.block(&format!("prerequisites[{i}]"), &hooks.before, hooks.on_failure);
    }
    writer.role(job, role);
    for (i, prerequisite) in used.iter().rev() {
        let hooks = &prerequisite.hooks;
        writer.block(&format!("prerequisites[{i}]"), &hooks.after, hooks.on_failure);
    }
    for (i, plugin) in job.plugins.iter().enumerate().rev() {
        if let Plugin::Cmd(hooks) = plugin {
            writer.block(&plugin_path(i), &hooks.after, hooks.on_failure);
        }
    }
    writer.script
}

fn plugin_path(index: usize) -> String {
    format!("extras.com.microsoft.pai.runtimeplugin[{index}]")
}

/// Returns what templates of a role can refer to.
fn scope<'a>(job: &'a Job, role: &Role) -> Scope<'a> {
    let named = |name: &Option<String>, kind: &str| {
        let name = name.as_ref()?;
        let found = job
            .prerequisites
            .iter()
            .find(|p| p.name == *name && p.kind.name() == kind);
        found.map(|p| &p.keys)
    };
    let present = |node: &'a Value| (*node != Value::Null).then_some(node);
    Scope {
        roots: [
            ("parameters", present(&job.parameters)),
            ("data", named(&role.data, "data")),
            ("script", named(&role.script, "script")),
            ("output", named(&role.output, "output")),
            ("secrets", present(&job.secrets)),
        ],
    }
}

/// Collects the script.
struct Writer<'a> {
    scope: Scope<'a>,
    script: Script,
}

impl Writer<'_> {
    /// Writes the commands that a plugin runs before those of a role.
    fn before_plugin(&mut self, index: usize, plugin: &Plugin) {
        let path = plugin_path(index);
        match plugin {
            Plugin::Git {
                repo,
                options,
                folder,
                on_failure,
            } => {
                let line = clone_line(repo, options, folder.as_deref());
                self.block(&path, &[line], *on_failure);
            }
            Plugin::Cmd(hooks) => self.block(&path, &hooks.before, hooks.on_failure),
            Plugin::Ssh { .. } | Plugin::Tensorboard | Plugin::TeamwiseStorage(_) => {}
        }
    }

    /// Writes the commands of a role, surrounded by those of the selected deployment.
    fn role(&mut self, job: &Job, role: &Role) {
        let deployment = job.selected_deployment();
        let hooks = deployment.and_then(|d| d.roles.iter().find(|(name, _)| *name == role.name));
        let hooks = hooks.map(|(_, hooks)| hooks.clone()).unwrap_or_default();
        let selected = job.deployment.as_deref().unwrap_or_default();
        let path = format!("deployments.{selected}.taskRoles.{}", role.name);
        let commands = format!("taskRoles.{}.commands", role.name);
        let fail = FailurePolicy::Fail;
        self.block(&format!("{path}.preCommands"), &hooks.before, fail);
        self.block(&commands, &role.commands, fail);
        self.block(&format!("{path}.postCommands"), &hooks.after, fail);
    }

    /// Writes lines, whose templates are reported below `path`.
    fn block(&mut self, path: &str, lines: &[String], on_failure: FailurePolicy) {
        if lines.is_empty() {
            return;
        }
        if on_failure == FailurePolicy::Ignore {
            // In a subshell, the first failure ends the block and not the script.
            self.script.text.push_str("set +e\n(\nset -e\n");
        }
        for (i, line) in lines.iter().enumerate() {
            let rendered = render(line.trim(), &self.scope);
            self.script.text.push_str(&rendered.text);
            self.script.text.push('\n');
            self.script.secrets.extend(rendered.secrets);
            let line_path = format!("{path}[{i}]");
            let remarks = rendered
                .unknown
                .into_iter()
                .map(|message| Remark::new(line_path.clone(), message));
            self.script.unknown.extend(remarks);
        }
        if on_failure == FailurePolicy::Ignore {
            self.script.text.push_str(")\nset -e\n");
        }
    }
}

/// Returns the command that clones a repository.
fn clone_line(repo: &str, options: &[String], folder: Option<&str>) -> String {
    let mut line = "git clone".to_owned();
    let args = options.iter().map(String::as_str).chain([repo]).chain(folder);
    for arg in args {
        line.push_str(" '");
        line.push_str(&arg.replace('\'', r"'\''"));
        line.push('\'');
    }
    line
}
