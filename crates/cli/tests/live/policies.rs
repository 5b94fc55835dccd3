//! Policies on a live cluster.

use crate::harness::Cluster;

#[test]
fn jobs_lists_the_gpus_that_an_elastic_job_holds() {
    let cluster = Cluster::start(1, 4, "policy: elastic-fifo:interval=0\n");
    let id = cluster.submit(
        &["--gpus", "2", "--min-gpus", "1", "--max-gpus", "4"],
        &["sleep", "60"],
    );
    cluster.until_state(id, "running");
    let listed = cluster.ok(&["jobs", "-o", "csv"]);
    let row = listed.lines().nth(1).unwrap_or_default();
    assert_eq!(row.split(',').nth(4), Some("4"), "{listed}");
    let shown = cluster.ok(&["job", "show", "last"]);
    assert!(shown.contains("4 (requested: 2)"), "{shown}");
}

#[test]
fn a_job_alone_on_its_gpu_does_not_share_it() {
    let cluster = Cluster::start(1, 1, "policy: antman\n");
    let first = cluster.submit(&[], &["sleep", "60"]);
    cluster.until_state(first, "running");
    let show = |id: u64| cluster.ok(&["job", "show", &id.to_string()]);
    assert!(!show(first).contains("shared by"), "{}", show(first));
    let second = cluster.submit(&["--priority", "-1"], &["sleep", "60"]);
    cluster.until_state(second, "running");
    for id in [first, second] {
        assert!(show(id).contains("GPUs shared by time slices"), "{}", show(id));
    }
    // A switch to a policy without sharing names the jobs by their numbers.
    let refused = cluster.run(&["operate", "policy", "fifo"]);
    let jobs = format!("job {first}, job {second} are placed on GPU 0");
    assert!(refused.code == 2 && refused.err.contains(&jobs), "{refused:?}");
}
