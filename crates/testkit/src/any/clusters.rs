//! Random clusters.

use dovetail_model::{ClusterSpec, GpuTypeId, NodeSpec, Zone, ZoneId};
use proptest::prelude::*;

/// Generates clusters of up to about 40 GPUs: with equal or different nodes, two GPU types, several racks. Some have little
/// CPU or memory.
pub fn clusters() -> impl Strategy<Value = ClusterSpec> {
    let sizes = prop_oneof![
        3 => (1..=6usize, prop_oneof![Just(1u32), Just(2), Just(4), Just(8)]).prop_map(|(n, g)| vec![g; n]),
        2 => prop::collection::vec(1..=8u32, 1..=6),
    ];
    let kinds = prop_oneof![3 => Just(0u8), 1 => any::<u8>()];
    let racks = prop_oneof![2 => Just(1u32), 1 => 2..=3u32];
    let cores = prop_oneof![2 => Just(16u32), 1 => 2..=8u32];
    let gpu_memory =
        prop_oneof![2 => Just(0u64), 1 => Just(16 * 1024), 1 => (6..20u64).prop_map(|gib| gib * 1024)];
    (sizes, kinds, racks, cores, gpu_memory).prop_map(|(sizes, kinds, racks, cores, gpu_memory_mib)| {
        let mut cluster = build(&sizes, kinds, racks, cores);
        for (i, node) in cluster.nodes.values_mut().enumerate() {
            // GPU memory differs between the types, and on the last nodes.
            node.gpu_memory_mib = gpu_memory_mib << (node.gpu_type.0 + u32::from(i > 3)).min(1);
        }
        cluster
    })
}

/// Generates clusters of one node, for which placement does not matter.
pub fn pools() -> impl Strategy<Value = ClusterSpec> {
    (1..=24u32).prop_map(|gpus| build(&[gpus], 0, 1, 16))
}

/// Builds a cluster. `kinds` has one bit per node; successive nodes form the racks.
fn build(sizes: &[u32], kinds: u8, racks: u32, cores_per_gpu: u32) -> ClusterSpec {
    let mut cluster = ClusterSpec::bare("gpu");
    if kinds != 0 {
        cluster.gpu_types.push("v100".to_owned());
    }
    let run = sizes.len().div_ceil(racks as usize);
    for (i, gpus) in sizes.iter().enumerate() {
        let zone = ZoneId((i / run) as u32);
        if zone.0 as usize == cluster.zones.len() {
            cluster.zones.push(Zone {
                name: format!("rack-{zone}"),
                parent: None,
            });
        }
        cluster.nodes.push(NodeSpec {
            zone,
            gpu_type: GpuTypeId(u32::from(kinds >> (i % 8) & 1)),
            cpu_milli: cores_per_gpu * 1000 * gpus,
            memory_mib: 64 * 1024 * u64::from(*gpus),
            ..NodeSpec::plain(format!("node-{i}"), *gpus)
        });
    }
    cluster
}
