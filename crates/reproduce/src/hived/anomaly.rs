//! `reproduce hived-sharing-anomaly`: Philly's virtual clusters under quotas, in cells, and each in a private cluster.

use std::collections::BTreeSet;

use comfy_table::Table;
use dovetail_console as console;
use dovetail_model::run::RunRecord;
use dovetail_report::format::{count, span};
use dovetail_report::{BarSeries, Figure, grouped_bars};
use dovetail_sim::anomaly::{Anomaly, sharing_anomaly as compare};
use dovetail_workload::{Format, Workload, read};
use rayon::prelude::*;
use serde_json::json;

use super::clusters::{GPUS_PER_MACHINE, Owner, RESTART_COST, Sharing, jobs_of, run};
use crate::data::data_folder;
use crate::{Options, Report, ReproduceError, Statement};

const POLICIES: [&str; 2] = ["tiresias", "srsf"];
/// Tenants with fewer jobs are left out.
const FEWEST_JOBS: usize = 100;
/// Jobs of the trace, unless all are requested.
const JOBS: usize = 20_000;
/// Mean requested GPUs over owned GPUs.
const LOAD: f64 = 0.8;
const SHARINGS: [Sharing; 2] = [Sharing::Quota, Sharing::Cells];
/// One in this many jobs of a tenant is opportunistic.
const OPPORTUNISTIC_EVERY: usize = 4;

/// The results of one policy.
struct PolicyStudy {
    policy: &'static str,
    quota: Vec<Anomaly>,
    cells: Vec<Anomaly>,
    /// Mean completion time of opportunistic jobs in seconds: private, quota, cells.
    opportunistic_s: [f64; 3],
}

/// The tenants, their jobs, and the names of the opportunistic ones.
struct Study {
    workload: Workload,
    owners: Vec<Owner>,
    opportunistic: BTreeSet<String>,
}

/// Compares waiting times in shared clusters with those in private ones.
pub(crate) fn sharing_anomaly(options: &Options) -> Result<Report, ReproduceError> {
    let folder = data_folder(options, "traces/philly-pollux")?;
    let mut workload = read(folder.join("philly.csv.gz"), Some(Format::Pollux))?;
    if !options.full {
        workload.jobs.truncate(JOBS);
    }
    let study = Study::new(workload);
    let steps = POLICIES.len() * SHARINGS.len() * (study.owners.len() + 1);
    let bar = options.progress_bar(steps, "hived-sharing-anomaly");
    let results: Vec<PolicyStudy> = POLICIES
        .par_iter()
        .map(|policy| study.run(policy, &bar))
        .collect::<Result<_, _>>()?;
    bar.finish_and_clear();
    Ok(study.report(&results))
}

impl Study {
    /// Keeps the tenants with enough jobs, gives each enough machines for its load and its widest job, and makes every
    /// fourth of its jobs opportunistic.
    fn new(mut workload: Workload) -> Self {
        let owners = owners(&workload);
        let names = workload.names.tenants.clone();
        workload
            .jobs
            .retain(|job| owners.iter().any(|owner| owner.tenant == names[job.tenant]));
        let mut jobs_by_tenant = vec![0_usize; names.len()];
        for job in &mut workload.jobs {
            let jobs = &mut jobs_by_tenant[job.tenant.0 as usize];
            *jobs += 1;
            job.priority = if jobs.is_multiple_of(OPPORTUNISTIC_EVERY) {
                -1
            } else {
                0
            };
        }
        let opportunistic = workload.jobs.iter().filter(|job| job.priority < 0);
        Self {
            opportunistic: opportunistic.map(|job| job.label.to_string()).collect(),
            owners,
            workload,
        }
    }

    /// Runs one policy in the shared clusters and in a private cluster for each tenant.
    fn run(&self, policy: &'static str, bar: &console::ProgressBar) -> Result<PolicyStudy, ReproduceError> {
        let run = |sharing: Sharing, owners: &[Owner], workload: &Workload| {
            let record = run(policy, sharing, owners, workload);
            bar.inc(1);
            record
        };
        let shared = SHARINGS
            .par_iter()
            .map(|sharing| run(*sharing, &self.owners, &self.workload))
            .collect::<Result<Vec<RunRecord>, ReproduceError>>()?;
        // A private cluster is scheduled like the shared one, so that sharing is the only difference.
        let private_runs = |sharing: Sharing| {
            let private = |owner: &Owner| {
                let jobs = jobs_of(&self.workload, &owner.tenant);
                run(sharing, std::slice::from_ref(owner), &jobs)
            };
            self.owners
                .par_iter()
                .map(private)
                .collect::<Result<Vec<RunRecord>, ReproduceError>>()
        };
        let private = [private_runs(Sharing::Quota)?, private_runs(Sharing::Cells)?];
        let anomalies = |sharing: usize| -> Vec<Anomaly> {
            let is_guaranteed = |name: &str| !self.opportunistic.contains(name);
            let pairs = self.owners.iter().zip(&private[sharing]);
            pairs
                .map(|(owner, alone)| compare(&owner.tenant, &shared[sharing], alone, &is_guaranteed))
                .collect()
        };
        Ok(PolicyStudy {
            policy,
            quota: anomalies(0),
            cells: anomalies(1),
            opportunistic_s: [
                self.opportunistic_jct(&private[1]),
                self.opportunistic_jct(&shared[..1]),
                self.opportunistic_jct(&shared[1..]),
            ],
        })
    }

    /// Returns the mean completion time of opportunistic jobs, in seconds.
    fn opportunistic_jct(&self, records: &[RunRecord]) -> f64 {
        let rows = records.iter().flat_map(|r| r.job_names.iter().zip(&r.rows));
        let jcts: Vec<f64> = rows
            .filter(|(name, _)| self.opportunistic.contains(*name))
            .filter_map(|(_, row)| row.jct().map(|time| time.as_secs_f64()))
            .collect();
        jcts.iter().sum::<f64>() / jcts.len().max(1) as f64
    }

    fn report(&self, results: &[PolicyStudy]) -> Report {
        let statements = results
            .iter()
            .flat_map(|result| [result.cells_have_none(), result.quota_has_one()]);
        let mut notes: Vec<String> = results.iter().map(PolicyStudy::note).collect();
        let machines: u32 = self.owners.iter().map(|owner| owner.machines).sum();
        notes.push(format!(
            "{} jobs of Philly in {} virtual clusters on {} GPUs; every fourth job of a tenant is opportunistic, and extra \
             waiting is that of the others",
            count(self.workload.jobs.len() as u64),
            self.owners.len(),
            count(u64::from(machines * GPUS_PER_MACHINE)),
        ));
        Report {
            table: self.table(results),
            statements: statements.collect(),
            notes,
            figures: results.iter().map(|result| self.figure(result)).collect(),
            data: json!(results.iter().map(PolicyStudy::to_json).collect::<Vec<_>>()),
        }
    }

    fn table(&self, results: &[PolicyStudy]) -> Table {
        let mut table = console::table(&[
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
        for result in results {
            let anomalies = result.quota.iter().zip(&result.cells);
            for (owner, (quota, cells)) in self.owners.iter().zip(anomalies) {
                table.add_row([
                    result.policy.to_owned(),
                    owner.tenant.clone(),
                    (owner.machines * GPUS_PER_MACHINE).to_string(),
                    count(quota.jobs),
                    span(quota.private_wait_s),
                    signed_span(quota.extra_s()),
                    signed_span(quota.worst_job_s),
                    span(cells.private_wait_s),
                    signed_span(cells.extra_s()),
                    signed_span(cells.worst_job_s),
                ]);
            }
        }
        console::align_numbers(&mut table);
        table
    }

    fn figure(&self, result: &PolicyStudy) -> Figure {
        let tenants: Vec<&str> = self.owners.iter().map(|owner| owner.tenant.as_str()).collect();
        let minutes = |anomalies: &[Anomaly]| {
            anomalies
                .iter()
                .map(|anomaly| Some(anomaly.extra_s() / 60.0))
                .collect::<Vec<_>>()
        };
        let mut figure = grouped_bars(
            &format!("Waiting beyond that in a private cluster, {}", result.policy),
            "minutes, mean over the tenant's guaranteed jobs",
            &tenants,
            &[
                BarSeries::ours("quota", minutes(&result.quota)),
                BarSeries::ours("cells", minutes(&result.cells)),
            ],
        );
        figure.name = format!("hived-sharing-anomaly-{}", result.policy);
        figure
    }
}

/// Returns the tenants with enough jobs and the machines that each would buy, by GPU time downwards.
fn owners(workload: &Workload) -> Vec<Owner> {
    let (first, last) = (workload.jobs.first(), workload.jobs.last());
    let span_s = first
        .zip(last)
        .map_or(1.0, |(a, b)| (b.submit - a.submit).as_secs_f64())
        .max(1.0);
    let mut owners: Vec<(f64, Owner)> = Vec::new();
    for (id, name) in workload.names.tenants.iter() {
        let jobs: Vec<_> = workload.jobs.iter().filter(|job| job.tenant == id).collect();
        if jobs.len() < FEWEST_JOBS {
            continue;
        }
        let gpu_s: f64 = jobs
            .iter()
            .map(|job| job.work.as_secs_f64() * f64::from(job.gpus))
            .sum();
        let widest = jobs.iter().map(|job| job.gpus).max().unwrap_or(1);
        let machines = (gpu_s / span_s / LOAD / f64::from(GPUS_PER_MACHINE)).ceil() as u32;
        let owner = Owner {
            tenant: name.clone(),
            machines: machines.max(widest.div_ceil(GPUS_PER_MACHINE)),
        };
        owners.push((gpu_s, owner));
    }
    owners.sort_by(|a, b| b.0.total_cmp(&a.0));
    owners.into_iter().map(|(_, owner)| owner).collect()
}

impl PolicyStudy {
    fn cells_have_none(&self) -> Statement {
        let affected: Vec<String> = self
            .cells
            .iter()
            .filter(|anomaly| anomaly.is_anomalous(RESTART_COST))
            .map(|anomaly| format!("{} by {}", anomaly.tenant, span(anomaly.extra_s())))
            .collect();
        let later: u64 = self.cells.iter().map(|anomaly| anomaly.later).sum();
        let jobs: u64 = self.cells.iter().map(|anomaly| anomaly.jobs).sum();
        let worst_s = self
            .cells
            .iter()
            .map(|anomaly| anomaly.worst_job_s)
            .fold(0.0, f64::max);
        let statement = format!(
            "{} in cells: no tenant waits longer than in its private cluster",
            self.policy
        );
        let text = if affected.is_empty() {
            format!(
                "{statement} ({} of {} jobs do, the worst by {})",
                count(later),
                count(jobs),
                span(worst_s)
            )
        } else {
            format!("{statement}; not: {}", affected.join(", "))
        };
        Statement::new(text, affected.is_empty())
    }

    fn quota_has_one(&self) -> Statement {
        let worst = self
            .quota
            .iter()
            .max_by(|a, b| a.extra_s().total_cmp(&b.extra_s()));
        let affected = self
            .quota
            .iter()
            .filter(|anomaly| anomaly.is_anomalous(RESTART_COST))
            .count();
        let (tenant, extra_s) = worst.map_or((String::new(), 0.0), |anomaly| {
            (anomaly.tenant.clone(), anomaly.extra_s())
        });
        Statement::new(
            format!(
                "{} under quotas: {affected} of {} tenants have an anomaly; {tenant} waits {} longer on average",
                self.policy,
                self.quota.len(),
                span(extra_s)
            ),
            affected > 0,
        )
    }

    fn note(&self) -> String {
        let [private, quota, cells] = self.opportunistic_s.map(span);
        format!(
            "{}: mean completion time of opportunistic jobs is {private} in private clusters, {quota} under quotas, {cells} \
             in cells",
            self.policy
        )
    }

    fn to_json(&self) -> serde_json::Value {
        let [private, quota, cells] = self.opportunistic_s;
        json!({
            "policy": self.policy,
            "quota": self.quota,
            "cells": self.cells,
            "borrowers_avg_jct_s": { "private": private, "quota": quota, "cells": cells },
        })
    }
}

/// Formats seconds with a sign; `0` below half a second.
fn signed_span(seconds: f64) -> String {
    match seconds {
        s if s.abs() < 0.5 => "0".to_owned(),
        s if s < 0.0 => format!("−{}", span(-s)),
        s => format!("+{}", span(s)),
    }
}
