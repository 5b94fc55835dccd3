//! A scheduler that takes over a cluster in full use: after its own start, and after its leader was killed.

use std::time::{Duration, Instant};

use dovetail_kubeapi::{Lease, now_micros, parse_time};
use tokio::runtime::Runtime;

use super::contender::{Contender, SchedulerProcess};
use super::observer::Observer;
use super::testbed::{GPUS_PER_NODE, Testbed};
use crate::BenchError;
use crate::measurement::{GoalMeasurement, median};

const PODS: usize = 10_000;
/// A few more nodes than the running pods need, for the pods that are measured.
const NODES: usize = PODS / GPUS_PER_NODE + 8;
/// Duration of the lease, in whole seconds as in Kubernetes.
const LEASE: Duration = Duration::from_secs(2);
const SETTINGS: &str = "events: none\n";

/// Measures cold starts and take-overs with 10,000 running pods.
pub(super) fn measure(runtime: &Runtime, runs: u32) -> Result<Vec<GoalMeasurement>, BenchError> {
    let testbed = Testbed::new(Contender::Dovetail, NODES)?;
    let mut observer = runtime.block_on(fill(&testbed))?;
    let mut starts = Vec::new();
    for run in 0..runs {
        starts.push(runtime.block_on(cold_start(&testbed, &mut observer, run))?);
    }
    let mut takeovers = Vec::new();
    for run in 0..runs {
        takeovers.push(runtime.block_on(takeover(&testbed, &mut observer, run))?);
    }
    Ok(vec![
        GoalMeasurement::below(
            "cold start with 10,000 running pods: first bound",
            median(starts),
            "s",
            3.0,
        ),
        GoalMeasurement::below(
            "leader killed with 10,000 running pods: first bound after the lease expired",
            median(takeovers),
            "s",
            3.0,
        ),
    ])
}

/// Creates pods, binds them all, and marks them as running.
async fn fill(testbed: &Testbed) -> Result<Observer, BenchError> {
    testbed.create_pods(PODS, None).await?;
    let (mut observer, _) = Observer::start(&testbed.client).await?;
    let scheduler = SchedulerProcess::start(testbed, "first", SETTINGS, true)?;
    observer.wait_for_bound(PODS).await?;
    drop(scheduler);
    testbed.mark_running(PODS).await?;
    Ok(observer)
}

/// Returns seconds from the start of a scheduler to the first bound pod.
async fn cold_start(testbed: &Testbed, observer: &mut Observer, run: u32) -> Result<f64, BenchError> {
    testbed.create_pod(&format!("cold-{run}")).await?;
    let start = Instant::now();
    let _scheduler = SchedulerProcess::start(testbed, "cold", SETTINGS, true)?;
    observer.wait_for_bound(observer.bound + 1).await?;
    Ok(start.elapsed().as_secs_f64())
}

/// Returns seconds from the expiry of a killed leader's lease to the first bound pod.
async fn takeover(testbed: &Testbed, observer: &mut Observer, run: u32) -> Result<f64, BenchError> {
    let settings = format!(
        "{SETTINGS}lease: {{namespace: default, name: bench, duration: {}s, deadline: 1500ms, period: 400ms}}\n",
        LEASE.as_secs()
    );
    let leader = SchedulerProcess::start(testbed, "leader", &settings, false)?;
    let bound = observer.bound;
    testbed.create_pod(&format!("before-{run}")).await?;
    observer.wait_for_bound(bound + 1).await?;
    let _standby = SchedulerProcess::start(testbed, "standby", &settings, false)?;
    // The standby reads the lease once per period.
    tokio::time::sleep(LEASE).await;
    drop(leader);
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/bench";
    let lease: Lease = testbed.client.get(path).await?;
    let renewed = lease.spec.renew_time.as_deref().and_then(parse_time);
    let renewed =
        renewed.ok_or_else(|| BenchError::Unexpected("the leader never renewed its lease".to_owned()))?;
    let age = Duration::from_micros(u64::try_from(now_micros() - renewed).unwrap_or(0));
    let expiry = Instant::now() + LEASE.saturating_sub(age);
    testbed.create_pod(&format!("after-{run}")).await?;
    observer.wait_for_bound(bound + 2).await?;
    Ok(Instant::now().saturating_duration_since(expiry).as_secs_f64())
}
