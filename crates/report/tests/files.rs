//! Written directories are read back, and errors name the place and the accepted values.

mod common;

use std::fs;
use std::path::Path;

use common::{tiny, wild};
use dovetail_model::Time;
use dovetail_model::run::RunRecord;
use dovetail_report::{html, read_run, read_runs, write_comparison, write_run};
use proptest::prelude::*;

#[test]
fn jobs_csv_has_the_documented_columns() {
    let dir = tempfile::tempdir().unwrap();
    write_run(dir.path(), &tiny()).unwrap();
    insta::assert_snapshot!(fs::read_to_string(dir.path().join("jobs.csv")).unwrap(), @r#"
    job_id,tenant,gpus,submit_s,first_start_s,finish_s,jct_s,wait_s,preemptions,slowdown,held_s,duration_s,job_position,rho
    first,a,2,0,0,300,300,0,0,1,300,300,4,1.25
    "second, of ""two""",b,1,0.25,300,600.5,600.25,299.75,0,2.004174,300.5,299.5,5,1.25
    too large,,8,1,,,,,0,,0,10,6,
    "#);
}

#[test]
fn a_written_run_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let written = write_run(&dir.path().join("new/run"), &tiny()).unwrap();
    assert_eq!(read_run(&dir.path().join("new/run")).unwrap(), tiny());
    for file in &written {
        assert!(file.exists(), "{}", file.display());
    }
    let mut names: Vec<String> = fs::read_dir(dir.path().join("new/run"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "figures",
            "jobs.csv",
            "nodes.csv",
            "report.html",
            "segments.csv",
            "summary.json",
            "timeline.csv"
        ]
    );
}

#[test]
fn a_comparison_is_read_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<RunRecord> = ["srtf", "fifo", "fifo", "../x"]
        .into_iter()
        .map(|policy| {
            let mut record = tiny();
            record.summary.policy = policy.into();
            record
        })
        .collect();
    write_comparison(dir.path(), &records).unwrap();
    assert_eq!(read_runs(dir.path()).unwrap(), records);
    assert_eq!(read_runs(&dir.path().join("srtf")).unwrap(), records[..1]);
    let table = fs::read_to_string(dir.path().join("comparison.csv")).unwrap();
    assert!(
        table.starts_with("directory,policy,knowledge,trace,cluster.nodes,cluster.gpus,seed,jobs,finished,")
    );
    assert!(table.contains("\nfifo_2,fifo,,tiny,1,2,7,3,2,"), "{table}");
}

#[test]
fn errors_name_the_place_the_value_and_the_accepted_values() {
    let check = |file: &str, content: &str, expected: &str| {
        let dir = tempfile::tempdir().unwrap();
        write_run(dir.path(), &tiny()).unwrap();
        fs::write(dir.path().join(file), content).unwrap();
        let error = read_run(dir.path()).unwrap_err().to_string();
        let shown = error.replace(&format!("{}/", dir.path().display()), "");
        assert_eq!(shown, expected);
    };
    check(
        "jobs.csv",
        "job_id,tenant,gpus,submit_s,first_start_s,finish_s,preemptions\na,b,two,0,,,0\n",
        "jobs.csv:2: column gpus: found \"two\", expected a whole number from 0 to 4294967295",
    );
    check(
        "jobs.csv",
        "job_id,tenant,gpus,submit_s,first_start_s,finish_s,preemptions\na,b,1,0,,,0\nc,d,1,soon,,,0\n",
        "jobs.csv:3: column submit_s: found \"soon\", expected a number of seconds within ±1,000,000,000,000, such \
         as 300 or 0.5",
    );
    check(
        "jobs.csv",
        "job,tenant\n",
        "jobs.csv:1: column job_id: found no such column among \"job,tenant\", expected a header with \
         job_id,tenant,gpus,submit_s,first_start_s,finish_s,preemptions",
    );
    check(
        "segments.csv",
        "job_position,node,slots,start_s,end_s\n1,0,0;1,0,1\n",
        "segments.csv:2: column slots: found \"0;1\", expected GPU numbers of the node separated by spaces, such as \
         0 1 2 3",
    );
    check(
        "timeline.csv",
        "start_s,end_s,busy_gpus,up_gpus\n0,1,inf,2\n",
        "timeline.csv:2: column busy_gpus: found \"inf\", expected a finite number",
    );
    check(
        "nodes.csv",
        "node,gpus\n1,4\n",
        "nodes.csv:2: column node: found \"1\", expected 0, as nodes are numbered in order",
    );
}

#[test]
fn the_error_for_a_directory_without_a_run_names_the_missing_file() {
    let error = read_run(Path::new("no/such/run")).unwrap_err().to_string();
    assert_eq!(
        error,
        "no/such/run/summary.json: no such file: expected the summary of a run, a JSON object; \
         `dovetail simulate --out DIR` writes it"
    );
}

#[test]
fn the_error_for_an_unwritable_path_names_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let error = write_run(&dir.path().join("file/run"), &tiny())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("file/run: cannot create the directory: "),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bad_bytes_never_panic(
        file in prop::sample::select(vec!["summary.json", "jobs.csv", "timeline.csv", "segments.csv", "nodes.csv"]),
        edits in prop::collection::vec((any::<prop::sample::Index>(), "[0-9a-z\",{}\\[\\]\n -]|\\PC"), 1..6),
        noise in prop::option::of(prop::collection::vec(any::<u8>(), 0..200)),
    ) {
        let dir = tempfile::tempdir().unwrap();
        write_run(dir.path(), &tiny()).unwrap();
        let path = dir.path().join(file);
        let mut bytes = fs::read(&path).unwrap();
        for (at, with) in &edits {
            let at = at.index(bytes.len());
            bytes.splice(at..=at, with.bytes());
        }
        fs::write(&path, noise.unwrap_or(bytes)).unwrap();
        match read_run(dir.path()) {
            Ok(record) => drop(html(&[record], "Changed")),
            Err(error) => prop_assert!(error.to_string().contains(file), "{}", error),
        }
    }

    #[test]
    fn extreme_runs_are_written_and_bounded_ones_read_back(mut record in wild()) {
        let dir = tempfile::tempdir().unwrap();
        write_run(dir.path(), &record).unwrap();
        tame(&mut record);
        write_run(dir.path(), &record).unwrap();
        let again = read_run(dir.path()).unwrap();
        prop_assert_eq!(again.rows, record.rows);
        prop_assert_eq!(again.job_names, record.job_names);
        prop_assert_eq!(again.timeline, record.timeline);
        prop_assert_eq!(again.segments, record.segments);
        prop_assert_eq!(again.node_slots, record.node_slots);
    }
}

/// Limits an extreme run to what files accept.
fn tame(record: &mut RunRecord) {
    let near = |time: &mut Time| time.0 %= 1_000_000_000_000_000_000;
    let finite = |value: &mut f64| *value = if value.is_finite() { *value } else { 0.0 };
    for row in &mut record.rows {
        near(&mut row.submit);
        near(&mut row.held);
        row.first_start.iter_mut().chain(&mut row.finish).for_each(near);
        row.work.0 %= 1_000_000_000_000_000_000;
    }
    for segment in &mut record.segments {
        near(&mut segment.start);
        near(&mut segment.end);
    }
    for p in &mut record.timeline {
        near(&mut p.start);
        near(&mut p.end);
        let means = [
            &mut p.busy_gpus,
            &mut p.up_gpus,
            &mut p.running,
            &mut p.waiting,
            &mut p.waiting_gpus,
        ];
        means.into_iter().chain([&mut p.fragmented_gpus]).for_each(finite);
    }
    let named = record.rows.iter().map(|row| row.job.to_string());
    record.job_names = named
        .enumerate()
        .map(|(i, id)| record.job_names.get(i).cloned().unwrap_or(id))
        .collect();
    record.tenant_names.resize(record.rows.len(), String::new());
}
