//! Jobs of a trace on a live cluster, and their end by filters.

use serde_json::Value;

use crate::harness::{Cluster, CommandOutput};

/// Two formats that the readers detect: Muri's, and our own.
const MURI: &str = "\
job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,resource_time_1,resource_time_2,priority
7,8,5000,400,bert,4,80000,0,200,20,180,0,0
8,1,6000,300,dqn,128,60000,1000,200,180,20,0,1
";
const NATIVE: &str = "job_id,submit_s,duration_s,gpus,tenant\na,0,60,1,red\nb,0,60,1,blue\n";

fn submit(cluster: &Cluster, flags: &[&str], command: &[&str]) -> CommandOutput {
    cluster.run(&[&["submit", "--trace"], flags, &["--"], command].concat())
}

#[test]
fn jobs_of_a_trace_are_submitted_at_their_times() {
    let cluster = Cluster::start(1, 2, "");
    let muri = cluster.script("muri.csv", MURI);
    let flags = [muri.as_str(), "--max-gpus", "2", "--scale", "0.5"];
    let command = [
        "echo",
        "{model} {batch_size} {iterations} {gpus} {{x}} {resource_time_1}",
    ];
    // A dry run needs no server.
    let preview = submit(
        &cluster,
        &[&flags[..], &["--dry-run", "-o", "json"]].concat(),
        &command,
    );
    let jobs: Value = serde_json::from_str(&preview.out).unwrap();
    assert_eq!(
        (jobs[1]["submit_s"].as_f64(), &jobs[1]["job"]["gpus"]),
        (Some(0.5), &Value::Null)
    );
    assert_eq!(jobs[0]["job"]["gpus"], 2);
    assert_eq!(cluster.ok(&["jobs", "--all", "-o", "json"]), "[]");

    let output = submit(&cluster, &[&flags[..], &["--wait"]].concat(), &command);
    assert_eq!((output.code, output.out.as_str()), (0, "1\n2\n"), "{output:?}");
    assert_eq!(cluster.log(1), "bert 4 200 2 {x} 180");
    assert_eq!(cluster.log(2), "dqn 128 150 1 {x} 20");
    let (first, second) = (cluster.job(1), cluster.job(2));
    let request = &first["request"];
    assert_eq!(
        (&request["model"], &request["total_steps"]),
        (&"bert".into(), &200.into())
    );
    assert_eq!(request["expected_s"].as_f64(), Some(40.0));
    assert_eq!(request["stages_s"]["gpu"].as_f64(), Some(0.18));
    assert_eq!(second["priority"], -1);
    assert_eq!(first["labels"]["trace"], "muri.csv");
    assert_eq!(first["labels"]["trace-job"], "7");
    let apart = second["submitted"].as_i64().unwrap() - first["submitted"].as_i64().unwrap();
    assert!((300_000..5_000_000).contains(&apart), "{apart} us");
}

#[test]
fn what_is_wrong_with_a_trace_is_named_before_anything_is_submitted() {
    let cluster = Cluster::start(1, 1, "");
    let native = cluster.script("native.csv", NATIVE);
    let muri = cluster.script("muri.csv", MURI);
    for (flags, command, expected) in [
        (vec![native.as_str()], "{modle}", "did you mean model?"),
        (
            vec![&native],
            "{batch_size}",
            "job a: command: placeholder {batch_size}",
        ),
        (vec![&native], "{", "single `{`"),
        (vec![&native, "--scale", "0"], "x", "--scale: found 0"),
        (vec![&native, "--trace-format", "muri"], "x", "num_gpu"),
        (vec!["nowhere.csv"], "x", "nowhere.csv"),
        (vec![&muri, "--now"], "x", "asks for 8 GPUs"),
    ] {
        let output = submit(&cluster, &flags, &["echo", command]);
        assert_eq!(output.code, 2, "{output:?}");
        assert!(output.err.contains(expected), "{expected}: {output:?}");
    }
    let output = cluster.run(&["submit", "--trace", &native]);
    assert_eq!(output.code, 2, "a command is required: {output:?}");
    assert_eq!(cluster.ok(&["jobs", "--all", "-o", "json"]), "[]");
}

#[test]
fn jobs_are_stopped_by_filters() {
    let cluster = Cluster::start(1, 2, "");
    let native = cluster.script("native.csv", NATIVE);
    let output = submit(&cluster, &[&native, "--now"], &["sleep", "{duration_s}"]);
    assert_eq!(output.code, 0, "{output:?}");
    let other = cluster.submit(&["--label", "kind=other"], &["sleep", "600"]);
    cluster.until_state(1, "running");
    let stop = |args: &[&str]| cluster.run(&[&["job", "stop"], args].concat());
    let listed = stop(&["--label", "trace=native.csv", "--dry-run"]);
    assert_eq!(listed.out, "would stop 2 jobs: 1 2\n", "{listed:?}");
    let none = stop(&["--user", "zoe"]);
    assert_eq!(none.code, 0);
    assert_eq!(none.out, "no unfinished job matches these filters\n", "{none:?}");
    // All filters must match.
    let elsewhere = stop(&["--label", "trace=native.csv", "--node", "n9"]);
    assert!(
        elsewhere.out.contains("no unfinished job matches"),
        "{elsewhere:?}"
    );
    assert_eq!(stop(&["--label", "trace"]).code, 0);
    cluster.until_state(1, "cancelled");
    cluster.until_state(2, "cancelled");
    cluster.until_state(other, "running");
    // A job that has ended is an error, and the others are stopped nevertheless.
    let output = stop(&["1", &other.to_string()]);
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.err.contains("job 1:"), "{output:?}");
    cluster.until_state(other, "cancelled");
    let last = cluster.submit(&[], &["sleep", "600"]);
    assert_eq!(stop(&["--user", "@me"]).code, 0);
    cluster.until_state(last, "cancelled");
    assert_eq!(
        stop(&["--user", "@me", "1"]).code,
        2,
        "filters and jobs exclude each other"
    );
    assert_eq!(stop(&[]).code, 2);
}
