//! `dovetail profile list|show`: stages of models, how jobs interleave theirs, and curves over CPU and memory. `run` is
//! [`super::profile_run`]; what was measured on a live cluster is in [`crate::live::profiles`].

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_model::stages::{MOST_SHARERS, Ordering, Stages};
use dovetail_report::format::grouped;
use dovetail_report::lanes;
use dovetail_workload::{SensitivityTable, StageGroup, StageProfile, StageTable};
use serde_json::{Value, json};

use crate::args::{OrderingArg, ProfileArgs, ProfileCommand, ProfileShowArgs, StageSource};
use crate::live::profiles;

/// Runs `dovetail profile ...`.
///
/// # Errors
/// If a table is not readable, or lacks a model.
pub fn run(args: &ProfileArgs) -> Result<(), Failure> {
    match &args.command {
        ProfileCommand::List { from, client, json } => {
            match from.is_live() && profiles::list(client, *json)? {
                true => Ok(()),
                false => list(&stage_table(from)?, *json),
            }
        }
        ProfileCommand::Show(args) => match profiles::show(args)? {
            true => Ok(()),
            false => show_group(args),
        },
        ProfileCommand::Export { models, out, client } => profiles::export(models, out.as_deref(), client),
        ProfileCommand::Forget { model, client } => profiles::forget(model, client),
        ProfileCommand::Run(args) => super::profile_run::run(args),
    }
}

fn stage_table(from: &StageSource) -> Result<StageTable, Failure> {
    match (&from.profiles, &from.trace) {
        (Some(path), _) => StageTable::read(path).or_request(),
        (None, Some(path)) => StageTable::of_trace(path).or_request(),
        (None, None) => Ok(StageTable::default()),
    }
}

fn list(stages: &StageTable, as_json: bool) -> Result<(), Failure> {
    if as_json {
        let rows: Vec<Value> = stages.rows.iter().map(profile_json).collect();
        return console::print(serde_json::to_string_pretty(&rows).or_work()?);
    }
    let mut table = console::table(&[
        "model",
        "GPUs",
        "batch",
        "iteration, ms",
        "data",
        "GPU",
        "network",
    ]);
    for row in &stages.rows {
        let batch = row.batch_size.map(|b| b.to_string()).unwrap_or_default();
        let [data, gpu, network] = three(&row.stages).map(millis);
        table.add_row([
            row.model.clone(),
            row.gpus.to_string(),
            batch,
            millis(row.stages.iteration_us.into()),
            data,
            gpu,
            network,
        ]);
    }
    console::align_numbers(&mut table);
    console::print(table)
}

/// Data (storage and CPU together), GPU and network.
fn three(stages: &Stages) -> [f64; 3] {
    let [a, b, c, d] = stages.times_us.map(f64::from);
    if stages.four { [a + b, c, d] } else { [a, b, c] }
}

fn millis(us: f64) -> String {
    let shown = grouped(us / 1000.0, 1);
    shown.strip_suffix(".0").map(str::to_owned).unwrap_or(shown)
}

fn profile_json(row: &StageProfile) -> Value {
    let [data, gpu, network] = three(&row.stages).map(|us| us / 1000.0);
    let mut value = json!({
        "model": row.model, "gpus": row.gpus, "batch_size": row.batch_size,
        "iteration_ms": f64::from(row.stages.iteration_us) / 1000.0,
        "data_ms": data, "gpu_ms": gpu, "network_ms": network,
    });
    if row.stages.four {
        let [storage, cpu, ..] = row.stages.times_us.map(|us| f64::from(us) / 1000.0);
        (value["storage_ms"], value["cpu_ms"]) = (json!(storage), json!(cpu));
    }
    value
}

/// Returns the requested table of curves, or the built-in one if a single model has no stages but a curve.
fn curves(args: &ProfileShowArgs) -> Result<Option<SensitivityTable>, Failure> {
    if let Some(name) = &args.curve {
        return SensitivityTable::named(name).map(Some).or_request();
    }
    let plain = args.from.profiles.is_none() && args.from.trace.is_none();
    let ([model], true) = (&args.models[..], plain) else {
        return Ok(None);
    };
    let stages = StageTable::default();
    let known = stages.find(model, stages.rows[0].gpus).is_ok();
    let table = SensitivityTable::builtin("synergy-3").filter(|t| t.find(model, args.gpus, None).is_some());
    Ok(table.filter(|_| !known))
}

fn show_group(args: &ProfileShowArgs) -> Result<(), Failure> {
    if let Some(table) = curves(args)? {
        return super::sensitivity::show_curve(args, &table);
    }
    if args.models.len() > MOST_SHARERS {
        return Err(Failure::request(format!(
            "found {} models, expected one to {MOST_SHARERS}: jobs that share GPUs need a resource each",
            args.models.len()
        )));
    }
    let table = stage_table(&args.from)?;
    let find = |model: &String| table.find(model, args.gpus).cloned().or_request();
    let members = args.models.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let ordering = match args.ordering {
        OrderingArg::Best => Ordering::Best,
        OrderingArg::Worst => Ordering::Worst,
    };
    let group = StageGroup::new(members, ordering);
    if let Some(path) = &args.svg {
        let names = lanes::names(&group.members.iter().map(|m| m.model.as_str()).collect::<Vec<_>>());
        let figure = dovetail_report::interleaving(&names, &group.drawn, &title(&group), &caption(&group));
        dovetail_report::files::write_file(path, figure.svg().as_bytes()).or_work()?;
    }
    if args.json {
        return console::print(serde_json::to_string_pretty(&group_json(&group)).or_work()?);
    }
    describe(&group)?;
    match &args.svg {
        Some(path) => console::print(format!("figure: {}", path.display())),
        None => Ok(()),
    }
}

fn title(group: &StageGroup) -> String {
    let names: Vec<&str> = group.members.iter().map(|m| m.model.as_str()).collect();
    let gpus = group.members[0].gpus;
    format!(
        "{} on {gpus} GPU{}",
        names.join(" + "),
        if gpus == 1 { "" } else { "s" }
    )
}

fn caption(group: &StageGroup) -> String {
    format!(
        "Two periods of {} ms without contention, {} order. With contention (× {:.2}) a period takes {} ms and the four \
         resources are busy for {:.1} % of it.",
        millis(group.drawn.steady_us),
        ordering_name(group.ordering),
        group.contention,
        millis(group.period_us),
        group.efficiency * 100.0
    )
}

fn ordering_name(ordering: Ordering) -> &'static str {
    match ordering {
        Ordering::Best => "best",
        Ordering::Worst => "worst",
    }
}

fn describe(group: &StageGroup) -> Result<(), Failure> {
    console::print(title(group))?;
    console::print("")?;
    console::print(lanes::draw(&group.drawn, console::width(), console::colours()))?;
    console::print(member_table(group))?;
    describe_periods(group)
}

/// Returns the stages and slowdown of each member.
fn member_table(group: &StageGroup) -> comfy_table::Table {
    let mut table = console::table(&[
        "model",
        "data, ms",
        "GPU",
        "network",
        "iteration alone",
        "slowdown",
    ]);
    for (i, member) in group.members.iter().enumerate() {
        let [data, gpu, network] = three(&member.stages).map(millis);
        table.add_row([
            format!("{} {}", lanes::letter(i), member.model),
            data,
            gpu,
            network,
            format!("{} ms", millis(member.stages.iteration_us.into())),
            format!("{:.2}", group.slowdown(i)),
        ]);
    }
    console::align_numbers(&mut table);
    table
}

/// Prints the periods of the group, its efficiency, and what Muri's autopack does with it.
fn describe_periods(group: &StageGroup) -> Result<(), Failure> {
    let line = |name: &str, text: String| console::print(format!("{name:<12}{text}"));
    let efficiency = format!(
        "{:.3}: the mean busy share of storage, CPU, GPU and network",
        group.efficiency
    );
    if group.members.len() == 1 {
        line("period", format!("{} ms", millis(group.period_us)))?;
        return line("efficiency", efficiency);
    }
    let order: Vec<String> = group
        .drawn
        .order
        .iter()
        .map(|m| lanes::letter(*m).into())
        .collect();
    line(
        "period",
        format!(
            "{} ms in the {} order, {}; {} ms with contention (× {:.2})",
            millis(group.drawn.period_us),
            ordering_name(group.ordering),
            order.join(" "),
            millis(group.period_us),
            group.contention
        ),
    )?;
    if group.unsettled() {
        line(
            "",
            format!(
                "drawn is the period of {} ms to which the phases settle; Muri's formula stops before that",
                millis(group.drawn.steady_us)
            ),
        )?;
    }
    line(
        "orders",
        format!(
            "{} ms best, {} ms worst, with contention",
            millis(group.best_us),
            millis(group.worst_us)
        ),
    )?;
    line("efficiency", efficiency)?;
    line(
        "autopack",
        format!(
            "{}: {} ms together, {} ms one after the other",
            if group.kept() {
                "keeps the group"
            } else {
                "splits the group"
            },
            millis(group.period_us),
            millis(group.in_turn_us)
        ),
    )
}

fn group_json(group: &StageGroup) -> Value {
    let ms = |us: f64| us / 1000.0;
    let members: Vec<Value> = group
        .members
        .iter()
        .enumerate()
        .map(|(i, member)| {
            let mut value = profile_json(member);
            value["slowdown"] = json!(group.slowdown(i));
            value
        })
        .collect();
    let uses: Vec<Value> = group
        .drawn
        .uses
        .iter()
        .map(|u| {
            json!({
                "member": u.member, "resource": u.resource.name(), "start_ms": ms(u.start_us), "end_ms": ms(u.end_us),
            })
        })
        .collect();
    json!({
        "members": members,
        "ordering": ordering_name(group.ordering),
        "order": group.drawn.order,
        "period_ms": ms(group.drawn.period_us),
        "steady_period_ms": ms(group.drawn.steady_us),
        "contention": group.contention,
        "shared_period_ms": ms(group.period_us),
        "best_shared_period_ms": ms(group.best_us),
        "worst_shared_period_ms": ms(group.worst_us),
        "efficiency": group.efficiency,
        "one_after_the_other_ms": ms(group.in_turn_us),
        "autopack_keeps": group.kept(),
        "uses": uses,
    })
}
