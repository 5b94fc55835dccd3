//! How long pods wait that are created one by one.

use std::time::Duration;

use dovetail_kubelab::Component;
use tokio::runtime::Runtime;

use super::contender::{Contender, SchedulerProcess};
use super::observer::Observer;
use super::testbed::Testbed;
use crate::BenchError;
use crate::measurement::{median, percentile};

/// Time from the creation of a pod to its binding.
pub(super) struct Latency {
    pub(super) median_ms: f64,
    pub(super) p99_ms: f64,
}

const NODES: usize = 1_000;
const PODS: usize = 1_500;
const PODS_PER_SECOND: u64 = 50;
/// The first pods warm up the scheduler, and do not count.
const WARM_UP: usize = 100;

/// Creates fifty pods per second for half a minute.
pub(super) fn measure(runtime: &Runtime, contender: Contender) -> Result<Latency, BenchError> {
    let testbed = Testbed::new(contender, NODES)?;
    let scheduler = match contender {
        Contender::KubeScheduler => {
            testbed.lab.launch(Component::Scheduler)?;
            None
        }
        _ => {
            let process = SchedulerProcess::start(&testbed, "dovetail", "events: pods\n", true)?;
            Some(process)
        }
    };
    let observer = runtime.block_on(create_and_observe(&testbed))?;
    drop(scheduler);
    let waits: Vec<f64> = (WARM_UP..PODS)
        .filter_map(|i| observer.pods.get(&format!("pod-{i}")))
        .filter_map(|times| Some((times.bound? - times.created).as_secs_f64() * 1000.0))
        .collect();
    Ok(Latency {
        p99_ms: percentile(waits.clone(), 99),
        median_ms: median(waits),
    })
}

/// Creates pods at a steady rate until all of them are bound.
async fn create_and_observe(testbed: &Testbed) -> Result<Observer, BenchError> {
    let (mut observer, _) = Observer::start(&testbed.client).await?;
    // A scheduler that has bound a pod leads and knows all nodes.
    testbed.create_pod("first").await?;
    observer.wait_for_bound(1).await?;
    let create = async {
        let mut tick = tokio::time::interval(Duration::from_millis(1000 / PODS_PER_SECOND));
        for i in 0..PODS {
            tick.tick().await;
            testbed.create_pod(&format!("pod-{i}")).await?;
        }
        Ok::<_, BenchError>(())
    };
    let (created, bound) = tokio::join!(create, observer.wait_for_bound(PODS + 1));
    created.and(bound)?;
    Ok(observer)
}
