//! The restart of a server with a long history.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use dovetail_cluster::{
    Actor, Capabilities, Driver, Handle, NodeCommand, NodeRegistration, Runtime, RuntimeCommand, TaskEnd,
};
use dovetail_console::ScratchFolder;
use dovetail_model::{NodeId, NodeSpec};

use super::{driver_config, job_request};
use crate::BenchError;
use crate::error::StepResult;
use crate::measurement::GoalMeasurement;

const JOBS: usize = 100_000;
/// Jobs that have not ended when the server stops.
const ACTIVE_JOBS: usize = 10_000;
const NODES: usize = 1_000;

/// Hands commands to the benchmark instead of agents.
struct CommandChannel(Sender<NodeCommand>);

impl Runtime for CommandChannel {
    type Command = NodeCommand;

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn execute(&mut self, commands: &mut dyn Iterator<Item = NodeCommand>) {
        for command in commands {
            // The receiver is dropped when the benchmark has seen enough.
            let _ = self.0.send(command);
        }
    }
}

/// Measures the time from opening a journal with many jobs, after a crash, to the first decision.
pub(super) fn measure() -> Result<GoalMeasurement, BenchError> {
    let folder = ScratchFolder::new("bench-restart")?;
    create_history(folder.path())?;
    let start = Instant::now();
    let (driver, handle, recovery) = Driver::open(&driver_config(folder.path().to_owned()))?;
    let (sender, commands) = channel();
    let driving = driver.spawn(CommandChannel(sender));
    // A new node has free GPUs: a queued job is started there.
    add_node(&handle, NODES)?;
    commands.recv().step("receive the first command")?;
    let seconds = start.elapsed().as_secs_f64();
    let active = handle.read(|state| state.jobs().filter(|job| !job.state.has_ended()).count());
    if active != ACTIVE_JOBS {
        return Err(BenchError::Unexpected(format!(
            "found {active} active jobs after the restart, expected {ACTIVE_JOBS}"
        )));
    }
    let _ = handle.shut_down().wait();
    drop(handle);
    join(driving)?;
    let name = format!(
        "restart with {JOBS} jobs ({ACTIVE_JOBS} active; snapshot and {} records): first decision",
        recovery.records
    );
    Ok(GoalMeasurement::below(name, seconds, "s", 2.0))
}

fn join(driver: JoinHandle<()>) -> Result<(), BenchError> {
    driver
        .join()
        .map_err(|_| BenchError::Unexpected("the driver panicked".to_owned()))
}

fn add_node(handle: &Handle, i: usize) -> Result<NodeId, BenchError> {
    let registration = NodeRegistration {
        spec: NodeSpec::plain(format!("node-{i}"), 8),
        gpu_type: "virtual".to_owned(),
        rack: String::new(),
        address: "127.0.0.1".to_owned(),
        identity: i as u64,
    };
    Ok(handle.register_node(registration).wait()?.node)
}

/// Writes a journal with many ended jobs and some running and queued ones, and stops without shutting down.
fn create_history(folder: &Path) -> Result<(), BenchError> {
    let (driver, handle, _) = Driver::open(&driver_config(folder.to_owned()))?;
    let (sender, commands) = channel();
    let driving = driver.spawn(CommandChannel(sender));
    for i in 0..NODES {
        add_node(&handle, i)?;
    }
    run_jobs(&handle, &commands);
    // Waits for all earlier requests.
    handle.set_draining("node-0", None, Actor::user("bench")).wait()?;
    drop(handle);
    drop(commands);
    join(driving)
}

/// Ends a job for each one that is submitted, until all have been.
fn run_jobs(handle: &Handle, commands: &Receiver<NodeCommand>) {
    let submit = || handle.submit("bench", job_request(1)).then(|_| {});
    (0..ACTIVE_JOBS).for_each(|_| submit());
    let (mut submitted, mut ended) = (ACTIVE_JOBS, 0);
    while let Ok((node, RuntimeCommand::Start(task))) = commands.recv() {
        handle
            .task_started(task.job, task.attempt, node, String::new(), Vec::new())
            .then(|_| {});
        if ended + ACTIVE_JOBS < JOBS {
            let end = TaskEnd::default();
            handle.task_ended(task.job, task.attempt, node, end).then(|_| {});
            ended += 1;
            submit();
            submitted += 1;
            if submitted == JOBS {
                return;
            }
        }
    }
}
