//! Muri: its result files, its published averages, and its model of GPU sharing.

mod common;

use std::path::Path;

use common::{dovetail, dovetail_in};
use dovetail_testkit::shared;
use insta::assert_snapshot;

const TRACE: &str = "submit_s,duration_s,gpus,job_id\n0,100,4,a\n0,50.5,4,b\n10,20,8,c\n10,20,64,wide\n";

#[test]
fn emit_writes_result_files_of_muri() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("jobs.csv"), TRACE).unwrap();
    let args = [
        "simulate",
        "--trace",
        "jobs.csv",
        "--cluster",
        "2x4",
        "--policy",
        "srtf",
        "--out",
        "run",
        "--emit",
        "muri",
        "--quiet",
    ];
    let shown = dovetail_in(dir.path(), &args);
    assert!(shown.ends_with("exit code 0\n"), "{shown}");
    let read = |name: &str| std::fs::read_to_string(dir.path().join("run").join(name)).unwrap();
    assert_snapshot!(format!("{}\n{}", read("job.csv"), read("cluster.csv")));

    let args = [
        "compare",
        "--trace",
        "jobs.csv",
        "--cluster",
        "2x4",
        "--policies",
        "fifo,srtf",
        "--out",
        "both",
        "--emit",
        "muri",
    ];
    dovetail_in(dir.path(), &args);
    let both = |name: &str| std::fs::read_to_string(dir.path().join("both").join(name)).unwrap();
    assert_eq!(both("srtf/job.csv"), read("job.csv"));
    assert_eq!(both("srtf/cluster.csv"), read("cluster.csv"));
    assert!(both("fifo/cluster.csv").starts_with("time,idle_node,"));
}

#[test]
fn calc_finds_columns_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write(
        "muri.csv",
        "time,job_id,submit_time,end_time,JCT,duration,pending_time,preempt,resume,promote\n9,0,1,9,8,7,1,0,0,0\n20,1,2,20,18,9,9,0,0,0\n",
    );
    write(
        "ours.csv",
        "job_id,tenant,gpus,submit_s,first_start_s,finish_s,jct_s\na,x,1,1,1,5,4\nb,x,1,2,2,12,10\nc,x,1,3,,,\n",
    );
    write("bad.csv", "submit_time,end_time\n0,1\n0,soon\n");
    write("other.csv", "a,b\n1,2\n");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, b"submit_time,end_time\n1,5\n2,12\n").unwrap();
    std::fs::write(dir.path().join("packed.csv.gz"), packed.finish().unwrap()).unwrap();
    let run = |args: &[&str]| dovetail_in(dir.path(), args);
    let shown = [
        run(&["calc", "muri.csv"]),
        run(&["calc", "muri.csv", "ours.csv", "packed.csv.gz"]),
        run(&["calc", "muri.csv", "ours.csv", "--json"]),
        run(&["calc", "bad.csv"]),
        run(&["calc", "other.csv"]),
        run(&["calc", "nowhere.csv"]),
    ];
    assert_snapshot!(shown.join("\n"));
}

/// Folder, average JCT, makespan and 99th percentile of the JCT, rounded as published.
const TESTBED: [(&str, f64, f64, f64); 6] = [
    ("SRTF", 249_140.0, 4_156_633.0, 2_723_589.0),
    ("SRSF", 238_612.0, 4_223_122.0, 3_138_494.0),
    ("Muri-S", 117_635.0, 2_662_548.0, 822_572.0),
    ("tiresias", 336_533.0, 3_959_797.0, 2_812_808.0),
    ("themis", 461_456.0, 3_924_819.0, 2_876_143.0),
    ("Muri-L", 129_745.0, 2_666_872.0, 1_106_156.0),
];
const SIMULATED: [(&str, f64, f64, f64); 8] = [
    ("trace1__shortest", 1_370_603.2, 26_045_465.5, 16_647_148.1),
    ("trace1__dlas-gpu", 3_330_371.3, 23_556_410.2, 14_739_851.5),
    ("trace1__antman", 5_476_391.3, 21_788_668.5, 13_690_482.5),
    ("trace3__shortest", 193_081.8, 8_174_135.3, 4_538_890.6),
    ("trace3__shortest-gpu", 185_021.9, 8_174_135.3, 4_189_699.2),
    ("trace3__dlas-gpu", 347_213.2, 8_174_226.3, 4_983_397.3),
    (
        "trace3__multi-resource-blossom-same-gpu",
        83_242.5,
        8_174_135.3,
        947_436.6,
    ),
    ("trace1_pr__shortest", 2_303_543.8, 24_513_543.9, 19_871_388.3),
];

fn check_averages(folder: &Path, expected: &[(&str, f64, f64, f64)], within: f64) {
    for (name, jct, makespan, p99) in expected {
        let file = folder.join(name).join("job.csv");
        let shown = dovetail(&["calc", &file.display().to_string(), "--json"]);
        let json = shown
            .split_once('\n')
            .and_then(|(_, rest)| rest.rsplit_once("exit code"))
            .map(|(json, _)| json)
            .expect("the JSON is between the command and its exit code");
        let value: serde_json::Value = serde_json::from_str(json).expect("calc prints JSON");
        for (key, figure) in [("avg_jct_s", jct), ("makespan_s", makespan), ("p99_jct_s", p99)] {
            let ours = value[0][key].as_f64().expect("figures are numbers");
            assert!(
                (ours - figure).abs() <= within,
                "{key} of {name}: {ours}, published {figure}"
            );
        }
    }
}

#[test]
fn calc_prints_the_published_averages() {
    if let Some(folder) = shared(env!("CARGO_MANIFEST_DIR"), "muri/published_testbed") {
        check_averages(&folder, &TESTBED, 0.5001);
    }
    if let Some(folder) = shared(env!("CARGO_MANIFEST_DIR"), "muri/runs") {
        check_averages(&folder, &SIMULATED, 0.0501);
    }
}

#[test]
fn profile_shows_how_stages_interleave() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| dovetail_in(dir.path(), args);
    std::fs::write(
        dir.path().join("mine.csv"),
        "model,gpus,iteration_ms,storage_ms,cpu_ms,gpu_ms,network_ms\nllama,8,100,10,20,50,20\nwhisper,8,100,40,30,20,10\n",
    )
    .unwrap();
    std::fs::write(
        dir.path().join("bad.csv"),
        "model,gpus,iteration_ms,data_ms,gpu_ms,network_ms\nx,8,ten,1,2,3\n",
    )
    .unwrap();
    let shown = [
        run(&["profile", "show", "resnet18", "gpt2", "a2c", "--gpus", "8"]),
        run(&[
            "profile",
            "show",
            "a2c",
            "bert",
            "--ordering",
            "worst",
            "--svg",
            "group.svg",
        ]),
        run(&[
            "profile",
            "show",
            "dqn",
            "dqn",
            "dqn",
            "shufflenet",
            "--gpus",
            "32",
        ]),
        run(&["profile", "show", "vgg16"]),
        run(&[
            "profile",
            "show",
            "llama",
            "whisper",
            "--gpus",
            "8",
            "--profiles",
            "mine.csv",
        ]),
        run(&["profile", "show", "a2c", "a2c", "--json"]),
        run(&["profile", "list", "--profiles", "mine.csv"]),
        run(&["profile", "show", "resnet81"]),
        run(&["profile", "show", "gpt2", "--gpus", "3"]),
        run(&["profile", "show", "a2c", "a2c", "a2c", "a2c", "a2c"]),
        run(&["profile", "list", "--profiles", "bad.csv"]),
        run(&["profile", "list", "--trace", "bad.csv"]),
    ];
    assert_snapshot!(shown.join("\n"));
    let svg = std::fs::read_to_string(dir.path().join("group.svg")).unwrap();
    assert!(svg.contains("a2c + bert on 1 GPU") && svg.contains("prefers-color-scheme:dark"));
    assert_eq!(
        run(&["profile", "list"])
            .lines()
            .filter(|l| l.contains("vgg16"))
            .count(),
        6
    );
}

#[test]
fn simulate_warns_once_if_a_time_slice_is_no_longer_than_a_restart() {
    let warnings = |policy: &str, cost: &str, more: &[&str]| {
        let args = [
            "simulate",
            "--jobs",
            "60",
            "--cluster",
            "4x8",
            "--policy",
            policy,
            "--restart-cost",
            cost,
        ];
        let shown = dovetail(&[&args[..], more].concat());
        assert!(shown.ends_with("exit code 0\n"), "{shown}");
        shown
            .lines()
            .filter(|l| l.starts_with("! warning"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        warnings("las:quantum=30s", "1m", &[]),
        [
            "! warning: las:quantum=30s: the time slice of a job on 1 GPU is 30.0 s, and a restart takes 60.0 s: 60 of 60 jobs may \
             make no progress once they have been stopped; use a longer time slice (quantum of las, first limit of tiresias) or a \
             lower --restart-cost"
        ]
    );
    assert_eq!(warnings("tiresias:limits=60/600", "1m", &[]).len(), 1);
    assert!(warnings("tiresias:limits=60/600", "1m", &["--clock", "rounds:5m"]).is_empty());
    assert!(warnings("las", "30s", &[]).is_empty());
    assert!(warnings("las:quantum=30s", "1m", &["--quiet"]).is_empty());
    assert!(warnings("fifo", "1m", &[]).is_empty());
}
