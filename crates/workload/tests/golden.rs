//! The jobs of every public trace. The expected figures were computed from the files independently.

mod shared;

use dovetail_workload::{Format, JobLabel, Workload, parse_cluster, read};

/// Jobs, GPUs of all jobs, GPU-seconds of all jobs (to the nearest), first and last submission in seconds.
type Figures = (usize, u64, u64, i64, i64);

fn figures(workload: &Workload) -> Figures {
    let jobs = &workload.jobs;
    assert!(
        jobs.is_sorted_by_key(|j| j.submit),
        "jobs are in order of submission"
    );
    let gpu_micros: u128 = jobs
        .iter()
        .map(|j| u128::from(j.work.0) * u128::from(j.gpus))
        .sum();
    (
        jobs.len(),
        jobs.iter().map(|j| u64::from(j.gpus)).sum(),
        ((gpu_micros + 500_000) / 1_000_000) as u64,
        jobs[0].submit.0 / 1_000_000,
        jobs[jobs.len() - 1].submit.0 / 1_000_000,
    )
}

#[track_caller]
fn check(path: &str, format: Format, expected: Figures) -> Option<Workload> {
    let path = shared::data(path)?;
    let workload = read(&path, None).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(figures(&workload), expected, "{}", path.display());
    assert_eq!(
        read(&path, Some(format)).expect("the file was read before"),
        workload,
        "the format is detected"
    );
    Some(workload)
}

#[test]
fn philly_as_reduced_for_pollux() {
    let expected = (82_247, 107_235, 3_521_082_502, 0, 9_408_690);
    let Some(philly) = check("traces/philly-pollux/philly.csv.gz", Format::Pollux, expected) else {
        return;
    };
    assert_eq!(
        philly.names.tenants.len(),
        16,
        "15 virtual clusters and the default"
    );
    check("jct-bound/philly.csv.gz", Format::Native, expected);
}

#[test]
fn helios_and_pai() {
    let venus = (125_303, 843_981, 8_724_263_562, 0, 16_747_071);
    check("traces/helios-venus/helios_trace.csv.gz", Format::Helios, venus);
    check("jct-bound/venus.csv.gz", Format::Native, venus);
    let pai = (60_105, 298_635, 2_476_275_122, 16_670, 5_518_537);
    check(
        "traces/alibaba-2020-pai/alibaba_trace_sub.csv.gz",
        Format::Helios,
        pai,
    );
    check(
        "jct-bound/pai.csv.gz",
        Format::Native,
        (60_105, 298_635, 2_476_275_122, 0, 5_501_867),
    );
}

#[test]
fn itp_clusters() {
    let raw = |name: &str| format!("traces/elasticflow-itp/raw/{name}");
    check(
        &raw("cluster01.csv"),
        Format::Itp,
        (1_595, 3_728, 81_864_453, 1_932_025, 4_848_400),
    );
    check(
        &raw("cluster03.csv"),
        Format::Itp,
        (3_011, 18_760, 595_593_077, 911_907, 5_175_336),
    );
    check(
        &raw("cluster04.csv.gz"),
        Format::Itp,
        (15_802, 47_958, 2_540_458_386, 5_810, 5_142_627),
    );
    check(
        &raw("cluster06.csv"),
        Format::Itp,
        (2_396, 12_429, 445_963_163, 16_566, 5_168_464),
    );
    check(
        &raw("cluster07.csv.gz"),
        Format::Itp,
        (12_699, 23_330, 1_320_479_327, 1_999, 5_137_938),
    );
    check(
        &raw("cluster09.csv.gz"),
        Format::Itp,
        (11_134, 11_134, 140_402_737, 2_816, 4_534_015),
    );
    check(
        &raw("cluster10.csv"),
        Format::Itp,
        (260, 383, 14_484_569, 2_266_647, 5_104_565),
    );
    check(
        "jct-bound/itp03.csv",
        Format::Native,
        (3_011, 18_760, 595_593_077, 0, 4_263_429),
    );
    check(
        "jct-bound/itp04.csv.gz",
        Format::Native,
        (15_802, 47_958, 2_540_458_386, 0, 5_136_817),
    );
    check(
        "jct-bound/itp07.csv.gz",
        Format::Native,
        (12_699, 23_330, 1_320_479_327, 0, 5_135_939),
    );
}

#[test]
fn muri_traces() {
    let trace = |name: &str| format!("muri/trace-data/{name}");
    check(
        &trace("trace1.csv"),
        Format::Muri,
        (1_494, 7_398, 1_379_974_477, 0, 10_817_570),
    );
    check(
        &trace("trace1_pr.csv"),
        Format::Muri,
        (1_494, 7_398, 1_379_974_477, 0, 0),
    );
    check(
        &trace("trace2.csv.gz"),
        Format::Muri,
        (5_755, 29_825, 2_966_687_708, 0, 8_572_283),
    );
    check(
        &trace("trace2_pr.csv.gz"),
        Format::Muri,
        (5_755, 29_825, 2_966_687_708, 0, 0),
    );
    check(
        &trace("trace3.csv"),
        Format::Muri,
        (992, 9_346, 420_081_857, 0, 8_166_025),
    );
    check(
        &trace("trace4.csv"),
        Format::Muri,
        (2_638, 5_310, 737_646_244, 0, 7_363_956),
    );
    check(
        &trace("job_type_1.csv"),
        Format::Muri,
        (992, 9_346, 420_082_851, 0, 8_166_025),
    );
    check(
        &trace("job_type_2.csv"),
        Format::Muri,
        (992, 9_346, 420_082_937, 0, 8_166_025),
    );
    check(
        &trace("job_type_3.csv"),
        Format::Muri,
        (992, 9_346, 420_081_765, 0, 8_166_025),
    );
    check(
        &trace("job_type_4.csv"),
        Format::Muri,
        (992, 9_346, 420_081_857, 0, 8_166_025),
    );
    let cluster = check(
        &trace("cluster_trace.csv"),
        Format::Muri,
        (400, 3_766, 237_550_067, 0, 2_344_695),
    );
    let Some(cluster) = cluster else { return };
    assert!(
        cluster.notes[0].contains("duration column"),
        "{:?}",
        cluster.notes
    );
    let job = &cluster.jobs[0];
    assert_eq!(
        (job.label.clone(), job.iterations, job.priority),
        (JobLabel::Number(0), Some(10_956), 0)
    );
    assert_eq!(cluster.names.models[job.model.unwrap()], "gpt2");
    assert_eq!(cluster.extra_f64(job, "resource_time_0"), Some(0.6));
    assert_eq!(cluster.extra_f64(job, "resource_time_2"), Some(49.0));
}

#[test]
fn blox_workloads() {
    check(
        "blox/A_small_single_load80_admit1.2/workload.csv",
        Format::Blox,
        (855, 855, 9_423_021, 7, 37_825),
    );
    check(
        "blox/M_small_multi_load16/workload.csv",
        Format::Blox,
        (589, 1_203, 13_432_552, 33, 126_112),
    );
    check(
        "blox/O_default_single_load2/workload.csv",
        Format::Blox,
        (101, 101, 6_088_034, 260, 172_554),
    );
    check(
        "blox/T_small_single_load40_tiresias/workload.csv",
        Format::Blox,
        (503, 503, 5_751_830, 13, 44_707),
    );
    let small = check(
        "blox/S_small_single_load40/workload.csv",
        Format::Blox,
        (936, 936, 10_272_040, 13, 82_066),
    );
    let Some(small) = small else { return };
    assert_eq!(small.jobs[0].work.0, 13_353_188_733);
    assert_eq!(small.jobs[0].iterations, Some(13_353));
}

#[test]
fn synergy_replays() {
    check(
        "synergy/inputs/dynamic_srtf.csv",
        Format::Synergy,
        (100, 100, 1_108_228, 8, 12_039),
    );
    check(
        "synergy/inputs/static_100job.csv",
        Format::Synergy,
        (100, 100, 1_068_420, 0, 0),
    );
    check(
        "synergy/inputs/test_trace.csv",
        Format::Synergy,
        (8, 22, 107_871, 0, 0),
    );
    check(
        "synergy/outputs/static_FIFO_fair.jobs.csv",
        Format::Synergy,
        (100, 100, 1_068_420, 0, 0),
    );
    check(
        "synergy/outputs/phM32_FIFO_fair.jobs.csv",
        Format::Synergy,
        (390, 843, 9_210_019, 613, 229_178),
    );
}

#[test]
fn philly_logs() {
    let expected = (5_912, 13_228, 702_061_523, 0, 709_134);
    let Some(log) = check("blox/cluster_job_log.json.gz", Format::Philly, expected) else {
        return;
    };
    assert_eq!(log.notes[0], "skipped 58 jobs: never had a GPU");
    assert_eq!(
        log.notes[1],
        "skipped 30 jobs: no attempt with a start and a later end"
    );
    assert_eq!(
        log.jobs[0].label,
        JobLabel::Text("application_0000000042_00000".into())
    );
    assert_eq!(log.names.tenants[log.jobs[0].tenant], "vc03");
    assert_eq!(log.names.users[log.jobs[0].user], "u029");
    check(
        "synergy/inputs/cluster_job_log.json.gz",
        Format::Philly,
        (15_778, 37_418, 1_048_533_975, 0, 11_457_120),
    );
}

#[test]
fn openb_pods() {
    let pods = (7_063, 7_432, 214_769_257, 0, 12_901_761);
    check(
        "traces/openb-2023/csv/openb_pod_list_cpu300.csv.gz",
        Format::Openb,
        pods,
    );
    let Some(default) = check(
        "traces/openb-2023/csv/openb_pod_list_default.csv.gz",
        Format::Openb,
        pods,
    ) else {
        return;
    };
    assert_eq!(default.notes[1], "skipped 1088 jobs: no GPU requested");
    assert_eq!(
        (default.jobs[1].gpu_milli, default.jobs[1].cpu_milli_per_gpu),
        (460, 6000)
    );
    let spec = check(
        "traces/openb-2023/csv/openb_pod_list_gpuspec33.csv.gz",
        Format::Openb,
        pods,
    )
    .unwrap();
    assert!(spec.names.gpu_types.values().any(|t| t == "T4"));
}

#[test]
fn gavel_and_shockwave_traces() {
    check(
        "traces/philly-gavel/seed=0/0e4a51.trace",
        Format::Gavel,
        (1_181, 3_236, 331_997_562, 0, 7_363_956),
    );
    check(
        "traces/philly-gavel/seed=1/ee9e8c.trace.gz",
        Format::Gavel,
        (2_000, 8_587, 416_381_799, 0, 4_508_448),
    );
    let physical = "traces/philly-gavel/physical_cluster/max_min_fairness.trace";
    check(physical, Format::Gavel, (96, 169, 1_413_461, 0, 46_317));
    let shockwave = "traces/shockwave/120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace";
    check(shockwave, Format::Gavel, (120, 164, 711_371, 0, 5_011));
}

#[test]
fn tiresias_and_chronus_traces() {
    check(
        "traces/tiresias/60_job.csv",
        Format::Tiresias,
        (60, 170, 26_624, 0, 1_779),
    );
    let chronus = |name: &str| format!("traces/philly-chronus/exp/trace_job_Philly_{name}.csv.gz");
    check(
        &chronus("SLO"),
        Format::Tiresias,
        (30_735, 42_785, 22_110_655, 1, 20_151),
    );
    check(
        &chronus("MIX1"),
        Format::Tiresias,
        (30_756, 42_947, 22_279_688, 1, 20_151),
    );
    let Some(mix) = check(
        &chronus("MIX2"),
        Format::Tiresias,
        (30_746, 43_061, 22_738_522, 1, 20_151),
    ) else {
        return;
    };
    let job = mix.jobs.iter().find(|j| j.label == JobLabel::Number(0)).unwrap();
    assert_eq!(
        job.deadline,
        Some(dovetail_model::Time::from_secs(5601 + 289)),
        "the last of 159-189-229-289"
    );
}

#[test]
fn every_trace_folder_is_read() {
    let Some(root) = shared::data("traces") else {
        return;
    };
    let mut read_files = 0;
    for folder in [
        "philly-gavel",
        "shockwave",
        "elasticflow-itp/raw",
        "openb-2023/csv",
    ] {
        for entry in walk(&root.join(folder)) {
            let name = entry.file_name().unwrap().to_string_lossy().into_owned();
            let is_trace = [".trace", ".trace.gz", ".csv", ".csv.gz"]
                .iter()
                .any(|end| name.ends_with(end));
            // The multigpu lists have no times, and node lists are clusters.
            if is_trace
                && !name.contains("multigpu20")
                && !name.contains("node_list")
                && !name.contains("list_multigpu")
            {
                read(&entry, None).unwrap_or_else(|e| panic!("{e}"));
                read_files += 1;
            }
        }
    }
    assert!(read_files > 60, "{read_files}");
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the entry is there").path();
        if path.is_dir() {
            files.extend(walk(&path))
        } else {
            files.push(path)
        }
    }
    files.sort();
    files
}

#[test]
fn cluster_files() {
    let cluster = |path: &str| {
        let path = shared::data(path)?;
        let cluster = parse_cluster(path.to_str().unwrap()).unwrap_or_else(|e| panic!("{e}"));
        Some((
            cluster.nodes.len(),
            cluster.gpus(),
            cluster.zones.len(),
            cluster.gpu_types.len(),
        ))
    };
    let expect = |path: &str, figures| {
        if let Some(found) = cluster(path) {
            assert_eq!(found, figures, "{path}");
        }
    };
    expect("muri/cluster_spec/n8g8.csv", (8, 64, 1, 1));
    expect("traces/tiresias/n160g8.csv", (160, 1280, 5, 1));
    expect(
        "traces/openb-2023/csv/openb_node_list_gpu_node.csv",
        (1213, 6212, 1, 7),
    );
    expect(
        "traces/openb-2023/csv/openb_node_list_all_node.csv",
        (1213, 6212, 1, 7),
    );
    expect("traces/alibaba-2026-spot/node_info_df.csv", (4278, 10_412, 1, 6));
    expect("traces/alibaba-lingjun-2023/topo.csv", (847, 6776, 123, 1));
}

#[test]
fn configurations_of_synergy_are_parsed() {
    let Some(folder) = shared::data("synergy/inputs/configs") else {
        return;
    };
    for (name, nodes, cpus) in [
        ("default_cluster", 16, 24),
        ("cluster_4", 16, 32),
        ("cluster_5", 16, 40),
        ("cluster_6", 16, 48),
        ("philly_cluster", 64, 24),
        ("static_trace", 4, 24),
        ("deployment", 4, 24),
        ("big_2048", 256, 24),
    ] {
        let path = folder.join(name).with_extension("ini");
        let cluster = parse_cluster(path.to_str().unwrap()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(
            (cluster.nodes.len(), cluster.gpus()),
            (nodes, nodes as u32 * 8),
            "{name}"
        );
        let like = |n: &dovetail_model::NodeSpec| (n.cpu_milli, n.memory_mib, n.disk_mbps, n.network_mbps);
        let expected = (cpus * 1000, 500 * 1024, 500, 40_000);
        assert!(cluster.nodes.values().all(|n| like(n) == expected), "{name}");
    }
}
