//! `dovetail profile list|show|export|forget`, as far as it is about what was measured on a live cluster.

use std::fmt::Write as _;
use std::path::Path;

use dovetail_client::{Client, ClientError, block_on, percent_encode};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_report::format::{count, counted, grouped};
use dovetail_web::views::{MeasurementView, ProfileView};

use crate::args::ProfileShowArgs;
use crate::live::args::ClientArgs;
use crate::live::show::clock;

/// Connects to the live cluster; none if there is no `client.yaml` and none was named.
fn connect(client: &ClientArgs) -> Result<Option<Client>, Failure> {
    match Client::open(client.config.as_deref()) {
        Ok(client) => Ok(Some(client)),
        Err(ClientError::NotConfigured) if client.config.is_none() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Lists the profiles of a live cluster. Returns false if there is no live cluster.
///
/// # Errors
/// If the scheduler is unreachable.
pub fn list(client: &ClientArgs, as_json: bool) -> Result<bool, Failure> {
    let Some(client) = connect(client)? else {
        return Ok(false);
    };
    let profiles: Vec<ProfileView> = block_on(client.get("/api/v1/profiles"))?;
    if as_json {
        console::print(serde_json::to_string_pretty(&profiles).or_work()?)?;
        return Ok(true);
    }
    if profiles.is_empty() {
        console::print(format!(
            "No job on {} has reported steps yet. `dovetail profile list --built-in` lists the built-in models.",
            client.server()
        ))?;
        return Ok(true);
    }
    let mut table = console::table(&[
        "model", "jobs", "GPUs", "step, ms", "data", "network", "samples", "updated",
    ]);
    for profile in &profiles {
        for m in profile.measurements.iter().filter(|m| m.beside.is_none()) {
            table.add_row([
                profile.model.clone(),
                count(profile.jobs),
                m.gpus.to_string(),
                grouped(m.step_ms, 1),
                grouped(m.data_ms, 1),
                grouped(m.net_ms, 1),
                count(m.samples),
                clock(profile.updated),
            ]);
        }
    }
    console::align_numbers(&mut table);
    console::print(table)?;
    Ok(true)
}

/// Shows the profile of one model of a live cluster. Returns false if something else is asked for, or the cluster has no
/// profile of the model.
///
/// # Errors
/// If the scheduler is unreachable.
pub fn show(args: &ProfileShowArgs) -> Result<bool, Failure> {
    let ([model], true, None, None) = (&args.models[..], args.from.is_live(), &args.curve, &args.svg) else {
        return Ok(false);
    };
    let Some(client) = connect(&args.client)? else {
        return Ok(false);
    };
    let profiles: Vec<ProfileView> = block_on(client.get("/api/v1/profiles"))?;
    let Some(profile) = profiles.into_iter().find(|profile| profile.model == *model) else {
        return Ok(false);
    };
    match args.json {
        true => console::print(serde_json::to_string_pretty(&profile).or_work()?)?,
        false => describe(&profile)?,
    }
    Ok(true)
}

fn describe(profile: &ProfileView) -> Result<(), Failure> {
    let mut table = console::table(&[
        "GPUs", "nodes", "GPU type", "CPUs/GPU", "beside", "samples", "step, ms", "± 90 %", "data",
        "network", "slowdown",
    ]);
    for m in &profile.measurements {
        table.add_row(row(m));
    }
    console::align_numbers(&mut table);
    console::print(format!(
        "{}: measured on {}, last at {}",
        profile.model,
        counted(profile.jobs, "job"),
        clock(profile.updated)
    ))?;
    console::print(table)?;
    if let Some(cost) = profile.restart_s {
        console::print(format!(
            "A restart costs {cost:.1} s, by {}: from the stop to the first new step, without the wait for GPUs.",
            counted(profile.restarts, "restart")
        ))?;
    }
    if profile.scaling.is_empty() {
        return Ok(());
    }
    let speeds = profile
        .scaling
        .iter()
        .map(|(gpus, speed)| format!("{gpus}: {speed:.2}"));
    console::print(format!(
        "Speed by number of GPUs: {}",
        speeds.collect::<Vec<_>>().join(", ")
    ))
}

fn row(m: &MeasurementView) -> [String; 11] {
    let cpus = match m.cpus_per_gpu > 0.0 {
        true => grouped(m.cpus_per_gpu, 1),
        false => "any".to_owned(),
    };
    [
        m.gpus.to_string(),
        m.nodes.to_string(),
        m.gpu_type.clone(),
        cpus,
        m.beside.clone().unwrap_or_default(),
        count(m.samples),
        grouped(m.step_ms, 1),
        grouped(m.spread_ms, 1),
        grouped(m.data_ms, 1),
        grouped(m.net_ms, 1),
        m.slowdown.map(|s| format!("{s:.2}")).unwrap_or_default(),
    ]
}

/// Writes the profiles of a live cluster as a file for `simulate --profiles`.
///
/// # Errors
/// If the scheduler is unreachable, or the file cannot be written.
pub fn export(models: &[String], out: Option<&Path>, client: &ClientArgs) -> Result<(), Failure> {
    let client = Client::open(client.config.as_deref())?;
    let mut profiles: Vec<ProfileView> = block_on(client.get("/api/v1/profiles"))?;
    if let Some(unknown) = models
        .iter()
        .find(|name| profiles.iter().all(|p| p.model != **name))
    {
        let known: Vec<&str> = profiles.iter().map(|p| p.model.as_str()).collect();
        return Err(Failure::request(format!(
            "no profile of model {unknown:?}; measured: {}",
            known.join(", ")
        )));
    }
    profiles.retain(|p| models.is_empty() || models.contains(&p.model));
    let text = yaml(&profiles);
    match out {
        None => console::print(text.trim_end()),
        Some(path) => {
            dovetail_report::files::write_file(path, text.as_bytes()).or_work()?;
            let models = counted(profiles.len() as u64, "model");
            console::print(format!("{}: {models}", path.display()))
        }
    }
}

/// Returns profiles in the format of `simulate --profiles`. Names are quoted as in JSON, which is YAML.
fn yaml(profiles: &[ProfileView]) -> String {
    let quoted = |name: &str| serde_json::Value::from(name).to_string();
    let mut text = "models:\n".to_owned();
    if profiles.is_empty() {
        text = "models: {}\n".to_owned();
    }
    let mut slowdowns = String::new();
    for profile in profiles {
        let _ = writeln!(text, "  {}:", quoted(&profile.model));
        let points = profile
            .scaling
            .iter()
            .map(|(gpus, speed)| format!("{gpus}: {speed}"));
        if !profile.scaling.is_empty() {
            let _ = writeln!(text, "    scaling: {{{}}}", points.collect::<Vec<_>>().join(", "));
        }
        let _ = writeln!(text, "    stages:");
        let mut widths = std::collections::BTreeMap::new();
        for m in profile.measurements.iter().filter(|m| m.beside.is_none()) {
            let known = widths.entry(m.gpus).or_insert(m);
            if m.samples > known.samples {
                *known = m;
            }
        }
        for (gpus, m) in widths {
            let busy = m.step_ms - m.data_ms - m.net_ms;
            let _ = writeln!(
                text,
                "      {gpus}: {{data_ms: {}, gpu_ms: {busy:.3}, net_ms: {}}}",
                m.data_ms, m.net_ms
            );
        }
        let beside = profile
            .measurements
            .iter()
            .filter_map(|m| Some((m.beside.as_ref()?, m.gpus, m.slowdown?)));
        for (other, gpus, slowdown) in beside {
            let _ = writeln!(
                slowdowns,
                "  {}: {{{}: {{{gpus}: [{slowdown:.3}, {slowdown:.3}]}}}}",
                quoted(&profile.model),
                quoted(other)
            );
        }
    }
    match slowdowns.is_empty() {
        true => text,
        false => format!("{text}slowdown:\n{slowdowns}"),
    }
}

/// Deletes the profile of a model.
///
/// # Errors
/// If the scheduler is unreachable, or has no such profile.
pub fn forget(model: &str, client: &ClientArgs) -> Result<(), Failure> {
    let client = Client::open(client.config.as_deref())?;
    let path = format!("/api/v1/profiles/{}", percent_encode(model));
    block_on(client.delete(&path))?;
    console::print(format!("Deleted the profile of {model}."))
}
