//! `dovetail policies [NAME]`: lists policies and parts.

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_engine::{Capabilities, Knowledge, Need, NeedSet, Policy, Support};
use dovetail_hub::AGENTS;
use dovetail_kube::{ClusterFeatures, KUBERNETES};
use dovetail_model::suggest::nearest;
use dovetail_policies::registry::{self, Kind, Listing};
use dovetail_policies::{Overrides, Preset, build, check_runtime, presets};
use dovetail_sim::SIMULATOR;
use dovetail_sim::config::knowledge_name;
use serde_json::{Value, json};

use crate::args::PoliciesArgs;

/// Lists everything, or shows one preset or part.
///
/// # Errors
/// If there is no policy or part with that name.
pub fn run(args: &PoliciesArgs) -> Result<(), Failure> {
    match &args.name {
        None => list(args.json),
        Some(name) => one(name, args.json),
    }
}

fn list(as_json: bool) -> Result<(), Failure> {
    if as_json {
        let all = json!({
            "presets": presets().iter().map(preset_json).collect::<Result<Vec<_>, _>>()?,
            "runtimes": runtimes().iter().map(runtime_json).collect::<Vec<_>>(),
            "parts": registry::all().iter().map(part_json).collect::<Vec<_>>(),
        });
        return console::print(serde_json::to_string_pretty(&all).or_work()?);
    }
    let mut table = console::table(&["policy", "what it does", "parts", "needs", "runs on"]);
    for preset in presets() {
        let policy = built(preset)?;
        let parts = [preset.order, preset.discipline, preset.sizing, preset.grouping];
        table.add_row([
            preset.name,
            preset.what,
            &parts.join(" "),
            &policy.needs().union().to_string(),
            &runtimes_text(&policy),
        ]);
    }
    console::print(table)?;
    for kind in [
        Kind::Order,
        Kind::Discipline,
        Kind::Admission,
        Kind::Sizing,
        Kind::Grouping,
        Kind::Placement,
        Kind::Tenancy,
    ] {
        let mut table = console::table(&[kind.name(), "what it does", "knobs", "needs"]);
        for part in registry::all().iter().filter(|p| p.kind == kind) {
            let knobs: Vec<String> = part
                .knobs
                .iter()
                .map(|k| format!("{}={}", k.name, k.default))
                .collect();
            table.add_row([part.name, part.what, &knobs.join(" "), &part.needs.to_string()]);
        }
        console::print(format!("\n{table}"))?;
    }
    console::print(
        "\n`dovetail policies NAME` shows the paper, the ordering key, every knob, and what runs where.",
    )
}

fn one(name: &str, as_json: bool) -> Result<(), Failure> {
    let preset = presets().iter().find(|p| p.name == name);
    let parts: Vec<Listing> = registry::all().into_iter().filter(|p| p.name == name).collect();
    if preset.is_none() && parts.is_empty() {
        let all = registry::all();
        let names = presets().iter().map(|p| p.name).chain(all.iter().map(|p| p.name));
        let near = nearest(name, names.collect::<std::collections::BTreeSet<_>>());
        let hint = if near.is_empty() {
            String::new()
        } else {
            format!(", did you mean {}?", near.join(" or "))
        };
        return Err(Failure::request(format!("unknown policy or part `{name}`{hint}")));
    }
    if as_json {
        let value = json!({
            "preset": preset.map(preset_json).transpose()?,
            "parts": parts.iter().map(part_json).collect::<Vec<_>>(),
        });
        return console::print(serde_json::to_string_pretty(&value).or_work()?);
    }
    if let Some(preset) = preset {
        show_preset(preset)?;
        for part in registry::all().iter().filter(|p| {
            (p.kind == Kind::Order && p.name == name_of(preset.order))
                || (p.kind == Kind::Discipline && p.name == name_of(preset.discipline))
                || (p.kind == Kind::Sizing && p.name == preset.sizing && preset.sizing != "rigid")
                || (p.kind == Kind::Grouping
                    && p.name == name_of(preset.grouping)
                    && preset.grouping != "none")
        }) {
            show_part(part)?;
        }
        return Ok(());
    }
    parts.iter().try_for_each(show_part)
}

/// Returns the name of a part without its settings.
fn name_of(part: &str) -> &str {
    part.split(':').next().unwrap_or_default()
}

fn show_preset(preset: &Preset) -> Result<(), Failure> {
    let policy = built(preset)?;
    console::print(format!("{}: {}", preset.name, preset.what))?;
    console::print(format!("  order       {}", preset.order))?;
    console::print(format!("  discipline  {}", preset.discipline))?;
    console::print(format!("  sizing      {}", preset.sizing))?;
    console::print(format!("  grouping    {}", preset.grouping))?;
    console::print(format!(
        "  knows       {} of remaining run times",
        knowledge_name(policy.knowledge())
    ))?;
    for need in policy.needs().iter() {
        console::print(format!(
            "  needs       {} (for {} {})",
            need.need, need.kind, need.part
        ))?;
    }
    if !policy.hints().is_empty() {
        console::print(format!("  uses        {} where known", policy.hints()))?;
    }
    console::print(format!("  runs on     {}", runtimes_text(&policy)))?;
    if let Some(reason) = refused_by_plain_cluster(&policy) {
        console::print(format!("  refused     where a cluster lacks that: {reason}"))?;
    }
    for runtime in runtimes() {
        if let Err(error) = check_runtime(&policy, &runtime) {
            console::print(format!("  not on      {}: {error}", short_name(&runtime)))?;
        }
    }
    Ok(())
}

fn show_part(part: &Listing) -> Result<(), Failure> {
    console::print(format!("\n{} `{}`: {}", part.kind.name(), part.name, part.what))?;
    console::print(format!("  source  {}", part.source))?;
    console::print(format!(
        "  {}    {}",
        if part.kind == Kind::Order { "key " } else { "rule" },
        part.key
    ))?;
    if !part.needs.is_empty() {
        console::print(format!("  needs   {}", part.needs))?;
    }
    if !part.hints.is_empty() {
        console::print(format!("  uses    {} where known", part.hints))?;
    }
    for knob in part.knobs {
        console::print(format!(
            "  knob    {} (default {}): {}",
            knob.name, knob.default, knob.what
        ))?;
    }
    Ok(())
}

fn built(preset: &Preset) -> Result<Policy, Failure> {
    let (policy, _) = build(preset.name, &Overrides::default()).or_work()?;
    Ok(policy)
}

/// Returns what each runtime can do.
pub fn runtimes() -> [Capabilities; 3] {
    [SIMULATOR, AGENTS, KUBERNETES]
}

/// Returns the names of the runtimes that have every mechanism that the policy needs.
pub fn runtimes_of(policy: &Policy) -> Vec<&'static str> {
    let runtimes = runtimes().into_iter();
    let able = runtimes.filter(|runtime| check_runtime(policy, runtime).is_ok());
    able.map(|runtime| short_name(&runtime)).collect()
}

/// Returns the names of these runtimes as text. A cluster of Kubernetes may lack a mechanism.
fn runtimes_text(policy: &Policy) -> String {
    let mut names: Vec<String> = runtimes_of(policy).into_iter().map(str::to_owned).collect();
    if let Some(last) = names.last_mut().filter(|name| *name == KUBERNETES.runtime)
        && let Some(mechanism) = conditional_need(policy)
    {
        *last = format!("{last} (where it supports {mechanism})");
    }
    names.join(", ")
}

/// Returns why a cluster of Kubernetes without optional mechanisms refuses a policy that others carry out.
fn refused_by_plain_cluster(policy: &Policy) -> Option<String> {
    check_runtime(policy, &KUBERNETES).ok()?;
    let refusal = check_runtime(policy, &ClusterFeatures::NONE.capabilities()).err()?;
    Some(refusal.to_string())
}

/// Returns the mechanism that a policy needs and that only some clusters of Kubernetes have.
pub fn conditional_need(policy: &Policy) -> Option<Need> {
    check_runtime(policy, &KUBERNETES).ok()?;
    let plain = ClusterFeatures::NONE.capabilities();
    plain
        .first_unsupported(&policy.needs())
        .map(|unsupported| unsupported.need.need)
}

/// Returns the name of a runtime without an article.
fn short_name(runtime: &Capabilities) -> &'static str {
    runtime.runtime.trim_start_matches("the ")
}

fn codes(needs: NeedSet) -> Vec<&'static str> {
    needs.iter().map(Need::code).collect()
}

fn preset_json(preset: &Preset) -> Result<Value, Failure> {
    let policy = built(preset)?;
    let knowledge: Knowledge = policy.knowledge();
    let needs = policy.needs();
    let by_part = needs
        .iter()
        .map(|need| json!({"kind": need.kind, "part": need.part, "need": need.need.code()}));
    Ok(json!({
        "name": preset.name, "what": preset.what, "order": preset.order, "discipline": preset.discipline,
        "sizing": preset.sizing, "grouping": preset.grouping, "knowledge": knowledge_name(knowledge),
        "needs": codes(needs.union()), "needs_by_part": by_part.collect::<Vec<_>>(), "uses": codes(policy.hints()),
        "runs_on": runtimes_of(&policy), "kubernetes_needs": conditional_need(&policy).map(Need::code),
    }))
}

fn runtime_json(runtime: &Capabilities) -> Value {
    let support = |support: Support| json!({"available": support.is_available(), "how": support.text()});
    json!({
        "name": short_name(runtime), "gpu_choice": support(runtime.gpu_choice), "sharing": support(runtime.sharing),
        "resize": support(runtime.resize), "width": support(runtime.width), "progress": support(runtime.progress),
    })
}

fn part_json(part: &Listing) -> Value {
    let knobs: Vec<Value> = part
        .knobs
        .iter()
        .map(|k| json!({"name": k.name, "default": k.default, "what": k.what}))
        .collect();
    json!({
        "kind": part.kind.name(), "name": part.name, "what": part.what, "source": part.source, "key": part.key,
        "knowledge": knowledge_name(part.knowledge), "needs": codes(part.needs), "uses": codes(part.hints),
        "knobs": knobs,
    })
}
