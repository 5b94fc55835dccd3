//! `dovetail policies [NAME]`: lists policies and parts.

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_model::suggest::nearest;
use dovetail_policies::registry::{self, Kind, Listing};
use dovetail_policies::{Overrides, Preset, build, presets};
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
            "presets": presets().iter().map(preset_json).collect::<Vec<_>>(),
            "parts": registry::all().iter().map(part_json).collect::<Vec<_>>(),
        });
        return console::print(serde_json::to_string_pretty(&all).or_work()?);
    }
    let mut table = console::table(&["policy", "what it does", "order", "discipline", "sizing", "knows"]);
    for preset in presets() {
        let knows = knowledge_name(needs(preset));
        table.add_row([
            preset.name,
            preset.what,
            preset.order,
            preset.discipline,
            preset.sizing,
            knows,
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
        let mut table = console::table(&[kind.name(), "what it does", "knobs"]);
        for part in registry::all().iter().filter(|p| p.kind == kind) {
            let knobs: Vec<String> = part
                .knobs
                .iter()
                .map(|k| format!("{}={}", k.name, k.default))
                .collect();
            table.add_row([part.name, part.what, &knobs.join(" ")]);
        }
        console::print(format!("\n{table}"))?;
    }
    console::print("\n`dovetail policies NAME` shows the paper, the ordering key and every knob.")
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
            "preset": preset.map(preset_json),
            "parts": parts.iter().map(part_json).collect::<Vec<_>>(),
        });
        return console::print(serde_json::to_string_pretty(&value).or_work()?);
    }
    if let Some(preset) = preset {
        console::print(format!("{}: {}", preset.name, preset.what))?;
        console::print(format!("  order       {}", preset.order))?;
        console::print(format!("  discipline  {}", preset.discipline))?;
        console::print(format!("  sizing      {}", preset.sizing))?;
        console::print(format!(
            "  knows       {} of remaining run times",
            knowledge_name(needs(preset))
        ))?;
        for part in registry::all().iter().filter(|p| {
            (p.kind == Kind::Order && p.name == preset.order)
                || (p.kind == Kind::Discipline && p.name == preset.discipline)
                || (p.kind == Kind::Sizing && p.name == preset.sizing && preset.sizing != "rigid")
        }) {
            show_part(part)?;
        }
        return Ok(());
    }
    parts.iter().try_for_each(show_part)
}

fn show_part(part: &Listing) -> Result<(), Failure> {
    console::print(format!("\n{} `{}`: {}", part.kind.name(), part.name, part.what))?;
    console::print(format!("  source  {}", part.source))?;
    console::print(format!(
        "  {}    {}",
        if part.kind == Kind::Order { "key " } else { "rule" },
        part.key
    ))?;
    for knob in part.knobs {
        console::print(format!(
            "  knob    {} (default {}): {}",
            knob.name, knob.default, knob.what
        ))?;
    }
    Ok(())
}

fn needs(preset: &Preset) -> dovetail_engine::Knowledge {
    build(preset.name, &Overrides::default()).map_or(dovetail_engine::Knowledge::None, |(_, needs)| needs)
}

fn preset_json(preset: &Preset) -> Value {
    json!({
        "name": preset.name, "what": preset.what, "order": preset.order, "discipline": preset.discipline,
        "sizing": preset.sizing, "knowledge": knowledge_name(needs(preset)),
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
        "knowledge": knowledge_name(part.knowledge), "knobs": knobs,
    })
}
