//! Output of `compare`, `report`, `trace`, `policies`, `reproduce` and `completions`.

mod common;

use common::{dovetail, dovetail_in};
use insta::assert_snapshot;

#[test]
fn compare_shows_one_table_with_the_best_of_each_column() {
    assert_snapshot!(dovetail(&[
        "compare",
        "--jobs",
        "300",
        "--cluster",
        "4x4",
        "--load",
        "1",
        "--policies",
        "fifo,srsf,tiresias:limits=600/3600",
    ]));
}

#[test]
fn compare_sweeps_loads_and_seeds() {
    assert_snapshot!(dovetail(&[
        "compare",
        "--jobs",
        "100",
        "--cluster",
        "2x8",
        "--loads",
        "0.5,1.5",
        "--seeds",
        "1..3",
        "--policies",
        "fifo,srsf",
    ]));
}

#[test]
fn compare_uses_one_workload_for_all_policies_whatever_the_threads() {
    let args = [
        "compare",
        "--jobs",
        "200",
        "--cluster",
        "2x8",
        "--seeds",
        "1..3",
        "--policies",
        "las,srsf",
        "--json",
    ];
    let one = dovetail(&[&args[..], &["--threads", "1"]].concat());
    let two = dovetail(&[&args[..], &["--threads", "2"]].concat());
    assert_eq!(one.split_once('\n').unwrap().1, two.split_once('\n').unwrap().1);
}

#[test]
fn report_combines_runs() {
    let dir = tempfile::tempdir().unwrap();
    for policy in ["fifo", "srsf"] {
        dovetail_in(
            dir.path(),
            &[
                "simulate", "--jobs", "50", "--policy", policy, "--out", policy, "--quiet",
            ],
        );
    }
    assert_snapshot!(dovetail_in(
        dir.path(),
        &["report", "fifo", "srsf", "--out", "both.html"]
    ));
    let page = std::fs::read_to_string(dir.path().join("both.html")).unwrap();
    assert!(page.contains("fifo") && page.contains("srsf") && page.ends_with("</html>\n"));
    assert_snapshot!(dovetail_in(dir.path(), &["report", "nowhere"]));
}

#[test]
fn traces_are_generated_described_and_converted() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| dovetail_in(dir.path(), args);
    let shown = [
        run(&["trace", "generate", "--jobs", "4", "--seed", "3"]),
        run(&["trace", "generate", "--jobs", "500", "--out", "jobs.csv.gz"]),
        run(&["trace", "info", "jobs.csv.gz"]),
        run(&["trace", "convert", "jobs.csv.gz", "jobs.jsonl.zst"]),
        run(&["trace", "convert", "jobs.jsonl.zst", "muri.csv", "--to", "muri"]),
        run(&["trace", "convert", "jobs.csv.gz", "x", "--to", "openb"]),
        run(&["trace", "generate", "--arrivals", "bursts"]),
        run(&["trace", "generate", "--gpus", "1:0.5,0:0.5"]),
    ];
    assert_snapshot!(shown.join("\n"));
}

#[test]
fn policies_are_listed_with_key_and_knobs() {
    let shown = [
        dovetail(&["policies"]),
        dovetail(&["policies", "tiresias"]),
        dovetail(&["policies", "consolidate"]),
        dovetail(&["policies", "consolidation"]),
    ];
    assert_snapshot!(shown.join("\n"));
}

#[test]
fn reproduce_lists_experiments_and_reports_missing_data() {
    let shown = [
        dovetail(&["reproduce"]),
        dovetail(&["reproduce", "blox-fig7"]),
        dovetail(&["reproduce", "jct-bound", "--data", "nowhere"]),
    ];
    assert_snapshot!(shown.join("\n"));
}

#[test]
fn reproduce_runs_an_experiment() {
    let dir = tempfile::tempdir().unwrap();
    let shown = dovetail_in(dir.path(), &["reproduce", "blox-fig12", "--out", "fig"]);
    assert!(
        shown.contains("✓ published") && shown.ends_with("exit code 0\n"),
        "{shown}"
    );
    assert!(dir.path().join("fig/report.html").is_file());
    assert!(dir.path().join("fig/data.json").is_file());
}

/// Muri's tables 3 and 4 with 48 jobs instead of its own trace: four models that share GPUs well, all submitted at once.
#[test]
fn reproduce_runs_muri_on_the_traces_it_finds() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("data/muri/trace-data");
    std::fs::create_dir_all(&folder).unwrap();
    let models = [
        ("gpt2", "437,0.6,419,49"),
        ("vgg16", "214,82,75,66"),
        ("shufflenet_v2_x1_0", "182,150,20,10"),
        ("a2c", "515,350,60,5"),
    ];
    let header = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,\
                  resource_time_0,resource_time_1,resource_time_2,priority";
    let jobs = (0..48).map(|i| {
        let (model, times) = models[i % 4];
        format!("{i},8,0,20000,{model},4,8000000,1000,{times},{}", i % 2)
    });
    let text: Vec<String> = std::iter::once(header.to_owned()).chain(jobs).collect();
    std::fs::write(folder.join("cluster_trace.csv"), text.join("\n")).unwrap();
    let run = |name: &str| dovetail_in(dir.path(), &["reproduce", name, "--data", "data", "--out", "out"]);
    let shown = run("muri-table3");
    for part in [
        "cluster_trace Muri-S",
        "published: average JCT",
        "rounds of 360 s",
        "report: out",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(dir.path().join("out/figures/average-jct-policies.svg").is_file());
    let missing = run("muri-fig13");
    assert!(
        missing.contains("job_type_") && missing.ends_with("exit code 2\n"),
        "{missing}"
    );
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let shown = dovetail(&["completions", shell]);
        assert!(
            shown.contains("simulate") && shown.ends_with("exit code 0\n"),
            "{shell}"
        );
    }
}

#[test]
fn completions_offer_every_registered_preset_and_part() {
    let shown = dovetail(&["completions", "bash"]);
    let words: std::collections::BTreeSet<&str> = shown.split([' ', '"', '\n']).collect();
    let parts = dovetail_policies::registry::all();
    let presets = dovetail_policies::presets().iter().map(|preset| preset.name);
    for name in presets.chain(parts.iter().map(|part| part.name)) {
        assert!(words.contains(name), "{name} is missing");
    }
}
