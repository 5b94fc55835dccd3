//! Writes a run in the layout of Muri's simulator, for scripts that read those files.

use std::path::{Path, PathBuf};

use dovetail_model::Time;
use dovetail_model::run::{JobRow, Moment, RunRecord};

use super::csv_out::table;
use super::write::write_file;
use crate::error::ReportError;
use crate::format::exact_seconds;

const JOB: [&str; 13] = [
    "time",
    "job_id",
    "num_gpu",
    "submit_time",
    "start_time",
    "end_time",
    "executed_time",
    "real_executed_time",
    "JCT",
    "duration",
    "pending_time",
    "preempt",
    "promote",
];
const CLUSTER: [&str; 9] = [
    "time",
    "idle_node",
    "busy_node",
    "full_node",
    "idle_gpu",
    "busy_gpu",
    "pending_job",
    "running_job",
    "completed_job",
];

/// Writes `job.csv` and `cluster.csv` into `dir`, and returns the files. Rows of `cluster.csv` are the record's moments.
pub fn write_muri(dir: &Path, record: &RunRecord) -> Result<Vec<PathBuf>, ReportError> {
    Ok(vec![
        write_file(&dir.join("job.csv"), &job_csv(record))?,
        write_file(&dir.join("cluster.csv"), &cluster_csv(&record.moments))?,
    ])
}

/// Returns one row for each finished job, in order of completion.
fn job_csv(record: &RunRecord) -> Vec<u8> {
    let mut done: Vec<(Time, usize, &JobRow)> = record
        .rows
        .iter()
        .enumerate()
        .filter_map(|(i, row)| Some((row.finish?, i, row)))
        .collect();
    done.sort_by_key(|(finish, _, row)| (*finish, row.job));
    let rows = done.into_iter().map(|(finish, i, row)| {
        let jct = finish.since(row.submit);
        let start = row.first_start.unwrap_or(row.submit);
        [
            seconds(finish),
            record
                .job_names
                .get(i)
                .cloned()
                .unwrap_or_else(|| row.job.to_string()),
            row.gpus.to_string(),
            seconds(row.submit),
            seconds(start),
            seconds(finish),
            seconds(finish.since(start)),
            seconds(row.held),
            seconds(jct),
            seconds(Time(i64::try_from(row.work.0).unwrap_or(i64::MAX))),
            seconds(jct.since(row.held)),
            row.preemptions.to_string(),
            "0".to_owned(),
        ]
    });
    table(&JOB, rows)
}

fn cluster_csv(moments: &[Moment]) -> Vec<u8> {
    let rows = moments.iter().map(|m| {
        let counts = [
            m.idle_nodes,
            m.busy_nodes,
            m.full_nodes,
            m.idle_gpus,
            m.busy_gpus,
            m.waiting,
            m.running,
        ]
        .map(|n| n.to_string());
        [seconds(m.at)]
            .into_iter()
            .chain(counts)
            .chain([m.finished.to_string()])
    });
    table(&CLUSTER, rows)
}

/// Formats seconds as in Muri's files: always with a point.
fn seconds(time: Time) -> String {
    let shown = exact_seconds(time);
    if shown.contains('.') {
        shown
    } else {
        format!("{shown}.0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dovetail_model::{JobKey, Work};

    fn row(job: u32, submit: i64, start: i64, finish: Option<i64>, held: i64) -> JobRow {
        JobRow {
            job: JobKey(job),
            gpus: 8,
            work: Work(5_500_000),
            submit: Time::from_secs(submit),
            first_start: Some(Time::from_secs(start)),
            finish: finish.map(Time::from_secs),
            held: Time::from_secs(held),
            preemptions: 1,
            rho: None,
        }
    }

    #[test]
    fn rows_are_in_order_of_completion_without_unfinished_jobs() {
        let record = RunRecord {
            rows: vec![
                row(0, 0, 0, Some(90), 60),
                row(1, 5, 6, Some(20), 14),
                row(2, 9, 9, None, 3),
            ],
            job_names: vec!["a".into(), "b,c".into(), "d".into()],
            ..RunRecord::default()
        };
        insta::assert_snapshot!(String::from_utf8(job_csv(&record)).unwrap(), @r#"
        time,job_id,num_gpu,submit_time,start_time,end_time,executed_time,real_executed_time,JCT,duration,pending_time,preempt,promote
        20.0,"b,c",8,5.0,6.0,20.0,14.0,14.0,15.0,5.5,1.0,1,0
        90.0,a,8,0.0,0.0,90.0,90.0,60.0,90.0,5.5,30.0,1,0
        "#);
    }
}
