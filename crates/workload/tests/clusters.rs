//! Clusters from a shape and from files, and the errors of invalid ones.

use dovetail_model::{ClusterSpec, GpuTypeId, ZoneId};
use dovetail_workload::cluster::{ClusterDescription, describe_bytes};
use dovetail_workload::parse_cluster;

fn yaml(text: &str) -> ClusterSpec {
    describe(text, "cluster.yaml").cluster
}

fn describe(text: &str, name: &str) -> ClusterDescription {
    describe_bytes(text.as_bytes(), name).unwrap_or_else(|e| panic!("{e}"))
}

#[track_caller]
fn fail(text: &str, name: &str) -> String {
    describe_bytes(text.as_bytes(), name)
        .expect_err("the cluster is invalid")
        .to_string()
}

#[test]
fn shapes_are_parsed() {
    let cluster = parse_cluster("32x4").unwrap();
    assert_eq!((cluster.nodes.len(), cluster.gpus()), (32, 128));
    let pool = parse_cluster("pool:534").unwrap();
    assert_eq!((pool.nodes.len(), pool.gpus()), (1, 534));
    let wrong = |spec: &str| parse_cluster(spec).unwrap_err();
    insta::assert_snapshot!(wrong("32*4"), @r#"found cluster "32*4", expected NODESxGPUS such as 32x4, pool:GPUS such as pool:534, or a file: native YAML, HiveD YAML, Synergy .ini, Muri cluster_spec .csv, openb node list .csv, Alibaba spot node_info_df.csv, Lingjun topo.csv"#);
    insta::assert_snapshot!(wrong("0x4"), @r#"found cluster "0x4", expected NODESxGPUS such as 32x4, pool:GPUS such as pool:534, or a file: native YAML, HiveD YAML, Synergy .ini, Muri cluster_spec .csv, openb node list .csv, Alibaba spot node_info_df.csv, Lingjun topo.csv; the nodes: found "0", expected a whole number from 1 to 1000000"#);
    insta::assert_snapshot!(wrong("4x2000"), @r#"found cluster "4x2000", expected NODESxGPUS such as 32x4, pool:GPUS such as pool:534, or a file: native YAML, HiveD YAML, Synergy .ini, Muri cluster_spec .csv, openb node list .csv, Alibaba spot node_info_df.csv, Lingjun topo.csv; the GPUs of a node: found "2000", expected a whole number from 1 to 1024"#);
    insta::assert_snapshot!(wrong("pool:all"), @r#"found cluster "pool:all", expected NODESxGPUS such as 32x4, pool:GPUS such as pool:534, or a file: native YAML, HiveD YAML, Synergy .ini, Muri cluster_spec .csv, openb node list .csv, Alibaba spot node_info_df.csv, Lingjun topo.csv; the GPUs of the pool: found "all", expected a whole number from 1 to 100000"#);
    insta::assert_snapshot!(wrong("no/such.yaml"), @r#"found cluster "no/such.yaml", expected NODESxGPUS such as 32x4, pool:GPUS such as pool:534, or a file: native YAML, HiveD YAML, Synergy .ini, Muri cluster_spec .csv, openb node list .csv, Alibaba spot node_info_df.csv, Lingjun topo.csv; no such file"#);
    insta::assert_snapshot!(wrong(""), @r#"found cluster "", expected NODESxGPUS such as 32x4, pool:GPUS such as pool:534, or a file: native YAML, HiveD YAML, Synergy .ini, Muri cluster_spec .csv, openb node list .csv, Alibaba spot node_info_df.csv, Lingjun topo.csv"#);
}

#[test]
fn a_yaml_file_with_all_keys() {
    let cluster = yaml(
        "defaults: {gpu_type: V100, gpus: 8, cpus: 96, memory_gb: 512, disk_mbps: 700, network_gbps: 100, gpus_per_domain: 4}
racks:
  - {name: a, count: 2, nodes: 3}
  - name: row-b
    gpu_type: A100
    racks:
      - nodes:
          - {count: 2, gpus: 4}
          - {name: big, gpus: 16, gpus_per_domain: 8}
nodes: [{name: lone, gpus: 1, cpus: 7.5}]
",
    );
    assert_eq!((cluster.nodes.len(), cluster.gpus()), (10, 73));
    let zones: Vec<_> = cluster
        .zones
        .values()
        .map(|z| (z.name.as_str(), z.parent))
        .collect();
    let row = Some(ZoneId(2));
    assert_eq!(
        zones,
        [
            ("a-0", None),
            ("a-1", None),
            ("row-b", None),
            ("rack-3", row),
            ("rack-4", None)
        ]
    );
    assert_eq!(cluster.gpu_types.values().collect::<Vec<_>>(), ["V100", "A100"]);
    let find = |name: &str| cluster.nodes.values().find(|n| n.name == name).unwrap();
    let (first, big, lone) = (find("node-0"), find("big"), find("lone"));
    assert_eq!(
        (
            first.cpu_milli,
            first.memory_mib,
            first.network_mbps,
            first.disk_mbps
        ),
        (96_000, 512 * 1024, 100_000, 700)
    );
    assert_eq!(
        (big.gpu_type, big.gpus, big.gpus_per_domain, big.zone),
        (GpuTypeId(1), 16, 8, ZoneId(3))
    );
    assert_eq!(
        (lone.cpu_milli, lone.gpus_per_domain, lone.zone),
        (7_500, 1, ZoneId(4))
    );
}

#[test]
fn errors_in_yaml_name_the_key() {
    let wrong = |text: &str| fail(text, "c.yaml");
    insta::assert_snapshot!(wrong("racks:\n  - {nodes: 4, gpu: 8}\n"), @"c.yaml: racks[0].gpu: unknown key (did you mean gpus?); expected one of name, count, nodes, racks, zones, gpu_type, gpus, cpus, memory_gb, gpu_memory_gb, disk_mbps, network_gbps, gpus_per_domain, numa");
    insta::assert_snapshot!(wrong("rack:\n  - {nodes: 4, gpus: 8}\n"), @"c.yaml: rack: unknown key (did you mean racks?); expected one of defaults, racks, zones, nodes");
    insta::assert_snapshot!(wrong("racks:\n  - {nodes: 4}\n"), @"c.yaml: racks[0].nodes: missing `gpus`: expected the number of GPUs of a node, here or above");
    insta::assert_snapshot!(wrong("racks:\n  - {gpus: 4}\n"), @"c.yaml: racks[0]: missing `nodes`: expected `nodes` (a number or a list) or `racks`");
    insta::assert_snapshot!(wrong("racks:\n  - {nodes: four, gpus: 8}\n"), @r#"c.yaml: racks[0].nodes: found "four", expected a whole number from 1 to 1000000"#);
    insta::assert_snapshot!(wrong("racks:\n  - {nodes: 4, gpus: 0}\n"), @"c.yaml: racks[0].gpus: found 0, expected a whole number from 1 to 1024");
    insta::assert_snapshot!(wrong("racks:\n  - {nodes: 4, gpus: 8, cpus: -1}\n"), @"c.yaml: racks[0].cpus: found -1, expected a number from 0 to 4000000");
    insta::assert_snapshot!(wrong("racks:\n  nodes: 4\n"), @r#"c.yaml: racks: found {"nodes":4}, expected a list of racks"#);
    insta::assert_snapshot!(wrong("nodes: [{name: a, gpus: 1}, {name: a, gpus: 1}]\n"), @r#"c.yaml: top level: duplicate node name "a""#);
    insta::assert_snapshot!(wrong("nodes: [{name: [], gpus: 1}]\n"), @"c.yaml: nodes[0].name: found [], expected a name");
    insta::assert_snapshot!(wrong("nodes: [8]\n"), @"c.yaml: nodes[0]: found 8, expected keys with values");
    insta::assert_snapshot!(wrong("defaults: {gpus: 1, node: 3}\nnodes: 1\n"), @"c.yaml: defaults.node: unknown key; expected one of gpu_type, gpus, cpus, memory_gb, gpu_memory_gb, disk_mbps, network_gbps, gpus_per_domain, numa");
    insta::assert_snapshot!(wrong("racks: []\n"), @"c.yaml: top level: no nodes: expected `racks` or `nodes`");
    insta::assert_snapshot!(wrong("[1, 2]\n"), @"c.yaml: top level: found [1,2], expected keys with values");
    insta::assert_snapshot!(wrong("racks: [\n"), @"c.yaml: not YAML: line 1 column 8: unclosed bracket '['");
    insta::assert_snapshot!(wrong("racks: [{count: 1000000, nodes: 1000000, gpus: 8}]\n"), @"c.yaml: racks[0].nodes: more than 1000000 nodes");
    insta::assert_snapshot!(wrong("physicalCluster: {}\n"), @"c.yaml: physicalCluster.physicalCells: empty; expected at least one cell");
    insta::assert_snapshot!(wrong(" "), @"c.yaml: the file is empty; expected NODESxGPUS such as 32x4, pool:GPUS such as pool:534, or a file: native YAML, HiveD YAML, Synergy .ini, Muri cluster_spec .csv, openb node list .csv, Alibaba spot node_info_df.csv, Lingjun topo.csv");
}

#[test]
fn tables_are_parsed() {
    let wrong = |text: &str| fail(text, "c.csv");
    insta::assert_snapshot!(wrong("num_switch,num_node,num_gpu_p_node\n1,8,8\n"), @r#"c.csv:1: missing column "num_node_p_switch"; found num_switch, num_node, num_gpu_p_node; the Muri cluster_spec format requires num_switch, num_node_p_switch, num_gpu_p_node"#);
    insta::assert_snapshot!(wrong("num_switch,num_node_p_switch,num_gpu_p_node\n1,8,none\n"), @r#"c.csv:2: field num_gpu_p_node: found "none", expected a whole number of at least 1"#);
    insta::assert_snapshot!(wrong("num_switch,num_node_p_switch,num_gpu_p_node\n"), @"c.csv: no machine with a GPU: expected at least one");
    insta::assert_snapshot!(wrong("sn,cpu_milli,memory_mib,gpu,model\na,1,1,0,\n"), @"c.csv: no machine with a GPU: expected at least one");
    insta::assert_snapshot!(wrong("sn,cpu_milli,memory_mib,gpu,model\na,1,1,1,\na,1,1,1,\n"), @r#"c.csv: duplicate machine name "a""#);
    insta::assert_snapshot!(wrong("a,b\n1,2\n"), @"c.csv: unknown kind of cluster file with the columns a, b; expected NODESxGPUS such as 32x4, pool:GPUS such as pool:534, or a file: native YAML, HiveD YAML, Synergy .ini, Muri cluster_spec .csv, openb node list .csv, Alibaba spot node_info_df.csv, Lingjun topo.csv");
    let muri = describe_bytes(
        b"num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n2,4,8,92,520\n",
        "n.csv",
    );
    let muri = muri.unwrap().cluster;
    let node = muri.nodes.values().last().unwrap();
    assert_eq!(
        (
            muri.nodes.len(),
            muri.zones.len(),
            node.zone,
            node.cpu_milli,
            node.memory_mib
        ),
        (8, 2, ZoneId(1), 92_000, 520 * 1024)
    );
}

#[test]
fn a_synergy_ini_file_is_parsed() {
    let all = "[CLUSTER]\t\n# comment\nracks = 2\nservers_per_rack : 3\nGPUS_PER_SERVER=4\ncpus_per_server = 12\n\
               dram_per_server = 250\nsspeed_per_server = 250\nnet_per_server = 10\n; more\n\n[SCHEDULER]\n\
               policy = SRTF+tune\nlease_time = 5\n";
    let found = describe(all, "c.ini");
    let cluster = &found.cluster;
    assert_eq!(
        (cluster.nodes.len(), cluster.zones.len(), cluster.gpus()),
        (6, 2, 24)
    );
    let names: std::collections::BTreeSet<_> = cluster.nodes.values().map(|n| n.name.as_str()).collect();
    assert_eq!(names.len(), 6, "racks do not share names: {names:?}");
    let node = cluster.nodes.values().last().unwrap();
    assert_eq!((node.zone, node.gpus, node.cpu_milli), (ZoneId(1), 4, 12_000));
    assert_eq!(
        (node.memory_mib, node.disk_mbps, node.network_mbps),
        (250 * 1024, 250, 10_000)
    );
    insta::assert_snapshot!(found.notes.join("\n"), @"c.ini: policy SRTF+tune and lease_time 5 of [SCHEDULER] have no effect, as in Synergy; use the flags --policy srtf --clock rounds:5m");
    // The defaults are those of Synergy.
    let least = describe("[CLUSTER]\nracks = 1\n", "c.ini");
    let node = least.cluster.nodes.values().next().unwrap();
    assert_eq!(
        (least.cluster.nodes.len(), node.gpus, node.cpu_milli),
        (4, 8, 24_000)
    );
    assert_eq!(
        (node.memory_mib, node.disk_mbps, node.network_mbps),
        (500 * 1024, 300, 40_000)
    );
    assert_eq!(least.notes, Vec::<String>::new());
}

#[test]
fn errors_in_ini_name_the_line() {
    let wrong = |text: &str| fail(text, "c.ini");
    insta::assert_snapshot!(wrong("[CLUSTER]\nrack = 1\n"), @r#"c.ini:2: unknown key "rack" of [CLUSTER] (did you mean racks?); expected one of racks, servers_per_rack, gpus_per_server, cpus_per_server, dram_per_server, sspeed_per_server, net_per_server"#);
    insta::assert_snapshot!(wrong("[CLUSTER]\nracks = 1\n[SCHEDULER]\nround = 300\n"), @r#"c.ini:4: unknown key "round" of [SCHEDULER]; expected one of policy, lease_time"#);
    insta::assert_snapshot!(wrong("[CLUSTERS]\nracks = 1\n"), @r#"c.ini:1: found "[CLUSTERS]", expected [CLUSTER] or [SCHEDULER]"#);
    insta::assert_snapshot!(wrong("[CLUSTER\nracks = 1\n"), @r#"c.ini:1: found "[CLUSTER", expected [CLUSTER] or [SCHEDULER]"#);
    insta::assert_snapshot!(wrong("racks = 1\n"), @r#"c.ini:1: found "racks" before any section, expected [CLUSTER] first"#);
    insta::assert_snapshot!(wrong("[CLUSTER]\nracks\n"), @r#"c.ini:2: found "racks", expected key = value"#);
    insta::assert_snapshot!(wrong("[CLUSTER]\nracks = 1\nracks = 2\n"), @"c.ini:3: duplicate key racks, first on line 2");
    insta::assert_snapshot!(wrong("[CLUSTER]\nracks = one\n"), @r#"c.ini:2: field racks: found "one", expected a whole number from 1 to 1000000"#);
    insta::assert_snapshot!(wrong("[CLUSTER]\ngpus_per_server = 0\n"), @r#"c.ini:2: field gpus_per_server: found "0", expected a whole number from 1 to 1024"#);
    insta::assert_snapshot!(wrong("[CLUSTER]\ndram_per_server = 62.5 # GB\n"), @r#"c.ini:2: field dram_per_server: found "62.5 # GB", expected a whole number from 1 to 1000000000"#);
    insta::assert_snapshot!(wrong("[CLUSTER]\nracks = 1000\nservers_per_rack = 1001\n"), @"c.ini: 1000 racks of 1001 servers are more than 1000000 nodes");
    insta::assert_snapshot!(wrong("[CLUSTER]\nracks = 1\n[SCHEDULER]\npolicy = SJF\n"), @r#"c.ini:4: field policy: found "SJF", expected one of FIFO, SRTF, LAS, FTF, DRF, TETRIS, SRSF, and then any of +place, +fair, +tune, +opt"#);
    insta::assert_snapshot!(wrong("[CLUSTER]\nracks = 1\n[SCHEDULER]\nlease_time = 5s\n"), @r#"c.ini:4: field lease_time: found "5s", expected a whole number from 1 to 525600"#);
    insta::assert_snapshot!(wrong("[SCHEDULER]\npolicy = FIFO\n"), @"c.ini: missing section [CLUSTER]: expected at least one key in it, such as servers_per_rack = 4");
    let bytes = describe_bytes(b"[CLUSTER]\nracks = \xff\n", "c.ini").unwrap_err();
    assert!(bytes.to_string().contains("not UTF-8"), "{bytes}");
}

#[test]
fn numa_domains() {
    let find = |text: &str| yaml(text).nodes.values().next().unwrap().clone();
    let half = find("nodes: [{gpus: 8, cpus: 24, numa: 2}]\n");
    let domains = |node: &dovetail_model::NodeSpec| -> Vec<String> {
        let gpus = |d: &dovetail_model::NumaDomain| format!("{:?}", d.gpus.iter().collect::<Vec<_>>());
        node.numa_domains()
            .iter()
            .map(|d| format!("{} {}", d.cpus, gpus(d)))
            .collect()
    };
    assert_eq!(domains(&half), ["0-11 [0, 1, 2, 3]", "12-23 [4, 5, 6, 7]"]);
    assert_eq!(half.gpus_per_domain, 4);
    let listed = find(
        "defaults: {gpus: 4, cpus: 8, numa: [{cpus: \"0-1,4-5\", gpus: [0, 2]}, {cpus: [2, 3, 6, 7], gpus: 1}]}\nnodes: 1\n",
    );
    assert_eq!(domains(&listed), ["0-1,4-5 [0, 2]", "2-3,6-7 [1]"]);
    assert_eq!(domains(&find("nodes: [{gpus: 2, cpus: 7.5}]\n")), ["0-6 [0, 1]"]);
    let wrong = |numa: &str| {
        fail(
            &format!("nodes: [{{gpus: 4, cpus: 8, numa: {numa}}}]\n"),
            "c.yaml",
        )
    };
    insta::assert_snapshot!(wrong("9"), @"c.yaml: nodes[0]: 9 NUMA domains, but only 8 whole CPUs");
    insta::assert_snapshot!(wrong("0"), @"c.yaml: nodes[0].numa: found 0, expected a whole number from 1 to 1024");
    insta::assert_snapshot!(wrong("[]"), @"c.yaml: nodes[0].numa: found [], expected 1 to 1024 domains");
    insta::assert_snapshot!(wrong("[{cpus: 0-3}]"), @"c.yaml: nodes[0]: its NUMA domains have 4 CPUs, but the node has 8");
    insta::assert_snapshot!(wrong("[{cpus: 0-3}, {cpus: 3-7}]"), @"c.yaml: nodes[0].numa[1].cpus: 3 is in two domains");
    insta::assert_snapshot!(wrong("[{cpus: 0-3}, {cpus: 7-4}]"), @r#"c.yaml: nodes[0].numa[1].cpus: found "7-4", expected numbers below 65536, such as 0-11,24-35"#);
    insta::assert_snapshot!(wrong("[{cpus: 0-7, gpus: 4}]"), @"c.yaml: nodes[0]: unknown GPU 4 in its NUMA domains: expected 0 to 3");
    insta::assert_snapshot!(wrong("[{cpu: 0-7}]"), @"c.yaml: nodes[0].numa[0].cpu: unknown key (did you mean cpus?); expected one of cpus, gpus");
    insta::assert_snapshot!(wrong("[{gpus: 0}]"), @"c.yaml: nodes[0].numa[0]: missing `cpus`: expected the CPUs of the domain, such as 0-11,24-35");
}

#[test]
fn machines_of_a_hived_configuration_are_nodes() {
    let cluster = yaml(
        "physicalCluster:
  skuTypes:
    GPU: {gpu: 1, cpu: 4, memory: 8192Mi}
    SHARE: {cpu: 2, memory: 1Gi}
  cellTypes:
    SOCKET: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: SOCKET, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
    SHARES: {childCellType: SHARE, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: RACK, cellChildren: [{cellAddress: a}, {cellAddress: b}]}
  - {cellType: SHARES, cellAddress: a}
  - {cellType: SHARES, cellAddress: cpu-only}
",
    );
    let nodes: Vec<_> = cluster
        .nodes
        .values()
        .map(|n| (n.name.as_str(), n.gpus, n.cpu_milli, n.memory_mib))
        .collect();
    assert_eq!(nodes, [("a", 4, 16_000, 32_768), ("b", 4, 16_000, 32_768)]);
    let zones: Vec<&str> = cluster.zones.values().map(|z| z.name.as_str()).collect();
    assert_eq!(zones, ["RACK 0"]);
}
