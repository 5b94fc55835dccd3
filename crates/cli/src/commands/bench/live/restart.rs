//! How long it takes to come back with a long past.

use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use anyhow::anyhow;
use dovetail_control::{Arrival, Backend, Driver, Handle, Order, TaskEnd};
use dovetail_model::{NodeId, NodeSpec};

use super::{Row, config, job};
use crate::failure::{Blame, Failure};
use crate::scratch::Scratch;

const JOBS: usize = 100_000;
const LIVE: usize = 10_000;
const NODES: usize = 1_000;

struct Post(Sender<(NodeId, Order)>);

impl Backend for Post {
    fn orders(&mut self, orders: Vec<(NodeId, Order)>) {
        // Whoever listened has heard enough.
        orders.into_iter().for_each(|order| drop(self.0.send(order)));
    }

    fn noticed(&mut self, _last: u64) {}
}

/// A journal with many jobs, of which some run and some wait; then a crash, and the first decision after it.
pub(super) fn first_decision() -> Result<Row, Failure> {
    let dir = Scratch::new("bench-restart")?;
    make_past(&dir)?;
    let begin = Instant::now();
    let (driver, handle, start) = Driver::open(&config(dir.0.clone())).or_work()?;
    let (sender, orders) = channel();
    let driving = driver.spawn(Post(sender));
    // A node comes with room: something that waits is started there.
    arrive(&handle, NODES)?;
    orders.recv().or_work()?;
    let seconds = begin.elapsed().as_secs_f64();
    let live = handle.read(|book| book.jobs().filter(|job| !job.state.is_over()).count());
    if live != LIVE {
        return Err(Failure::Work(anyhow!("{live} jobs are live, not {LIVE}")));
    }
    let _ = handle.shut_down().wait();
    drop(handle);
    driving
        .join()
        .map_err(|_| Failure::Work(anyhow!("the driver failed")))?;
    let what = format!(
        "restart with {JOBS} jobs ({LIVE} live; snapshot and {} records): first decision",
        start.records
    );
    Ok(Row::new(what, seconds, "s", 2.0, false))
}

fn arrive(handle: &Handle, i: usize) -> Result<NodeId, Failure> {
    let arrival = Arrival {
        spec: NodeSpec::plain(format!("node-{i}"), 8),
        gpu_type: "virtual".to_owned(),
        rack: String::new(),
        address: "127.0.0.1".to_owned(),
        identity: i as u64,
    };
    Ok(handle.node_arrives(arrival).wait().or_work()?.node)
}

fn make_past(dir: &Scratch) -> Result<(), Failure> {
    let (driver, handle, _) = Driver::open(&config(dir.0.clone())).or_work()?;
    let (sender, orders) = channel();
    let driving = driver.spawn(Post(sender));
    for i in 0..NODES {
        arrive(&handle, i)?;
    }
    let mut sent = 0;
    let mut ended = 0;
    let mut send = |handle: &Handle| {
        handle.submit("bench", job(1)).then(|_| {});
        sent += 1;
        sent
    };
    for _ in 0..LIVE {
        send(&handle);
    }
    // As many end as come, until there have been enough.
    while let Ok((node, Order::Start(task))) = orders.recv() {
        handle
            .task_started(task.job, task.launch, node, String::new(), Vec::new())
            .then(|_| {});
        if ended + LIVE < JOBS {
            let end = TaskEnd::default();
            handle.task_ended(task.job, task.launch, node, end).then(|_| {});
            ended += 1;
            if send(&handle) == JOBS {
                break;
            }
        }
    }
    // A word that waits for all those before it; then the process dies: nothing is tidied up.
    handle.set_draining("node-0", None, "bench").wait().or_work()?;
    drop(handle);
    drop(orders);
    driving
        .join()
        .map_err(|_| Failure::Work(anyhow!("the driver failed")))
}
