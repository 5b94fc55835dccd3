//! A scheduler that comes to a cluster in full use: at its start, and after its leader has died.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use dovetail_kubeapi::{Lease, now_micros, parse_time};
use tokio::runtime::Runtime;

use super::field::Field;
use super::observer::Observer;
use super::rival::{Ours, Rival};
use super::{Row, median};
use crate::failure::{Blame, Failure};

const PODS: usize = 10_000;
/// Room for the pods that are to be decided about.
const NODES: usize = PODS / 8 + 8;
/// Whole seconds, since a lease knows no others.
const LEASE: Duration = Duration::from_secs(2);

pub(super) fn rows(runtime: &Runtime, runs: u32) -> Result<Vec<Row>, Failure> {
    let field = Field::new(Rival::Dovetail, NODES)?;
    let mut observer = runtime.block_on(async {
        field.create_pods(PODS, None).await?;
        let (mut observer, _) = Observer::start(&field.client).await?;
        let ours = Ours::start(&field, "first", "events: none\n", true)?;
        observer.until_bound(PODS).await?;
        ours.kill();
        field.all_run(PODS).await?;
        Ok::<_, Failure>(observer)
    })?;
    let mut starts = Vec::new();
    for run in 0..runs {
        runtime.block_on(field.create_pod(&format!("cold-{run}")))?;
        let begin = Instant::now();
        let ours = Ours::start(&field, "cold", "events: none\n", true)?;
        let count = observer.bound + 1;
        runtime.block_on(observer.until_bound(count))?;
        starts.push(begin.elapsed().as_secs_f64());
        drop(ours);
    }
    let mut takeovers = Vec::new();
    for run in 0..runs {
        takeovers.push(runtime.block_on(takeover(&field, &mut observer, run))?);
    }
    Ok(vec![
        Row::new(
            "cold start with 10,000 running pods: first bound",
            median(starts),
            "s",
            3.0,
            false,
        ),
        Row::new(
            "leader killed, 10,000 running pods: first bound after the lease ran out",
            median(takeovers),
            "s",
            3.0,
            false,
        ),
    ])
}

/// Seconds from the end of a dead leader's lease to the first pod that is bound.
async fn takeover(field: &Field, observer: &mut Observer, run: u32) -> Result<f64, Failure> {
    let settings = format!(
        "events: none\nlease: {{namespace: default, name: bench, duration: {}s, deadline: 1500ms, period: 400ms}}\n",
        LEASE.as_secs()
    );
    let leader = Ours::start(field, "leader", &settings, false)?;
    let count = observer.bound + 1;
    field.create_pod(&format!("before-{run}")).await?;
    observer.until_bound(count).await?;
    let _second = Ours::start(field, "second", &settings, false)?;
    // It has to have seen the lease, which takes a period.
    tokio::time::sleep(LEASE).await;
    leader.kill();
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/bench";
    let lease: Lease = field.client.get(path).await.or_work()?;
    let renewed = lease.spec.renew_time.as_deref().and_then(parse_time);
    let renewed = renewed.ok_or_else(|| Failure::Work(anyhow!("the lease was never renewed")))?;
    let age = Duration::from_micros(u64::try_from(now_micros() - renewed).unwrap_or(0));
    let ends = Instant::now() + LEASE.saturating_sub(age);
    field.create_pod(&format!("after-{run}")).await?;
    observer.until_bound(count + 1).await?;
    Ok(Instant::now().saturating_duration_since(ends).as_secs_f64())
}
