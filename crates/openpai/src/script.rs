//! What an instance of a role runs: its commands, with what its deployment, its prerequisites and the plugins put around
//! them, as one script that stops at the first command that fails.

use std::collections::BTreeMap;

use crate::job::{FailurePolicy, Hooks, Job, Plugin, Prerequisite, Role};
use crate::node::Node;
use crate::remark::Remark;
use crate::template::{Scope, render};

/// What an instance of a role runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    /// The text, for `bash -c`. Tokens of secrets stand in it.
    pub text: String,
    /// The secrets it uses, by the name in their token.
    pub secrets: BTreeMap<String, String>,
    /// Tokens that name nothing; they stand in the text as they are.
    pub unknown: Vec<Remark>,
}

/// The script of a role.
pub fn script(job: &Job, role: &Role) -> Script {
    let mut writer = Writer {
        scope: scope(job, role),
        script: Script {
            text: "set -e\n".to_owned(),
            ..Script::default()
        },
    };
    let used: Vec<(usize, &Prerequisite)> = role
        .prerequisites
        .iter()
        .filter_map(|name| {
            job.prerequisites
                .iter()
                .enumerate()
                .find(|(_, p)| p.name == *name)
        })
        .collect();
    for (i, plugin) in job.plugins.iter().enumerate() {
        let path = format!("extras.com.microsoft.pai.runtimeplugin[{i}]");
        match plugin {
            Plugin::Git {
                repo,
                options,
                folder,
                on_failure,
            } => {
                let line = clone_line(repo, options, folder.as_deref());
                writer.block(&path, &[line], *on_failure);
            }
            Plugin::Cmd(hooks) => writer.block(&path, &hooks.before, hooks.on_failure),
            Plugin::Ssh { .. } | Plugin::Tensorboard | Plugin::TeamwiseStorage(_) => {}
        }
    }
    for (i, prerequisite) in &used {
        let hooks = &prerequisite.hooks;
        writer.block(&format!("prerequisites[{i}]"), &hooks.before, hooks.on_failure);
    }
    let around = job.chosen_deployment().and_then(|d| {
        let found = d.roles.iter().find(|(name, _)| *name == role.name);
        found.map(|(_, hooks)| hooks)
    });
    let none = Hooks::default();
    let around = around.unwrap_or(&none);
    let chosen = job.deployment.as_deref().unwrap_or_default();
    let path = format!("deployments.{chosen}.taskRoles.{}", role.name);
    writer.block(
        &format!("{path}.preCommands"),
        &around.before,
        FailurePolicy::Fail,
    );
    writer.block(
        &format!("taskRoles.{}.commands", role.name),
        &role.commands,
        FailurePolicy::Fail,
    );
    writer.block(
        &format!("{path}.postCommands"),
        &around.after,
        FailurePolicy::Fail,
    );
    for (i, prerequisite) in used.iter().rev() {
        let hooks = &prerequisite.hooks;
        writer.block(&format!("prerequisites[{i}]"), &hooks.after, hooks.on_failure);
    }
    for (i, plugin) in job.plugins.iter().enumerate().rev() {
        if let Plugin::Cmd(hooks) = plugin {
            let path = format!("extras.com.microsoft.pai.runtimeplugin[{i}]");
            writer.block(&path, &hooks.after, hooks.on_failure);
        }
    }
    writer.script
}

/// What templates of a role may name.
fn scope<'a>(job: &'a Job, role: &Role) -> Scope<'a> {
    let named = |name: &Option<String>, kind: &str| {
        let name = name.as_ref()?;
        let found = job
            .prerequisites
            .iter()
            .find(|p| p.name == *name && p.kind.name() == kind);
        found.map(|p| &p.keys)
    };
    let present = |node: &'a Node| (*node != Node::Null).then_some(node);
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

struct Writer<'a> {
    scope: Scope<'a>,
    script: Script,
}

impl Writer<'_> {
    fn block(&mut self, path: &str, lines: &[String], on_failure: FailurePolicy) {
        if lines.is_empty() {
            return;
        }
        if on_failure == FailurePolicy::Ignore {
            // A subshell of its own, so that the first failure ends the block and nothing else.
            self.script.text.push_str("set +e\n(\nset -e\n");
        }
        for (i, line) in lines.iter().enumerate() {
            let rendered = render(line.trim(), &self.scope);
            self.script.text.push_str(&rendered.text);
            self.script.text.push('\n');
            self.script.secrets.extend(rendered.secrets);
            let here = format!("{path}[{i}]");
            let remarks = rendered
                .unknown
                .into_iter()
                .map(|what| Remark::new(here.clone(), what));
            self.script.unknown.extend(remarks);
        }
        if on_failure == FailurePolicy::Ignore {
            self.script.text.push_str(")\nset -e\n");
        }
    }
}

/// The line that clones a repository.
fn clone_line(repo: &str, options: &[String], folder: Option<&str>) -> String {
    let mut line = "git clone".to_owned();
    let words = options.iter().map(String::as_str).chain([repo]).chain(folder);
    for word in words {
        line.push_str(" '");
        line.push_str(&word.replace('\'', r"'\''"));
        line.push('\'');
    }
    line
}
