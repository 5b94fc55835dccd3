//! Pods that come one by one.

use std::time::Duration;

use dovetail_kubelab::Part;
use tokio::runtime::Runtime;

use super::field::Field;
use super::observer::Observer;
use super::rival::{Ours, Rival};
use crate::failure::{Blame, Failure};

/// How long pods wait, in milliseconds.
pub(super) struct Latency {
    pub(super) median: f64,
    pub(super) p99: f64,
}

const NODES: usize = 1_000;
const PODS: usize = 1_500;
const PER_SECOND: u64 = 50;
/// The first are for warming up.
const WARM: usize = 100;

/// Fifty pods a second for half a minute.
pub(super) fn once(runtime: &Runtime, rival: Rival) -> Result<Latency, Failure> {
    let field = Field::new(rival, NODES)?;
    let mut ours = None;
    match rival {
        Rival::KubeScheduler => field.lab.launch(Part::Scheduler).or_work()?,
        _ => ours = Some(Ours::start(&field, "dovetail", "events: pods\n", true)?),
    }
    let times = runtime.block_on(async {
        let (mut observer, _) = Observer::start(&field.client).await?;
        // It leads and knows all nodes when its first pod is bound.
        field.create_pod("first").await?;
        observer.until_bound(1).await?;
        let make = async {
            let mut tick = tokio::time::interval(Duration::from_millis(1000 / PER_SECOND));
            for i in 0..PODS {
                tick.tick().await;
                field.create_pod(&format!("pod-{i}")).await?;
            }
            Ok::<_, Failure>(())
        };
        let (made, bound) = tokio::join!(make, observer.until_bound(PODS + 1));
        made.and(bound)?;
        Ok::<_, Failure>(observer.pods)
    })?;
    drop(ours);
    let mut waits: Vec<f64> = (WARM..PODS)
        .filter_map(|i| times.get(&format!("pod-{i}")))
        .filter_map(|times| Some((times.bound? - times.seen).as_secs_f64() * 1000.0))
        .collect();
    waits.sort_by(f64::total_cmp);
    let at = |share: usize| waits.get(waits.len() * share / 100).copied().unwrap_or_default();
    Ok(Latency {
        median: at(50),
        p99: at(99),
    })
}
