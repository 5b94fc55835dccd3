//! The five experiments of Lab 6 of AI-System on Kubernetes, from the lab's own job files: `dovetail kube convert` makes virtual
//! clusters of its configuration, `dovetail kube submit` makes Jobs of its files, the Job controller makes pods, and `dovetail
//! kube scheduler` starts them. The control plane is real; kubelets are played, so that a pod ends when the test says so.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kubernetes;

use kubernetes::{Cluster, over, ran_on};

const CAROL: &str = "hostname-carol";
const DAN: &str = "hostname-dan";
const TWO: &str = "lab6-config-A-two-vcs.yaml";
const ONE: &str = "lab6-config-B-one-vc.yaml";

#[test]
fn vc_safety_four_users_of_vc1_run_one_by_one_on_dan_although_carol_idles() {
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
        cluster.until("one of them runs on dan", || waiting.iter().any(|job| runs(&job)));
        let first = waiting.iter().find(runs).unwrap().clone();
        waiting.retain(|job| *job != first);
        // The others are told why they wait, and nobody is on carol.
        for job in &waiting {
            cluster.until("it says why it waits", || cluster.why(job).contains("vc1"));
            assert_eq!(cluster.bound(job), Vec::<String>::new());
        }
        cluster.finish(&first);
        cluster.until("it completes", || cluster.is_complete(&first));
    }
    for job in &jobs {
        assert_eq!(ran_on(&cluster.pods(job)), [DAN]);
    }
}

#[test]
fn preemption_test_gives_way_to_prod_on_dan_and_runs_again_after_it() {
    let Some(cluster) = Cluster::of_lab6(TWO) else {
        return;
    };
    let low = cluster.submit("alice", &cluster.file(1));
    cluster.until("the test job runs on dan", || cluster.running(&low) == [DAN]);
    let first = cluster.pods(&low)[0]["metadata"]["uid"].clone();
    let high = cluster.submit("bob", &cluster.file(2));
    cluster.until("the prod job runs on dan", || cluster.running(&high) == [DAN]);
    assert!(cluster.bound(&low).is_empty());
    let said = cluster
        .events()
        .into_iter()
        .find(|e| e.contains("preempted by job-config-2"));
    assert!(said.is_some(), "{:?}", cluster.events());
    cluster.finish(&high);
    cluster.until("the test job runs again on dan", || {
        cluster.running(&low) == [DAN]
    });
    assert!(cluster.is_complete(&high));
    let again = &cluster.pods(&low)[0];
    assert_ne!(again["metadata"]["uid"], first, "it starts from scratch");
    assert_eq!(again["metadata"]["annotations"]["dovetail.io/attempt"], "2");
    cluster.finish(&low);
    // That it was preempted does not count as a failure.
    cluster.until("it completes", || cluster.is_complete(&low));
}

#[test]
fn opportunistic_a_borrower_starts_at_once_on_carol_goes_when_its_owner_comes_and_runs_again_on_dan() {
    let Some(cluster) = Cluster::of_lab6(TWO) else {
        return;
    };
    let owner = cluster.submit("alice", &cluster.file(3));
    cluster.until("a job of vc1 runs on dan", || cluster.running(&owner) == [DAN]);
    let borrower = cluster.submit("bob", &cluster.file(4));
    cluster.until("the borrower runs on carol", || {
        cluster.running(&borrower) == [CAROL]
    });
    let comes = cluster.submit("carol", &cluster.file(5));
    cluster.until("whoever owns carol runs there", || {
        cluster.running(&comes) == [CAROL]
    });
    assert!(cluster.bound(&borrower).is_empty());
    cluster.finish(&owner);
    cluster.until("the borrower runs on dan", || cluster.running(&borrower) == [DAN]);
    assert_eq!(cluster.running(&comes), [CAROL]);
    for job in [&borrower, &comes] {
        cluster.finish(job);
        cluster.until("it completes", || cluster.is_complete(job));
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
    cluster.until("both say why they wait", || {
        let pods = cluster.pods(&gang);
        pods.len() == 2 && pods.iter().all(|pod| !kubernetes::why(pod).is_empty())
    });
    assert!(cluster.bound(&gang).is_empty());
    cluster.finish(&first);
    cluster.until("both run", || cluster.running(&gang) == [CAROL, DAN]);
    // One success is enough for this file: the other instance is ended, and the job is a success.
    cluster.finish_one(&gang, 0);
    cluster.until("it completes", || cluster.is_complete(&gang));
    cluster.until("nothing of it runs on", || cluster.pods(&gang).iter().all(over));
    // Its GPUs are free.
    let next = cluster.submit("carol", &cluster.file(6));
    cluster.until("the next gang runs", || cluster.running(&next) == [CAROL, DAN]);
}

#[test]
fn incremental_instances_start_one_by_one_and_a_gang_that_can_never_start_is_told_so() {
    let Some(cluster) = Cluster::of_lab6(ONE) else {
        return;
    };
    let first = cluster.submit("alice", &cluster.file(5));
    cluster.until("a job runs", || cluster.running(&first).len() == 1);
    let two = cluster.submit("bob", &cluster.file(7));
    cluster.until("one instance runs at once", || cluster.running(&two).len() == 1);
    cluster.until("the other says why it waits", || !cluster.why(&two).is_empty());
    assert_eq!(cluster.bound(&two).len(), 1);
    cluster.finish(&first);
    cluster.until("both run", || cluster.running(&two) == [CAROL, DAN]);
    // One success is enough for this file: it ends the other instance.
    cluster.finish_one(&two, 0);
    cluster.until("it completes", || cluster.is_complete(&two));
    cluster.until("nothing of it runs on", || cluster.pods(&two).iter().all(over));

    let four = cluster.file(7).replace("instances: 2", "instances: 4");
    let whole = four.replace("gangAllocation: false", "gangAllocation: true");
    let never = cluster.submit("carol", &whole);
    cluster.until("a gang of four is told that there are two", || {
        let said = cluster.why(&never);
        said.contains("asks for 4 GPUs") && said.contains("default")
    });
    // The first that succeeds would end all of them, as the file says; here all have to.
    let each = cluster.submit(
        "dan",
        &four.replace("minSucceededInstances: 1", "minSucceededInstances: 4"),
    );
    for left in (0..4_usize).rev() {
        let running = (left + 1).min(2);
        cluster.until("two run, as long as there are two", || {
            cluster.running(&each).len() == running
        });
        let pods = cluster.pods(&each);
        let index = pods
            .iter()
            .position(|pod| pod["status"]["phase"] == "Running")
            .unwrap();
        cluster.end_pod(&pods[index]);
        let ended = 4 - left;
        cluster.until("it ends", || {
            cluster
                .pods(&each)
                .iter()
                .filter(|pod| pod["status"]["phase"] == "Succeeded")
                .count()
                == ended
        });
    }
    cluster.until("it completes", || cluster.is_complete(&each));
    assert!(cluster.bound(&never).is_empty());
}
