//! Readers return a workload or an error in bounded time, whatever a file contains.

use std::time::{Duration, Instant};

use dovetail_workload::cluster::{ClusterDescription, describe_bytes};
use dovetail_workload::{Format, Workload, WorkloadStats, parse_cluster, read_from};
use proptest::prelude::*;

/// A small valid file of each format.
const VALID: [(Format, &str); 14] = [
    (
        Format::Native,
        "job_id,submit_s,duration_s,gpus,tenant,priority,deadline_s,parallel_share,colour\n0,0,60,1,a,1,100,0.5,red\n1,1.5,2e3,4,,,,,\n",
    ),
    (
        Format::NativeJsonl,
        "{\"submit_s\":0,\"duration_s\":60,\"gpus\":1,\"tags\":[1,{\"a\":null}]}\n{\"submit_s\":1.5,\"duration_s\":\"60\",\"gpus\":4,\"tenant\":\"a\\n\"}\n",
    ),
    (
        Format::Philly,
        "[{\"status\":\"Pass\",\"vc\":\"v\",\"jobid\":\"j\",\"user\":\"u\",\"submitted_time\":\"2017-10-01 00:02:02\",\"attempts\":[{\"start_time\":\"2017-10-01 00:20:43\",\"end_time\":\"2017-10-01 01:42:28\",\"detail\":[{\"ip\":\"m\",\"gpus\":[\"gpu0\",\"gpu1\"]}]}]}]",
    ),
    (
        Format::Muri,
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,priority\n0,1,0,5853661,dqn,128,2868294000,46122000,490,446,1\n",
    ),
    (Format::Synergy, "0,alexnet,.123,3349,4\n1,gnmt,.286,26435,1\n"),
    (
        Format::Synergy,
        "job_id,model,gpu_demand,arrival_s,total_iters,iter_time_s\n0,alexnet,1,0.0,3349,0.6\n",
    ),
    (
        Format::Blox,
        "order,arrival_s,total_iterations,iteration_time_s,gpus\n0,13,13353.188732650655,1,1\n",
    ),
    (
        Format::Itp,
        "job_id,submission_time,duration,num_gpu\n965d744f,1932025,2429,64\n",
    ),
    (
        Format::Pollux,
        "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n",
    ),
    (
        Format::Helios,
        "job_id,arrival_s,service_sec,gpu_count\n363167#0,0.0,172800.0,32\n",
    ),
    (
        Format::Helios,
        "job_id,user,vc,gpu_num,submit_time,duration\n1,u,v,8,2020-04-01 00:00:01,500\n",
    ),
    (
        Format::Openb,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\np,6000,12288,1,460,T4|P100,LS,Running,427061,12902960,427061\n",
    ),
    (
        Format::Gavel,
        "A3C\tpython3\trl\t--max-steps\t0\t8857\t1\t1\t-1.000000\t0\nA3C\tc\t-n\t1\t10\t0.5\t2\n",
    ),
    (
        Format::Tiresias,
        "job_id,user,num_gpu,submit_time,iterations,model_name,duration,expect_time_list,best_effort\n0,u,1,8555,5049,vgg16,747,1105-2000,0\n",
    ),
];

const CLUSTERS: [(&str, &str); 7] = [
    (
        "c.yaml",
        "defaults: {gpu_type: V100, gpus: 8, cpus: 96}\nracks:\n  - {name: a, count: 2, nodes: 3}\n  - racks: [{nodes: [{count: 2, gpus: 4}, {name: big}]}]\nnodes: 2\n",
    ),
    (
        "c.csv",
        "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,8,8,92,520\n",
    ),
    (
        "c.csv",
        "sn,cpu_milli,memory_mib,gpu,model\nn,64000,262144,2,P100\n",
    ),
    (
        "c.csv",
        "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,2\n",
    ),
    ("c.csv", "ip,DSW,PSW,ASW\nh,G6,P10,S14\n"),
    (
        "c.ini",
        "[CLUSTER]\t\n# 112 GPUs\nracks = 2\nservers_per_rack = 16\ngpus_per_server = 8\ncpus_per_server = 24\ndram_per_server = 500\nsspeed_per_server = 500\nnet_per_server: 40\n[SCHEDULER]\npolicy = FIFO\nlease_time = 5\n",
    ),
    (
        "c.yaml",
        "nodes: [{gpus: 4, cpus: 8, numa: [{cpus: \"0-1,4-5\", gpus: [0, 2]}, {cpus: [2, 3, 6, 7], gpus: 1}]}, {gpus: 2, numa: 2}]\n",
    ),
];

/// Bytes with a meaning to some reader, to be inserted at random.
const SPECIAL: [&[u8]; 24] = [
    b"\"",
    b",",
    b"\n",
    b"\r\n",
    b"\t",
    b"\0",
    b"\xff",
    b"-",
    b".",
    b"e",
    b"1e999",
    b"NaN",
    b"inf",
    b"99999999999999999999999",
    b"-1",
    b"{",
    b"[",
    b"null",
    b"\\",
    b"\xef\xbb\xbf",
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b": &a [*a]",
    b"00000000000",
];

/// Number of cases of each property; set by PROPTEST_CASES.
fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(default)
}

/// One change to a file.
#[derive(Debug, Clone)]
enum Change {
    Insert(prop::sample::Index, prop::sample::Index),
    Replace(prop::sample::Index, u8),
    Delete(prop::sample::Index, prop::sample::Index),
    Repeat(prop::sample::Index, prop::sample::Index),
    Cut(prop::sample::Index),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), at()).prop_map(|(a, b)| Change::Insert(a, b)),
        (at(), any::<u8>()).prop_map(|(a, b)| Change::Replace(a, b)),
        (at(), at()).prop_map(|(a, b)| Change::Delete(a, b)),
        (at(), at()).prop_map(|(a, b)| Change::Repeat(a, b)),
        at().prop_map(Change::Cut),
    ]
}

fn changed(text: &str, changes: &[Change]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for change in changes {
        if bytes.is_empty() {
            break;
        }
        let size = bytes.len();
        let range = |a: &prop::sample::Index, b: &prop::sample::Index| {
            let (a, b) = (a.index(size), b.index(size));
            a.min(b)..a.max(b)
        };
        match change {
            Change::Insert(at, special) => {
                let at = at.index(size);
                bytes.splice(at..at, SPECIAL[special.index(SPECIAL.len())].iter().copied());
            }
            Change::Replace(at, byte) => bytes[at.index(size)] = *byte,
            Change::Delete(a, b) => {
                bytes.drain(range(a, b));
            }
            Change::Repeat(a, b) => {
                let part = bytes[range(a, b)].to_vec();
                bytes.splice(0..0, part);
            }
            Change::Cut(at) => bytes.truncate(at.index(size)),
        }
    }
    bytes
}

/// Checks the invariants of every workload.
fn check(workload: &Workload) {
    assert!(!workload.jobs.is_empty() && workload.jobs.is_sorted_by_key(|j| j.submit));
    for job in &workload.jobs {
        assert!(job.submit.0 >= 0 && job.work.0 > 0 && job.gpus > 0 && (1..=1000).contains(&job.gpu_milli));
        assert!(job.min_gpus >= 1 && job.min_gpus <= job.gpus && job.gpus <= job.max_gpus);
        assert!(
            workload.names.tenants.get(job.tenant).is_some() && workload.names.users.get(job.user).is_some()
        );
        assert!(
            job.extra
                .as_ref()
                .is_none_or(|e| e.len() == workload.extra_columns.len())
        );
    }
    let _ = WorkloadStats::of(workload);
}

fn read_all(bytes: &[u8]) {
    let start = Instant::now();
    for format in Format::ALL.into_iter().map(Some).chain([None]) {
        if let Ok(workload) = read_from(bytes, "fuzz", format) {
            check(&workload);
        }
    }
    assert!(start.elapsed() < Duration::from_secs(5), "readers are quick");
}

fn read_clusters(bytes: &[u8]) {
    let start = Instant::now();
    for name in ["c.yaml", "c.csv", "c.ini", "c", "c.csv.gz"] {
        if let Ok(ClusterDescription { cluster, .. }) = describe_bytes(bytes, name) {
            assert!(!cluster.nodes.is_empty() && cluster.nodes.values().all(|n| n.gpus >= 1));
            assert!(
                cluster
                    .nodes
                    .values()
                    .all(|n| cluster.zones.get(n.zone).is_some())
            );
            // A few nodes are enough: descriptions repeat nodes, and checking a million of them takes long.
            for node in cluster.nodes.values().take(10) {
                let domains = node.numa_domains();
                let cpus: u32 = domains.iter().map(|d| d.cpus.count()).sum();
                assert_eq!(cpus, node.cpu_milli / 1000, "each CPU is in one domain");
                assert!(domains.iter().map(|d| d.gpus.count()).sum::<u32>() <= node.gpus);
            }
            assert!(
                cluster
                    .nodes
                    .values()
                    .all(|n| cluster.gpu_types.get(n.gpu_type).is_some())
            );
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10), "readers are quick");
}

#[test]
fn the_undamaged_files_are_valid() {
    for (format, text) in VALID {
        check(&read_from(text.as_bytes(), "valid", Some(format)).unwrap_or_else(|e| panic!("{e}")));
        read_from(text.as_bytes(), "valid", None).unwrap_or_else(|e| panic!("{e}"));
    }
    for (name, text) in CLUSTERS {
        describe_bytes(text.as_bytes(), name).unwrap_or_else(|e| panic!("{e}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(300), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_do_not_crash_readers(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_all(&bytes);
        read_clusters(&bytes);
    }

    #[test]
    fn random_bytes_after_a_compression_header_do_not_crash_readers(bytes in prop::collection::vec(any::<u8>(), 0..300), zstd in any::<bool>()) {
        let magic: &[u8] = if zstd { b"\x28\xb5\x2f\xfd" } else { b"\x1f\x8b\x08\x00" };
        read_all(&[magic, &bytes].concat());
    }

    #[test]
    fn random_text_does_not_crash_readers(text in "[-0-9a-zA-Z,.\"\n\t{}\\[\\]: ]{0,200}") {
        read_all(text.as_bytes());
        read_clusters(text.as_bytes());
        let _ = parse_cluster(&text);
    }

    #[test]
    fn random_cluster_shapes_do_not_crash_the_parser(spec in "(pool:)?[0-9]{0,12}x?[0-9]{0,12}") {
        let start = Instant::now();
        if let Ok(cluster) = parse_cluster(&spec) {
            prop_assert!(cluster.gpus() >= 1);
        }
        prop_assert!(start.elapsed() < Duration::from_secs(5));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(1000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_do_not_crash_readers(file in 0..VALID.len(), changes in prop::collection::vec(change(), 1..6)) {
        read_all(&changed(VALID[file].1, &changes));
    }

    #[test]
    fn damaged_clusters_do_not_crash_the_parser(file in 0..CLUSTERS.len(), changes in prop::collection::vec(change(), 1..6)) {
        read_clusters(&changed(CLUSTERS[file].1, &changes));
    }
}
