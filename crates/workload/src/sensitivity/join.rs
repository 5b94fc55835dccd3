//! Assigns to jobs the sensitivity of their model.

use std::collections::BTreeMap;
use std::sync::Arc;

use dovetail_model::{Sensitivity, Work};

use super::SensitivityTable;
use crate::decimal::Decimal;
use crate::job::Workload;
use crate::read::synergy_iteration_time;

/// Key of a profile: the model, the number of GPUs, and the required GPU type.
type ProfileKey = (dovetail_model::ModelId, u32, Option<dovetail_model::GpuTypeId>);

/// A profile of a table: the curve, and the seconds of an iteration.
type ProfileEntry = (Arc<Sensitivity>, Option<Decimal>);

/// Assigns the sensitivity of its model to every job, and returns how many have one. The run time of a job of a Synergy
/// replay file is stated for the share of a machine with 3 CPUs per GPU; it is converted to the share of the table.
pub fn join_sensitivity(workload: &mut Workload, table: &SensitivityTable) -> usize {
    let mut known: BTreeMap<ProfileKey, Option<ProfileEntry>> = BTreeMap::new();
    let mut joined = 0;
    for job in &mut workload.jobs {
        job.sensitivity = None;
        let Some(model) = job.model else { continue };
        let found = known.entry((model, job.gpus, job.gpu_type)).or_insert_with(|| {
            let kind = job.gpu_type.map(|t| workload.names.gpu_types[t].as_str());
            let row = table.find(&workload.names.models[model], job.gpus, kind)?;
            let seconds = row.iteration_s.and_then(|s| Decimal::parse(&s.to_string()));
            Some((row.sensitivity.clone(), seconds))
        });
        let Some((sensitivity, seconds)) = found else {
            continue;
        };
        job.sensitivity = Some(sensitivity.clone());
        joined += 1;
        let stated = synergy_iteration_time(&workload.names.models[model]);
        if let (Some(iterations), Some(stated), Some(seconds)) = (job.iterations, stated, *seconds)
            && work_of(iterations, stated) == Some(job.work)
        {
            job.work = work_of(iterations, seconds).unwrap_or(job.work);
        }
    }
    joined
}

/// Returns the work of `iterations` iterations of `seconds` each.
fn work_of(iterations: u64, seconds: Decimal) -> Option<Work> {
    Decimal::parse(&iterations.to_string())?.times(seconds)?.work()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    fn replay() -> Workload {
        let text = "0,alexnet,0.0,100,1\n1,gnmt,0.0,100,2\n";
        crate::read_from(text.as_bytes(), "replay.csv", Some(Format::Synergy)).unwrap()
    }

    #[test]
    fn run_times_of_a_replay_are_converted_to_the_share_of_the_table() {
        let (mut three, mut four) = (replay(), replay());
        let before: Vec<Work> = three.jobs.iter().map(|j| j.work).collect();
        assert_eq!(
            join_sensitivity(&mut three, &SensitivityTable::builtin("synergy-3").unwrap()),
            2
        );
        assert_eq!(before, [Work(60_000_000), Work(12_000_000)]);
        assert!(three.jobs.iter().map(|j| j.work).eq(before));
        join_sensitivity(&mut four, &SensitivityTable::builtin("synergy-4").unwrap());
        let works: Vec<Work> = four.jobs.iter().map(|j| j.work).collect();
        assert_eq!(works, [Work(48_000_000), Work(12_000_000)]);
    }

    #[test]
    fn jobs_of_one_model_share_one_sensitivity() {
        let mut workload = replay();
        workload.jobs[1].model = workload.jobs[0].model;
        workload.jobs[1].gpus = 1;
        join_sensitivity(&mut workload, &SensitivityTable::builtin("synergy-3").unwrap());
        let of = |i: usize| workload.jobs[i].sensitivity.as_ref().unwrap();
        assert!(Arc::ptr_eq(of(0), of(1)));
    }
}
