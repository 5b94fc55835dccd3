//! Average JCT of `srsf`, `sjf` and `fifo-backfill` on one pool of GPUs, and the lower bound, compared with the table.

use dovetail_model::{ClusterSpec, NodeSpec};
use dovetail_policies::{Overrides, build};
use dovetail_sim::{SimConfig, simulate};
use dovetail_testkit::shared;
use dovetail_workload::{Format, read};

#[test]
fn averages_and_bounds_match_the_table_within_one_percent() {
    let Some(folder) = shared(env!("CARGO_MANIFEST_DIR"), "jct-bound") else {
        return;
    };
    let table = std::fs::read_to_string(folder.join("expected.csv")).unwrap();
    for line in table.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let (trace, gpus) = (cells[0], cells[1].parse::<u32>().unwrap());
        let plain = folder.join(format!("{trace}.csv"));
        let path = if plain.is_file() {
            plain
        } else {
            folder.join(format!("{trace}.csv.gz"))
        };
        let workload = read(&path, Some(Format::Native)).unwrap();
        let mut cluster = ClusterSpec::bare("gpu");
        cluster.nodes.push(NodeSpec::plain("pool", gpus));
        let config = SimConfig::new(cluster);
        for (policy, expected) in [("srsf", cells[3]), ("sjf", cells[5]), ("fifo-backfill", cells[6])] {
            let started = std::time::Instant::now();
            let (built, needs) = build(policy, &Overrides::default()).unwrap();
            let record = simulate(&workload, built, needs, &config).unwrap();
            let s = &record.summary;
            let took = started.elapsed().as_secs_f64();
            println!(
                "{trace:7} {gpus:4} {policy:14} avg {:10.1} (table {expected:>9}) bound {:9.1} (table {:>8}) preemptions {:6} (table {}) {took:.2} s, {:.0} events/s, {} rejected",
                s.avg_jct_s,
                s.lower_bound_avg_jct_s,
                cells[2],
                s.preemptions,
                cells[4],
                s.events as f64 / took,
                s.rejected
            );
            let near = |ours: f64, text: &str| (ours / text.parse::<f64>().unwrap() - 1.0).abs() < 0.01;
            assert!(
                near(s.avg_jct_s, expected),
                "{trace} on {gpus} GPUs: {policy} {} against {expected}",
                s.avg_jct_s
            );
            assert!(
                near(s.lower_bound_avg_jct_s, cells[2]),
                "{trace} on {gpus} GPUs: bound {}",
                s.lower_bound_avg_jct_s
            );
        }
    }
}
