//! The five experiments of Lab 6 of AI-System on Kubernetes, with the job files of the lab: `dovetail kube convert` converts its
//! configuration to virtual clusters, `dovetail kube submit` creates Jobs, the Job controller creates pods, and `dovetail kube
//! scheduler` starts them. The control plane is real; the kubelets are simulated, so that the test decides when a pod ends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kubernetes;

use kubernetes::{Cluster, has_ended, nodes_of, pending_reason};

const CAROL: &str = "hostname-carol";
const DAN: &str = "hostname-dan";
const TWO: &str = "lab6-config-A-two-vcs.yaml";
const ONE: &str = "lab6-config-B-one-vc.yaml";

#[test]
fn vc_safety_four_users_of_vc1_run_one_by_one_on_dan_although_carol_is_idle() {
    let Some(cluster) = Cluster::of_lab6(TWO) else {
        return;
    };
    let jobs: Vec<String> = ["alice", "bob", "carol", "dan"]
        .iter()
        .map(|user| cluster.submit(user, &cluster.file(0)))
        .collect();
    let mut waiting = jobs.clone();
    while !waiting.is_empty() {
        let runs = |job: &&String| cluster.running(job) == [DAN];
        cluster.until("one of the jobs runs on dan", || {
            waiting.iter().any(|job| runs(&job))
        });
        let first = waiting.iter().find(runs).unwrap().clone();
        waiting.retain(|job| *job != first);
        // The others have a reason, and none is on carol.
        for job in &waiting {
            cluster.until("the pending job has a reason", || {
                cluster.pending_reason(job).contains("vc1")
            });
            assert_eq!(cluster.bound(job), Vec::<String>::new());
        }
        cluster.finish(&first);
        cluster.until("the job completes", || cluster.is_complete(&first));
    }
    for job in &jobs {
        assert_eq!(nodes_of(&cluster.pods(job)), [DAN]);
    }
}

#[test]
fn preemption_prod_preempts_test_on_dan_and_test_runs_again_after_it() {
    let Some(cluster) = Cluster::of_lab6(TWO) else {
        return;
    };
    let low = cluster.submit("alice", &cluster.file(1));
    cluster.until("the test job runs on dan", || cluster.running(&low) == [DAN]);
    let first = cluster.pods(&low)[0]["metadata"]["uid"].clone();
    let high = cluster.submit("bob", &cluster.file(2));
    cluster.until("the prod job runs on dan", || cluster.running(&high) == [DAN]);
    assert!(cluster.bound(&low).is_empty());
    let event = cluster
        .events()
        .into_iter()
        .find(|e| e.contains("preempted by job-config-2"));
    assert!(event.is_some(), "{:?}", cluster.events());
    cluster.finish(&high);
    cluster.until("the test job runs again on dan", || {
        cluster.running(&low) == [DAN]
    });
    assert!(cluster.is_complete(&high));
    let again = &cluster.pods(&low)[0];
    assert_ne!(again["metadata"]["uid"], first, "the pod is a new one");
    assert_eq!(again["metadata"]["annotations"]["dovetail.io/attempt"], "2");
    cluster.finish(&low);
    // A preemption does not count as a failure.
    cluster.until("the job completes", || cluster.is_complete(&low));
}

#[test]
fn opportunistic_a_borrower_on_carol_is_preempted_by_the_owner_and_runs_again_on_dan() {
    let Some(cluster) = Cluster::of_lab6(TWO) else {
        return;
    };
    let first = cluster.submit("alice", &cluster.file(3));
    cluster.until("a job of vc1 runs on dan", || cluster.running(&first) == [DAN]);
    let borrower = cluster.submit("bob", &cluster.file(4));
    cluster.until("the borrower runs on carol", || {
        cluster.running(&borrower) == [CAROL]
    });
    let reclaiming = cluster.submit("carol", &cluster.file(5));
    cluster.until("the job of the owner of carol runs there", || {
        cluster.running(&reclaiming) == [CAROL]
    });
    assert!(cluster.bound(&borrower).is_empty());
    cluster.finish(&first);
    cluster.until("the borrower runs on dan", || cluster.running(&borrower) == [DAN]);
    assert_eq!(cluster.running(&reclaiming), [CAROL]);
    for job in [&borrower, &reclaiming] {
        cluster.finish(job);
        cluster.until("the job completes", || cluster.is_complete(job));
    }
}

#[test]
fn gang_both_instances_wait_and_start_together() {
    let Some(cluster) = Cluster::of_lab6(ONE) else {
        return;
    };
    let first = cluster.submit("alice", &cluster.file(5));
    cluster.until("a job runs", || cluster.running(&first).len() == 1);
    let gang = cluster.submit("bob", &cluster.file(6));
    cluster.until("both pods have a reason", || {
        let pods = cluster.pods(&gang);
        pods.len() == 2 && pods.iter().all(|pod| !pending_reason(pod).is_empty())
    });
    assert!(cluster.bound(&gang).is_empty());
    cluster.finish(&first);
    cluster.until("both run", || cluster.running(&gang) == [CAROL, DAN]);
    // By this file one success is enough: the other instance is ended, and the job succeeds.
    cluster.finish_one(&gang, 0);
    cluster.until("the job completes", || cluster.is_complete(&gang));
    cluster.until("all pods have ended", || {
        cluster.pods(&gang).iter().all(has_ended)
    });
    // Its GPUs are free again.
    let next = cluster.submit("carol", &cluster.file(6));
    cluster.until("the next gang runs", || cluster.running(&next) == [CAROL, DAN]);
}

#[test]
fn incremental_instances_start_one_by_one_and_a_gang_that_can_never_start_has_a_reason() {
    let Some(cluster) = Cluster::of_lab6(ONE) else {
        return;
    };
    let first = cluster.submit("alice", &cluster.file(5));
    cluster.until("a job runs", || cluster.running(&first).len() == 1);
    let two = cluster.submit("bob", &cluster.file(7));
    cluster.until("one instance runs at once", || cluster.running(&two).len() == 1);
    cluster.until("the other has a reason", || {
        !cluster.pending_reason(&two).is_empty()
    });
    assert_eq!(cluster.bound(&two).len(), 1);
    cluster.finish(&first);
    cluster.until("both run", || cluster.running(&two) == [CAROL, DAN]);
    // By this file one success is enough: the other instance is ended.
    cluster.finish_one(&two, 0);
    cluster.until("the job completes", || cluster.is_complete(&two));
    cluster.until("all pods have ended", || cluster.pods(&two).iter().all(has_ended));

    let four = cluster.file(7).replace("instances: 2", "instances: 4");
    let whole = four.replace("gangAllocation: false", "gangAllocation: true");
    let never = cluster.submit("carol", &whole);
    cluster.until("a gang of four on two GPUs has a reason", || {
        let reason = cluster.pending_reason(&never);
        reason.contains("asks for 4 GPUs") && reason.contains("default")
    });
    // By the file the first success would end all instances; here all must succeed.
    let each = cluster.submit(
        "dan",
        &four.replace("minSucceededInstances: 1", "minSucceededInstances: 4"),
    );
    for left in (0..4_usize).rev() {
        let running = (left + 1).min(2);
        cluster.until("two instances run, or the last one", || {
            cluster.running(&each).len() == running
        });
        let pods = cluster.pods(&each);
        let index = pods
            .iter()
            .position(|pod| pod["status"]["phase"] == "Running")
            .unwrap();
        cluster.end_pod(&pods[index]);
        let ended = 4 - left;
        cluster.until("the pod has ended", || {
            cluster
                .pods(&each)
                .iter()
                .filter(|pod| pod["status"]["phase"] == "Succeeded")
                .count()
                == ended
        });
    }
    cluster.until("the job completes", || cluster.is_complete(&each));
    assert!(cluster.bound(&never).is_empty());
}
