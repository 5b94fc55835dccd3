//! `reproduce hived-sharing-anomaly`: Philly's virtual clusters under quota, in cells, and each in a cluster of its own.

use std::collections::BTreeSet;
use std::path::Path;

use dovetail_model::run::RunRecord;
use dovetail_report::format::{count, span};
use dovetail_report::{BarSeries, Figure, grouped_bars};
use dovetail_sim::anomaly::{Anomaly, sharing_anomaly as compare};
use dovetail_workload::{Format, Workload, read};
use rayon::prelude::*;
use serde_json::json;

use super::super::{Claim, Outcome, data};
use super::study::{Owner, PER_MACHINE, RESTART, Sharing, only, run};
use crate::args::ReproduceArgs;
use crate::failure::{Blame, Failure};
use crate::{progress, show};

const POLICIES: [&str; 2] = ["tiresias", "srsf"];
/// Tenants with fewer jobs are left out.
const FEWEST_JOBS: usize = 100;
/// Jobs of the trace in a run that is not full.
const JOBS: usize = 20_000;
/// Mean GPUs asked for over GPUs owned.
const LOAD: f64 = 0.8;
const SHARINGS: [Sharing; 2] = [Sharing::Quota, Sharing::Cells];
/// Every so many jobs of a tenant one only borrows.
const BORROWS: usize = 4;

/// What one policy gave.
struct Study {
    policy: &'static str,
    quota: Vec<Anomaly>,
    cells: Vec<Anomaly>,
    /// Mean completion time of borrowers, in seconds: private, quota, cells.
    borrowers_s: [f64; 3],
}

pub(in super::super) fn sharing_anomaly(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let folder = data(args, "traces/philly-pollux")?;
    let (workload, owners) = tenants(jobs(&folder, args.full)?);
    let borrows = borrowers(&workload);
    let steps = POLICIES.len() * SHARINGS.len() * (owners.len() + 1);
    let bar = progress::bar(steps as u64, "hived-sharing-anomaly", args.quiet || args.json);
    let studies: Vec<Study> = POLICIES
        .par_iter()
        .map(|policy| study(policy, &workload, &owners, &borrows, &bar))
        .collect::<Result<_, _>>()?;
    bar.finish_and_clear();
    Ok(outcome(&studies, &owners, &workload))
}

fn jobs(folder: &Path, full: bool) -> Result<Workload, Failure> {
    let mut workload = read(folder.join("philly.csv.gz"), Some(Format::Pollux)).or_request()?;
    if !full {
        workload.jobs.truncate(JOBS);
    }
    Ok(workload)
}

/// The tenants with enough jobs and the machines each would buy, and their jobs: every fourth of a tenant borrows.
fn tenants(mut workload: Workload) -> (Workload, Vec<Owner>) {
    let span = |w: &Workload| {
        let (first, last) = (w.jobs.first(), w.jobs.last());
        first
            .zip(last)
            .map_or(1.0, |(a, b)| (b.submit - a.submit).as_secs_f64())
    };
    let span_s = span(&workload).max(1.0);
    let mut owners: Vec<(f64, Owner)> = Vec::new();
    for (id, name) in workload.names.tenants.iter() {
        let own: Vec<_> = workload.jobs.iter().filter(|j| j.tenant == id).collect();
        if own.len() < FEWEST_JOBS {
            continue;
        }
        let gpu_s: f64 = own.iter().map(|j| j.work.as_secs_f64() * f64::from(j.gpus)).sum();
        let widest = own.iter().map(|j| j.gpus).max().unwrap_or(1);
        let machines = (gpu_s / span_s / LOAD / f64::from(PER_MACHINE)).ceil() as u32;
        let owner = Owner {
            tenant: name.clone(),
            machines: machines.max(widest.div_ceil(PER_MACHINE)),
        };
        owners.push((gpu_s, owner));
    }
    owners.sort_by(|a, b| b.0.total_cmp(&a.0));
    let owners: Vec<Owner> = owners.into_iter().map(|(_, owner)| owner).collect();
    let names = workload.names.tenants.clone();
    workload
        .jobs
        .retain(|j| owners.iter().any(|o| o.tenant == names[j.tenant]));
    let mut seen = vec![0_usize; names.len()];
    for job in &mut workload.jobs {
        let turn = &mut seen[job.tenant.0 as usize];
        *turn += 1;
        job.priority = if turn.is_multiple_of(BORROWS) { -1 } else { 0 };
    }
    (workload, owners)
}

/// Names of jobs that borrow.
fn borrowers(workload: &Workload) -> BTreeSet<String> {
    let low = workload.jobs.iter().filter(|j| j.priority < 0);
    low.map(|j| j.label.to_string()).collect()
}

fn study(
    policy: &'static str,
    workload: &Workload,
    owners: &[Owner],
    borrows: &BTreeSet<String>,
    bar: &indicatif::ProgressBar,
) -> Result<Study, Failure> {
    let done = |record: Result<RunRecord, Failure>| {
        bar.inc(1);
        record
    };
    let shared = SHARINGS
        .par_iter()
        .map(|sharing| done(run(policy, *sharing, owners, workload)))
        .collect::<Result<Vec<RunRecord>, Failure>>()?;
    // A private cluster is scheduled just as the shared one is, so that nothing but sharing makes a difference.
    let alone = |sharing: Sharing| {
        let own = |owner: &Owner| {
            let jobs = only(workload, &owner.tenant);
            done(run(policy, sharing, std::slice::from_ref(owner), &jobs))
        };
        owners
            .par_iter()
            .map(own)
            .collect::<Result<Vec<RunRecord>, Failure>>()
    };
    let private = [alone(Sharing::Quota)?, alone(Sharing::Cells)?];
    let of = |which: usize| -> Vec<Anomaly> {
        let each = owners.iter().zip(&private[which]);
        let guaranteed = |name: &str| !borrows.contains(name);
        each.map(|(o, alone)| compare(&o.tenant, &shared[which], alone, &guaranteed))
            .collect()
    };
    let low = |records: &[&RunRecord]| {
        let rows = records.iter().flat_map(|r| r.job_names.iter().zip(&r.rows));
        let jcts: Vec<f64> = rows
            .filter(|(name, _)| borrows.contains(*name))
            .filter_map(|(_, row)| row.jct().map(|t| t.as_secs_f64()))
            .collect();
        jcts.iter().sum::<f64>() / jcts.len().max(1) as f64
    };
    Ok(Study {
        policy,
        quota: of(0),
        cells: of(1),
        borrowers_s: [
            low(&private[1].iter().collect::<Vec<_>>()),
            low(&[&shared[0]]),
            low(&[&shared[1]]),
        ],
    })
}

fn outcome(studies: &[Study], owners: &[Owner], workload: &Workload) -> Outcome {
    let mut table = show::table(&[
        "policy",
        "tenant",
        "GPUs",
        "jobs",
        "quota: private wait",
        "extra",
        "worst job",
        "cells: private wait",
        "extra",
        "worst job",
    ]);
    for study in studies {
        for (owner, (quota, cells)) in owners.iter().zip(study.quota.iter().zip(&study.cells)) {
            table.add_row([
                study.policy.to_owned(),
                owner.tenant.clone(),
                (owner.machines * PER_MACHINE).to_string(),
                count(quota.jobs),
                span(quota.private_wait_s),
                extra(quota.extra_s()),
                extra(quota.worst_job_s),
                span(cells.private_wait_s),
                extra(cells.extra_s()),
                extra(cells.worst_job_s),
            ]);
        }
    }
    show::align_numbers(&mut table);
    let mut claims = Vec::new();
    for study in studies {
        claims.push(no_anomaly(study));
        claims.push(quota_has_one(study));
    }
    let borrowed = |s: &Study| {
        let [private, quota, cells] = s.borrowers_s.map(span);
        format!(
            "{}: mean completion time of borrowers {private} in private clusters, {quota} under quota, {cells} in cells",
            s.policy
        )
    };
    let mut notes: Vec<String> = studies.iter().map(borrowed).collect();
    notes.push(format!(
        "{} jobs of Philly in {} virtual clusters on {} GPUs; every fourth job of a tenant borrows, extra waiting is that of the others",
        count(workload.jobs.len() as u64),
        owners.len(),
        count(u64::from(owners.iter().map(|o| o.machines).sum::<u32>() * PER_MACHINE)),
    ));
    Outcome {
        table,
        claims,
        notes,
        figures: studies.iter().map(|s| figure(s, owners)).collect(),
        data: json!(studies.iter().map(json_of).collect::<Vec<_>>()),
    }
}

fn no_anomaly(study: &Study) -> Claim {
    let wronged: Vec<String> = study
        .cells
        .iter()
        .filter(|a| a.is_one(RESTART))
        .map(|a| format!("{} by {}", a.tenant, span(a.extra_s())))
        .collect();
    let later: u64 = study.cells.iter().map(|a| a.later).sum();
    let jobs: u64 = study.cells.iter().map(|a| a.jobs).sum();
    let worst = study.cells.iter().map(|a| a.worst_job_s).fold(0.0, f64::max);
    let text = match wronged.is_empty() {
        true => format!(
            "{} in cells: no tenant waits longer than in its private cluster ({} of {} jobs do, the worst by {})",
            study.policy,
            count(later),
            count(jobs),
            span(worst)
        ),
        false => format!(
            "{} in cells: no tenant waits longer than in its private cluster; not: {}",
            study.policy,
            wronged.join(", ")
        ),
    };
    Claim::new(text, wronged.is_empty())
}

fn quota_has_one(study: &Study) -> Claim {
    let worst = study
        .quota
        .iter()
        .max_by(|a, b| a.extra_s().total_cmp(&b.extra_s()));
    let wronged = study.quota.iter().filter(|a| a.is_one(RESTART)).count();
    let (tenant, extra) = worst.map_or((String::new(), 0.0), |a| (a.tenant.clone(), a.extra_s()));
    Claim::new(
        format!(
            "{} under quota: there is an anomaly, for {wronged} of {} tenants; {tenant} waits {} longer on average",
            study.policy,
            study.quota.len(),
            span(extra)
        ),
        wronged > 0,
    )
}

fn figure(study: &Study, owners: &[Owner]) -> Figure {
    let names: Vec<&str> = owners.iter().map(|o| o.tenant.as_str()).collect();
    let minutes = |all: &[Anomaly]| all.iter().map(|a| Some(a.extra_s() / 60.0)).collect::<Vec<_>>();
    let title = format!("Waiting beyond that in a private cluster, {}", study.policy);
    let mut figure = grouped_bars(
        &title,
        "minutes, mean over the tenant's guaranteed jobs",
        &names,
        &[
            BarSeries::ours("quota", minutes(&study.quota)),
            BarSeries::ours("cells", minutes(&study.cells)),
        ],
    );
    figure.name = format!("hived-sharing-anomaly-{}", study.policy);
    figure
}

fn json_of(study: &Study) -> serde_json::Value {
    let [private, quota, cells] = study.borrowers_s;
    json!({
        "policy": study.policy,
        "quota": study.quota,
        "cells": study.cells,
        "borrowers_avg_jct_s": { "private": private, "quota": quota, "cells": cells },
    })
}

/// A time with its sign; a dash for none.
fn extra(seconds: f64) -> String {
    match seconds {
        s if s.abs() < 0.5 => "0".to_owned(),
        s if s < 0.0 => format!("−{}", span(-s)),
        s => format!("+{}", span(s)),
    }
}
