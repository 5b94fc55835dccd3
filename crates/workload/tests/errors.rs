//! Errors in a trace name the place, the value found and the accepted values.

use dovetail_workload::{Format, TraceError, read, read_from};

#[track_caller]
fn fail(text: impl AsRef<[u8]>, name: &str, format: Option<Format>) -> String {
    let error: TraceError = read_from(text.as_ref(), name, format).expect_err("the trace is invalid");
    error.to_string()
}

/// The message for a native CSV file with this header and row.
#[track_caller]
fn native(header: &str, row: &str) -> String {
    fail(
        format!(
            "{header}\n0,60,1{}\n{row}\n",
            ",".repeat(header.matches(',').count() - 2)
        ),
        "jobs.csv",
        None,
    )
}

#[test]
fn errors_in_native_values() {
    let core = "submit_s,duration_s,gpus";
    insta::assert_snapshot!(native(core, "1,60,four"), @r#"jobs.csv:3: field gpus: found "four", expected a whole number of at least 1"#);
    insta::assert_snapshot!(native(core, "1,60,0"), @r#"jobs.csv:3: field gpus: found "0", expected a whole number of at least 1"#);
    insta::assert_snapshot!(native(core, "1,60,1.5"), @r#"jobs.csv:3: field gpus: found "1.5", expected a whole number of at least 1"#);
    insta::assert_snapshot!(native(core, "1,60,9999999"), @r#"jobs.csv:3: field gpus: found "9999999", expected a whole number of at most 1048576"#);
    insta::assert_snapshot!(native(core, "1,0,1"), @r#"jobs.csv:3: field duration_s: found "0", expected a run time of more than 0 seconds"#);
    insta::assert_snapshot!(native(core, "1,-3,1"), @r#"jobs.csv:3: field duration_s: found "-3", expected a run time of more than 0 seconds"#);
    insta::assert_snapshot!(native(core, "1,nan,1"), @r#"jobs.csv:3: field duration_s: found "nan", expected a number"#);
    insta::assert_snapshot!(native(core, "1,1e300,1"), @r#"jobs.csv:3: field duration_s: found "1e300", expected a number with at most 18 digits before the point"#);
    insta::assert_snapshot!(native(core, "1,20000000000,1"), @r#"jobs.csv:3: field duration_s: found "20000000000", expected a run time of at most 10000000000 seconds"#);
    insta::assert_snapshot!(native(core, "-1,60,1"), @r#"jobs.csv:3: field submit_s: found "-1", expected a time of at least 0 seconds"#);
    insta::assert_snapshot!(native(core, "inf,60,1"), @r#"jobs.csv:3: field submit_s: found "inf", expected a time of at least 0 seconds"#);
    insta::assert_snapshot!(native(core, ",60,1"), @"jobs.csv:3: field submit_s: found nothing, expected a time of at least 0 seconds");
    insta::assert_snapshot!(native(core, "1,60"), @"jobs.csv:3: found 2 fields, expected 3");
    insta::assert_snapshot!(native(core, "1,60,1,1"), @"jobs.csv:3: found 4 fields, expected 3");
}

#[test]
fn line_numbers_are_those_of_an_editor() {
    let line = |text: &str| {
        fail(text, "jobs.csv", None)
            .split(": ")
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(line("submit_s,duration_s,gpus\n0,1,1\n0,x,1\n"), "jobs.csv:3");
    assert_eq!(line("submit_s,duration_s,gpus\n0,1,1\n0,x,1"), "jobs.csv:3");
    assert_eq!(
        line("submit_s,duration_s,gpus\r\n0,1,1\r\n0,x,1\r\n0,1,1\r\n"),
        "jobs.csv:3"
    );
    assert_eq!(
        line("\n\nsubmit_s,duration_s,gpus\n\n0,1,1\n\n\n0,x,1\n"),
        "jobs.csv:8"
    );
    assert_eq!(
        line("submit_s,duration_s,gpus\r\n0,1,1\r\n\r\n\r\n0,x,1"),
        "jobs.csv:5"
    );
    let long = format!("submit_s,duration_s,gpus\n{}0,x,1\n", "0,1,1\r\n".repeat(100_000));
    assert_eq!(line(&long), "jobs.csv:100002");
}

#[test]
fn errors_in_native_options() {
    let with = |column: &str, value: &str| {
        native(
            &format!("submit_s,duration_s,gpus,{column}"),
            &format!("1,60,4,{value}"),
        )
    };
    insta::assert_snapshot!(with("priority", "high"), @r#"jobs.csv:3: field priority: found "high", expected a whole number; larger is more urgent"#);
    insta::assert_snapshot!(with("iterations", "0"), @r#"jobs.csv:3: field iterations: found "0", expected a whole number of at least 1"#);
    insta::assert_snapshot!(with("iteration_s", "0"), @r#"jobs.csv:3: field iteration_s: found "0", expected more than 0 seconds"#);
    insta::assert_snapshot!(with("cpus_per_gpu", "-1"), @r#"jobs.csv:3: field cpus_per_gpu: found "-1", expected a number of CPUs of at least 0"#);
    insta::assert_snapshot!(with("memory_gb_per_gpu", "lots"), @r#"jobs.csv:3: field memory_gb_per_gpu: found "lots", expected a number of GB of at least 0"#);
    insta::assert_snapshot!(with("min_gpus", "8"), @r#"jobs.csv:3: field min_gpus: found "8", expected a whole number of at most 4"#);
    insta::assert_snapshot!(with("max_gpus", "2"), @r#"jobs.csv:3: field max_gpus: found "2", expected a whole number of at least 4"#);
    insta::assert_snapshot!(with("deadline_s", "soon"), @r#"jobs.csv:3: field deadline_s: found "soon", expected a time of at least 0 seconds"#);
    insta::assert_snapshot!(with("checkpoint_s", "0"), @r#"jobs.csv:3: field checkpoint_s: found "0", expected more than 0 seconds"#);
    insta::assert_snapshot!(with("gpu_milli", "2000"), @r#"jobs.csv:3: field gpu_milli: found "2000", expected a whole number of at most 1000"#);
    insta::assert_snapshot!(with("parallel_share", "1.5"), @r#"jobs.csv:3: field parallel_share: found "1.5", expected a share from 0 to 1"#);
}

#[test]
fn columns() {
    insta::assert_snapshot!(fail("submit_s,duration,gpus\n0,1,1\n", "jobs.csv", Some(Format::Native)), @r#"jobs.csv:1: missing column "duration_s" (did you mean "duration"?); found submit_s, duration, gpus; the native format requires submit_s, duration_s, gpus"#);
    insta::assert_snapshot!(fail("submit_s,duration_s\n0,1\n", "jobs.csv", None), @r#"jobs.csv:1: missing column "gpus"; found submit_s, duration_s; the native format requires submit_s, duration_s, gpus"#);
    insta::assert_snapshot!(fail("submit_s,duration_s,gpus,gpus\n0,1,1,1\n", "jobs.csv", None), @r#"jobs.csv:1: duplicate column "gpus": expected each name once"#);
    insta::assert_snapshot!(fail("a,b,c\n1,2,3\n", "jobs.csv", None), @r#"jobs.csv: cannot detect the format: the file begins with "a,b,c"; name one of these formats, or use the columns of one: native, native-jsonl, philly, muri, synergy, blox, itp, pollux, helios, openb, gavel, tiresias"#);
    insta::assert_snapshot!(fail("a,b,c\n1,2,3\n", "jobs.csv", Some(Format::Muri)), @r#"jobs.csv:1: missing column "num_gpu"; found a, b, c; the muri format requires num_gpu, submit_time, iterations, iteration_time"#);
    insta::assert_snapshot!(fail("job_id,submission_time,duration\nx,0,1\n", "cluster.csv", None), @r#"cluster.csv:1: missing column "num_gpu"; found job_id, submission_time, duration; the itp format requires submission_time, duration, num_gpu"#);
    insta::assert_snapshot!(fail("name,time,application,num_replicas,batch_size\na,1,bert,4,8\n", "sia.csv", None), @"sia.csv: this is a Pollux or Sia workload (name, time, application, num_replicas, batch_size), which has no run times; expected a column duration with seconds at full speed on num_gpus GPUs");
}

#[test]
fn errors_in_json_lines() {
    let line = |text: &str| {
        fail(
            format!("{{\"submit_s\":0,\"duration_s\":60,\"gpus\":1}}\n{text}\n"),
            "jobs.jsonl",
            None,
        )
    };
    insta::assert_snapshot!(line("{\"submit_s\":0,\"gpus\":1}"), @r#"jobs.jsonl:2: missing column "duration_s"; found submit_s, gpus; the native-jsonl format requires submit_s, duration_s, gpus"#);
    insta::assert_snapshot!(line("{\"submit_s\":0,\"duration_s\":60,\"gpus\":\"four\"}"), @r#"jobs.jsonl:2: field gpus: found "four", expected a whole number of at least 1"#);
    insta::assert_snapshot!(line("{\"submit_s\":0,\"duration_s\":60,\"gpus\":null}"), @"jobs.jsonl:2: field gpus: found nothing, expected a whole number of at least 1");
    insta::assert_snapshot!(line("{\"submit_s\":0,\"duration_s\":60,\"gpus\":[1]}"), @r#"jobs.jsonl:2: field gpus: found "[1]", expected a whole number of at least 1"#);
    insta::assert_snapshot!(line("{\"submit_s\":0,\"submit_s\":60,\"gpus\":1}"), @r#"jobs.jsonl:2: duplicate column "submit_s": expected each name once"#);
    insta::assert_snapshot!(line("{\"submit_s\":0"), @r#"jobs.jsonl:2: invalid JSON: EOF while parsing an object at column 13; expected one object per line, such as {"submit_s": 0, "duration_s": 60, "gpus": 1}"#);
    insta::assert_snapshot!(line("[1, 2]"), @r#"jobs.jsonl:2: invalid JSON: invalid type: sequence, expected an object at column 0; expected one object per line, such as {"submit_s": 0, "duration_s": 60, "gpus": 1}"#);
    insta::assert_snapshot!(line("0,60,1"), @r#"jobs.jsonl:2: invalid JSON: invalid type: integer `0`, expected an object at column 1; expected one object per line, such as {"submit_s": 0, "duration_s": 60, "gpus": 1}"#);
}

#[test]
fn errors_in_philly_logs() {
    let job = |submitted: &str, start: &str| {
        format!(
            "[{{\"jobid\":\"a\",\"submitted_time\":\"2017-10-01 00:00:00\",\"attempts\":[]}},\n {{\"submitted_time\":{submitted},\
             \"attempts\":[{{\"start_time\":\"{start}\",\"end_time\":\"2017-10-01 01:00:00\",\"detail\":[{{\"gpus\":[\"g\"]}}]}}]}}]"
        )
    };
    let log = |text: String| fail(text, "cluster_job_log", Some(Format::Philly));
    insta::assert_snapshot!(log(job("\"yesterday\"", "2017-10-01 00:00:00")), @r#"cluster_job_log: job 1 (the first is 0): field submitted_time: found "yesterday", expected a date like 2017-10-09 07:01:55, or seconds"#);
    insta::assert_snapshot!(log(job("\"None\"", "2017-10-01 00:00:00")), @"cluster_job_log: job 1 (the first is 0): field submitted_time: found nothing, expected a date like 2017-10-09 07:01:55, or seconds");
    insta::assert_snapshot!(log(job("\"2017-10-01 00:00:00\"", "2017-13-01 00:00:00")), @r#"cluster_job_log: job 1 (the first is 0): field start_time: found "2017-13-01 00:00:00", expected a date like 2017-10-09 07:01:55, or seconds"#);
    insta::assert_snapshot!(log(job("7", "2017-10-01 00:00:00")), @"cluster_job_log:2: invalid JSON: job 1: invalid type: integer `7`, expected a string at line 2 column 21; expected an array of jobs with jobid, vc, user, submitted_time and attempts[] of start_time, end_time, detail[] of gpus[]");
    insta::assert_snapshot!(log(job("\"2017-10-01 00:00:00\"", "None")), @"cluster_job_log: no jobs; skipped 1 job: never had a GPU; skipped 1 job: no attempt with a start and a later end");
    insta::assert_snapshot!(log("[{\"attempts\": []}]".into()), @"cluster_job_log: job 0 (the first is 0): field submitted_time: found nothing, expected a date like 2017-10-09 07:01:55, or seconds");
    insta::assert_snapshot!(log("[{".into()), @"cluster_job_log:1: invalid JSON: job 0: EOF while parsing an object at line 1 column 2; expected an array of jobs with jobid, vc, user, submitted_time and attempts[] of start_time, end_time, detail[] of gpus[]");
    insta::assert_snapshot!(log("{}".into()), @"cluster_job_log:1: invalid JSON: invalid type: map, expected an array of jobs at line 1 column 1; expected an array of jobs with jobid, vc, user, submitted_time and attempts[] of start_time, end_time, detail[] of gpus[]");
    insta::assert_snapshot!(log("[] []".into()), @"cluster_job_log:1: invalid JSON: trailing characters at line 1 column 4; expected an array of jobs with jobid, vc, user, submitted_time and attempts[] of start_time, end_time, detail[] of gpus[]");
}

#[test]
fn errors_in_other_formats() {
    let row = |header: &str, row: &str, format| fail(format!("{header}\n{row}\n"), "trace.csv", Some(format));
    let muri = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,priority";
    insta::assert_snapshot!(row(muri, "0,1,0,many,vgg16,100,0", Format::Muri), @r#"trace.csv:2: field iterations: found "many", expected a number"#);
    insta::assert_snapshot!(row(muri, "0,1,-5,10,vgg16,100,0", Format::Muri), @r#"trace.csv:2: field submit_time: found "-5", expected a time of at least 0 seconds"#);
    insta::assert_snapshot!(row(muri, "0,1,0,999999999999999,vgg16,999999999999999,0", Format::Muri), @r#"trace.csv:2: field iterations: found "999999999999999", expected a run time of at most 10000000000 seconds"#);
    insta::assert_snapshot!(row(muri, "0,1,0,10,vgg16,100,first", Format::Muri), @r#"trace.csv:2: field priority: found "first", expected a whole number of at least 0"#);
    insta::assert_snapshot!(row("0,alexnet,0,10,1", "1,alexnot,0,10,1", Format::Synergy), @r#"trace.csv:2: field model: found "alexnot", expected a model with a known iteration time: alexnet, bert, deepspeech, gnmt, lstm, m5, mobilenet, res18, res50, shufflenet, transformer, vae"#);
    insta::assert_snapshot!(row("0,alexnet,0,10,1", "1,alexnet,0,10", Format::Synergy), @"trace.csv:2: found 4 fields, expected 5");
    insta::assert_snapshot!(row("arrival_s,total_iterations,iteration_time_s,gpus", "0,1.5.1,1,1", Format::Blox), @r#"trace.csv:2: field total_iterations: found "1.5.1", expected a number"#);
    insta::assert_snapshot!(row("submission_time,duration,num_gpu", "0,x,1", Format::Itp), @r#"trace.csv:2: field duration: found "x", expected a number"#);
    insta::assert_snapshot!(row("timestamp,duration,num_gpus", "2017-02-30 00:00:00,1,1", Format::Pollux), @r#"trace.csv:2: field timestamp: found "2017-02-30 00:00:00", expected a date like 2017-10-09 07:01:55, or seconds"#);
    insta::assert_snapshot!(row("arrival_s,service_sec,gpu_count", "0,1,-1", Format::Helios), @r#"trace.csv:2: field gpu_count: found "-1", expected a whole number of at least 0"#);
    insta::assert_snapshot!(row("job_id,gpu_num,submit_time,duration", "a,1,later,5", Format::Helios), @r#"trace.csv:2: field submit_time: found "later", expected a date like 2017-10-09 07:01:55, or seconds"#);
    insta::assert_snapshot!(row("name,num_gpu,gpu_milli,creation_time,deletion_time", "p,1,0,0,9", Format::Openb), @r#"trace.csv:2: field gpu_milli: found "0", expected a whole number of at least 1"#);
    insta::assert_snapshot!(row("name,cpu_milli,memory_mib,num_gpu,gpu_milli", "p,1,0,0,9", Format::Openb), @r#"trace.csv:1: missing column "creation_time"; found name, cpu_milli, memory_mib, num_gpu, gpu_milli; the openb format requires name, num_gpu, gpu_milli, creation_time, deletion_time"#);
    insta::assert_snapshot!(row("job_id,num_gpu,submit_time,duration,expect_time_list", "0,1,0,5,9-x", Format::Tiresias), @r#"trace.csv:2: field expect_time_list: found "x", expected a time of at least 0 seconds"#);
    insta::assert_snapshot!(row("A3C\tc\t-n\t1\t10\t0\t1", "ResNet-19 (batch size 16)\tc\t-n\t1\t10\t0\t1", Format::Gavel), @r#"trace.csv:2: field job_type: found "ResNet-19 (batch size 16)", expected a job type whose speed is known, such as ResNet-18 (batch size 16), ResNet-50 (batch size 16), ResNet-18 (batch size 128)"#);
    insta::assert_snapshot!(row("A3C\tc\t-n\t1\t10\t0\t1", "A3C\tc\t-n\t1\tmany\t0\t1", Format::Gavel), @r#"trace.csv:2: field total_steps: found "many", expected a number"#);
    insta::assert_snapshot!(row("A3C\tc\t-n\t1\t10\t0\t1", "A3C\tc\t-n", Format::Gavel), @"trace.csv:2: found 3 fields, expected 7 or 10 separated by tabs (Gavel), or 12 (Shockwave)");
}

#[test]
fn files() {
    insta::assert_snapshot!(fail("", "empty.csv", None), @"empty.csv: the file is empty; expected a trace in one of these formats: native, native-jsonl, philly, muri, synergy, blox, itp, pollux, helios, openb, gavel, tiresias");
    insta::assert_snapshot!(fail("\n \n", "blank.csv", Some(Format::Muri)), @"blank.csv: the file is empty; expected a trace in one of these formats: native, native-jsonl, philly, muri, synergy, blox, itp, pollux, helios, openb, gavel, tiresias");
    insta::assert_snapshot!(fail("submit_s,duration_s,gpus\n", "jobs.csv", None), @"jobs.csv: no jobs");
    insta::assert_snapshot!(fail("submission_time,duration,num_gpu\n0,5,0\n0,0,1\n0,-5,1\n", "itp.csv", None), @"itp.csv: no jobs; skipped 1 job: no GPU requested; skipped 2 jobs: run time of zero or less");
    insta::assert_snapshot!(fail(b"submit_s,duration_s,gpus\n0,\xff\xfe,1\n", "jobs.csv", None), @"jobs.csv:2: found bytes that are not UTF-8 text, expected UTF-8");
    insta::assert_snapshot!(fail(b"{\"submit_s\":\"\xff\"}\n", "jobs.jsonl", None), @"jobs.jsonl:1: found bytes that are not UTF-8 text, expected UTF-8");
    insta::assert_snapshot!(fail([0u8, 159, 146, 150], "noise.bin", None), @r#"noise.bin: cannot detect the format: the file begins with "\0���"; name one of these formats, or use the columns of one: native, native-jsonl, philly, muri, synergy, blox, itp, pollux, helios, openb, gavel, tiresias"#);
    insta::assert_snapshot!(fail("submit_s,duration_s,gpus\n0,1,1\n", "jobs.csv.gz", None), @"jobs.csv.gz: not a gzip file, although its name ends in .gz");
    insta::assert_snapshot!(fail("submit_s,duration_s,gpus\n0,1,1\n", "jobs.csv.zst", None), @"jobs.csv.zst: not a zstd file, although its name ends in .zst");
    insta::assert_snapshot!(fail([0x1f, 0x8b, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "jobs.csv.gz", None), @"jobs.csv.gz: cannot read: corrupt deflate stream; the compressed file is damaged or truncated");
    insta::assert_snapshot!(fail([0x1f, 0x8b], "jobs.csv.gz", None), @"jobs.csv.gz: cannot read: unexpected end of file; the compressed file is damaged or truncated");
    insta::assert_snapshot!(fail([0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0], "jobs.csv.zst", None), @"jobs.csv.zst: cannot read: incomplete frame; the compressed file is damaged or truncated");
    insta::assert_snapshot!(read("no/such/file.csv", None).unwrap_err(), @"no/such/file.csv: cannot open: No such file or directory (os error 2)");
    insta::assert_snapshot!(read("src", None).unwrap_err(), @"src: cannot open: is a directory; expected a trace file");
}

#[test]
fn a_truncated_gzip_file_is_reported() {
    use std::io::Write;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    gzip.write_all(b"submit_s,duration_s,gpus\n").unwrap();
    for i in 0..20_000 {
        writeln!(gzip, "{i},60,1").unwrap();
    }
    let bytes = gzip.finish().unwrap();
    insta::assert_snapshot!(fail(&bytes[..bytes.len() / 2], "jobs.csv.gz", None), @"jobs.csv.gz: cannot read: incomplete deflate stream; the compressed file is damaged or truncated");
}
