//! Written workloads are read back: completely in the native formats, and as far as they can represent them in the others.

use std::collections::BTreeMap;

use std::sync::Arc;

use dovetail_model::{Scaling, SpeedTable, Time, Work};
use dovetail_workload::{Format, JobLabel, TraceJob, Workload, read_from, write};
use proptest::prelude::*;

/// A job with names instead of ids, to compare workloads that number them differently.
fn resolved(workload: &Workload) -> Vec<(TraceJob, Vec<String>, BTreeMap<String, String>)> {
    let names = &workload.names;
    let resolve = |job: &TraceJob| {
        let own = vec![
            names.tenants[job.tenant].clone(),
            names.users[job.user].clone(),
            job.model.map_or(String::new(), |m| names.models[m].clone()),
            job.gpu_type.map_or(String::new(), |t| names.gpu_types[t].clone()),
        ];
        let extra = workload.extra_columns.iter().enumerate();
        let extra = extra
            .filter_map(|(i, c)| Some((c.clone(), job.extra_text(i)?.to_owned())))
            .collect();
        let plain = TraceJob {
            tenant: Default::default(),
            user: Default::default(),
            model: None,
            gpu_type: None,
            extra: None,
            ..job.clone()
        };
        (plain, own, extra)
    };
    workload.jobs.iter().map(resolve).collect()
}

fn write_and_read(workload: &Workload, format: Format) -> (Workload, Vec<String>) {
    let mut bytes = Vec::new();
    let lost = write(workload, format, &mut bytes).expect("the format can be written");
    let back = read_from(&bytes[..], "back", Some(format))
        .unwrap_or_else(|e| panic!("{e}\n{}", String::from_utf8_lossy(&bytes)));
    (back, lost)
}

const WORDS: [&str; 8] = [
    "a",
    "vc 1",
    "with,comma",
    "with \"quotes\"",
    "zwölf",
    "line\nbreak",
    "-5",
    "3.50",
];

fn job() -> impl Strategy<Value = TraceJob> {
    let label = prop_oneof![
        (0u64..1000).prop_map(JobLabel::Number),
        "[a-z][a-z0-9-]{0,8}".prop_map(|t| JobLabel::Text(t.into()))
    ];
    let size = (
        label,
        0i64..10_000_000_000_000,
        1u64..10_000_000_000_000,
        1u32..200,
    );
    let owner = (
        0u32..9,
        0u32..9,
        -5i32..5,
        prop::option::of(0u32..8),
        prop::option::of(0u32..8),
    );
    let shape = (
        0u32..3,
        0u32..50,
        prop::option::of(0u32..=1_000_000),
        0u32..100_000,
        0u64..10_000_000,
        1u32..=1000,
    );
    let rest = (
        prop::option::of(0i64..10_000_000_000_000),
        prop::option::of(1i64..10_000_000_000),
        prop::option::of(1u64..10_000_000),
    );
    let extra = prop::option::of(prop::collection::vec(0usize..9, 2));
    (size, owner, shape, rest, extra).prop_map(|((label, submit, work, gpus), owner, shape, rest, extra)| {
        let mut job = TraceJob::new(label, Time(submit), Work(work), gpus);
        job.tenant.0 = owner.0;
        job.user.0 = owner.1;
        job.priority = owner.2;
        job.model = owner.3.map(dovetail_model::ModelId);
        job.gpu_type = owner.4.map(dovetail_model::GpuTypeId);
        job.min_gpus = gpus.saturating_sub(shape.0).max(1);
        job.max_gpus = gpus + shape.1;
        job.scaling = match shape.2 {
            None => Scaling::Linear,
            Some(ppm) if ppm % 3 == 1 => {
                let points = vec![(1, 1_000_000), (4, 1_000_001 + u64::from(ppm))];
                Scaling::Measured(Arc::new(SpeedTable::new(points).expect("two valid points")))
            }
            Some(parallel_ppm) => Scaling::Amdahl { parallel_ppm },
        };
        job.cpu_milli_per_gpu = shape.3;
        job.memory_mib_per_gpu = shape.4;
        job.gpu_memory_mib = shape.4 / 3;
        job.gpu_milli = shape.5;
        job.deadline = rest.0.map(Time);
        job.checkpoint = rest.1.map(Time);
        job.iterations = rest.2;
        job.extra = extra.map(|e| {
            e.into_iter()
                .map(|w| WORDS.get(w).copied().unwrap_or("").into())
                .collect()
        });
        job
    })
}

fn workload() -> impl Strategy<Value = Workload> {
    prop::collection::vec(job(), 1..20).prop_map(|mut jobs| {
        jobs.sort_by_key(|j| j.submit);
        let mut workload = Workload {
            jobs,
            extra_columns: vec!["colour".into(), "a, b".into()],
            ..Workload::default()
        };
        for word in WORDS {
            workload.names.tenants.push(format!("tenant {word}"));
            workload.names.users.push(word.to_owned());
            workload.names.models.push(word.to_owned());
            workload.names.gpu_types.push(word.to_owned());
        }
        workload
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn native_formats_keep_everything(workload in workload()) {
        for format in [Format::Native, Format::NativeJsonl] {
            let (back, lost) = write_and_read(&workload, format);
            prop_assert_eq!(resolved(&back), resolved(&workload), "{}", format);
            prop_assert!(lost.is_empty());
            let (again, _) = write_and_read(&back, format);
            prop_assert_eq!(again, back, "a workload that was read is written and read as it is");
        }
    }

    #[test]
    fn other_formats_keep_the_fields_they_have(workload in workload()) {
        let core = |w: &Workload| -> Vec<(Time, Work, u32)> { w.jobs.iter().map(|j| (j.submit, j.work, j.gpus)).collect() };
        let labels = |w: &Workload| -> Vec<JobLabel> { w.jobs.iter().map(|j| j.label.clone()).collect() };
        for format in [Format::Muri, Format::Blox, Format::Itp, Format::Helios, Format::Tiresias] {
            let (back, _) = write_and_read(&workload, format);
            prop_assert_eq!(core(&back), core(&workload), "{}", format);
            prop_assert_eq!(labels(&back), labels(&workload));
        }
        let (muri, _) = write_and_read(&workload, Format::Muri);
        for (ours, theirs) in muri.jobs.iter().zip(&workload.jobs) {
            prop_assert!(theirs.iterations.is_none() || theirs.iterations > Some(theirs.work.0 * 1000) || ours.iterations == theirs.iterations);
            prop_assert_eq!(ours.model.map(|m| &muri.names.models[m]), theirs.model.map(|m| &workload.names.models[m]));
        }

        let (pollux, lost) = write_and_read(&workload, Format::Pollux);
        let first = workload.jobs[0].submit;
        for (ours, theirs) in pollux.jobs.iter().zip(&workload.jobs) {
            prop_assert_eq!((ours.submit, ours.work, ours.gpus), (theirs.submit - first, theirs.work, theirs.gpus));
            prop_assert_eq!(&pollux.names.tenants[ours.tenant], &workload.names.tenants[theirs.tenant]);
        }
        prop_assert!(lost.contains(&"job ids".to_owned()));

        let (synergy, _) = write_and_read(&workload, Format::Synergy);
        for (ours, theirs) in synergy.jobs.iter().zip(&workload.jobs) {
            prop_assert_eq!((ours.submit, ours.gpus, &ours.label), (theirs.submit, theirs.gpus, &theirs.label));
            prop_assert!(ours.work.0.abs_diff(theirs.work.0) <= 11_000, "within an iteration");
        }
    }
}

#[test]
fn losses_are_reported() {
    let text =
        "submit_s,duration_s,gpus,tenant,deadline_s,priority,colour\n0.5,60,1,a,100,3,red\n1,60,2,,,,\n";
    let workload = read_from(text.as_bytes(), "jobs.csv", None).unwrap();
    let lost = |format| write_and_read(&workload, format).1.join("; ");
    insta::assert_snapshot!(lost(Format::Native), @"");
    insta::assert_snapshot!(lost(Format::Itp), @"tenant of 1 job; priority of 1 job; deadline_s of 1 job; column colour");
    insta::assert_snapshot!(lost(Format::Muri), @"tenant of 1 job; deadline_s of 1 job; column colour; priority of 1 job (Muri has only 0 and -1)");
    insta::assert_snapshot!(lost(Format::Pollux), @"priority of 1 job; deadline_s of 1 job; column colour; job ids; the time before the first job (dates begin with it)");
    insta::assert_snapshot!(lost(Format::Synergy), @"tenant of 1 job; priority of 1 job; deadline_s of 1 job; column colour; model of 2 jobs (unknown to Synergy; written as lstm); less than one iteration of the run time of 2 jobs");
    let error = write(&workload, Format::Gavel, Vec::new()).unwrap_err();
    insta::assert_snapshot!(error, @"cannot write a workload as gavel: every job needs a command and steps of a known job type; expected one of native, native-jsonl, muri, synergy, blox, itp, pollux, helios, tiresias");
}

#[test]
fn only_columns_with_values_are_written() {
    let text = "{\"gpus\":2,\"submit_s\":0.25,\"duration_s\":1e2,\"tags\":[1, 2],\"name\":\"x\",\"ok\":true}\n\n{\"submit_s\":3,\"duration_s\":9,\"gpus\":1,\"job_id\":\"b\",\"tenant\":null}";
    let workload = read_from(text.as_bytes(), "jobs.jsonl", None).unwrap();
    assert_eq!(workload.notes, ["kept unknown columns: tags, ok"]);
    let written = |format| {
        let mut bytes = Vec::new();
        write(&workload, format, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    insta::assert_snapshot!(written(Format::NativeJsonl), @r#"
    {"job_id":0,"submit_s":0.25,"duration_s":100,"gpus":2,"tags":[1, 2],"name":"x","ok":true}
    {"job_id":"b","submit_s":3,"duration_s":9,"gpus":1}
    "#);
    insta::assert_snapshot!(written(Format::Native), @r#"
    job_id,submit_s,duration_s,gpus,tags,name,ok
    0,0.25,100,2,"[1, 2]",x,true
    b,3,9,1,,,
    "#);
    insta::assert_snapshot!(written(Format::Blox), @r"
    order,arrival_s,total_iterations,iteration_time_s,gpus
    0,0.25,100,1,2
    b,3,9,1,1
    ");
    insta::assert_snapshot!(written(Format::Synergy), @r"
    0,lstm,0.25,9091,2
    b,lstm,3,818,1
    ");
}

#[test]
fn compressed_files_are_decompressed() {
    use std::io::Write;
    let text = "submit_s,duration_s,gpus\n0,60,1\n";
    let plain = read_from(text.as_bytes(), "x.csv", None).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    assert_eq!(read_from(&gzip[..], "x.csv", None).unwrap(), plain);
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    assert_eq!(read_from(&zstd[..], "x.csv", None).unwrap(), plain);
    let file = tempfile::Builder::new().suffix(".csv.gz").tempfile().unwrap();
    std::fs::write(file.path(), &gzip).unwrap();
    assert_eq!(
        dovetail_workload::read(file.path(), None).unwrap().jobs,
        plain.jobs
    );
}
