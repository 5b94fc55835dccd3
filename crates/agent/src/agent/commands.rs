//! Commands of the server: keep, start, stop and resize tasks.

use std::path::PathBuf;

use dovetail_proto::v1::{ResizeTask, StartTask, StopTask, TaskEnded, Welcome};
use nix::unistd::{Uid, User};

use crate::agent::Agent;
use crate::agent::gates;
use crate::agent::launch::{self, LaunchPlan};
use crate::agent::task::{Phase, Task, not_started};
use crate::process;
use crate::task::cgroup::TaskGroup;
use crate::task::environment::{self, NodeContext};
use crate::task::error::StartError;
use crate::task::folder::TaskFolder;
use crate::task::instances::{self, ContainerSupport};
use crate::task::record::{Account, TaskId, TaskSpec};
use crate::trainer_socket::TrainerCommand;

/// OpenPAI's exit code for an image that is not available.
const IMAGE_UNAVAILABLE: i32 = 254;

impl Agent {
    /// Kills the tasks that the server does not keep, and sends what happened while there was no connection.
    pub(super) fn welcome(&mut self, welcome: &Welcome) {
        let keep: Vec<TaskId> = welcome.keep.iter().map(|key| (*key).into()).collect();
        let lease_end = self.server.welcomed(welcome);
        self.extend_lease(lease_end);
        tracing::info!(node = welcome.node, kept = keep.len(), "connected");
        for task in self.tasks.active().filter(|task| !keep.contains(&task.id)) {
            task.request_kill("the server does not keep this task");
        }
        self.resend_facts();
        self.heartbeat();
    }

    /// Starts a task, unless this attempt or a newer one was started before.
    pub(super) fn start(&mut self, command: &StartTask) {
        let id: TaskId = command.task.unwrap_or_default().into();
        if let Some(task) = self.tasks.get_mut(id) {
            task.repeat_phase(&mut self.server);
            return;
        }
        if let Some(last) = self.tasks.last_attempt(id.job).filter(|last| *last >= id.attempt) {
            let reason = format!(
                "attempt {} is too old: this node already knows attempt {last} of the job",
                id.attempt
            );
            tracing::warn!(task = %id, "{reason}");
            self.server.answer(not_started(id, reason));
            return;
        }
        match self.plan(command, id) {
            Ok(plan) => {
                let task = Task::new(id, plan.folder.clone(), Some(plan.spec.clone()), Phase::Starting);
                self.tasks.insert(task);
                tracing::info!(task = %id, gpus = command.gpus.len(), "starting task");
                tokio::spawn(launch::launch(plan, self.tasks.events.clone()));
            }
            Err(error) => {
                tracing::warn!(task = %id, "cannot start the task: {error}");
                let refused = error.is_refusal();
                self.server.answer(TaskEnded {
                    refused,
                    exit_code: if refused { IMAGE_UNAVAILABLE } else { 0 },
                    ..not_started(id, error.to_string())
                });
            }
        }
    }

    /// Works out what to run, and assigns CPUs.
    fn plan(&mut self, command: &StartTask, id: TaskId) -> Result<LaunchPlan, StartError> {
        let folder = self.tasks.folder_of(id);
        let secret = format!("{:032x}", rand::random::<u128>());
        let account = account(&command.user)?;
        let uuids: Vec<String> = self.node.gpus.iter().map(|g| g.uuid.clone()).collect();
        let mps = self.node.mps.as_deref().filter(|_| command.shared);
        let context = NodeContext {
            node: &self.config.node,
            address: &self.address,
            gpus: &uuids,
            socket: &self.socket,
            secret: &secret,
            folder: &folder,
            mps,
            sdk: &self.sdk,
        };
        let containers = ContainerSupport {
            runtime: self.node.container_runtime.as_deref(),
            images: self.config.images,
        };
        let (processes, remarks) = match command.instances.is_empty() {
            true => (environment::processes(command, &context)?, Vec::new()),
            false => instances::processes(command, &context, containers)?,
        };
        let hostfile = environment::hostfile(command, &context);
        let sharing = match (command.shared, mps) {
            (false, _) => "",
            (true, Some(_)) => "mps",
            (true, None) => "time slices",
        };
        let nearest = self.node.nearest_domain(&command.gpus);
        let spec = TaskSpec {
            id,
            processes,
            workdir: workdir(command, account.as_ref(), &folder),
            account,
            cpus: self.node.cpus.allocate(command.cpu_milli, nearest),
            nearest,
            cpu_milli: command.cpu_milli,
            memory_mib: command.memory_mib,
            cgroup: None,
            log_segment_bytes: self.config.log_segment_bytes,
            log_keep_bytes: self.config.log_keep_bytes,
            lease_file: self.lease_file.clone(),
            lease_until_ms: self.lease_until_ms,
            grace_ms: u64::from(command.grace_ms),
            shim: self.config.shim.iter().map(Into::into).collect(),
            secret,
            nodes: u32::try_from(command.peers.len()).unwrap_or(u32::MAX).max(1),
            sharing: sharing.to_owned(),
            slots: command.gpus.clone(),
            interleaving: command.interleaving.as_ref().and_then(gates::terms),
            instances: command
                .instances
                .iter()
                .map(|i| (i.role.clone(), i.index))
                .collect(),
            remarks,
        };
        Ok(LaunchPlan {
            folder,
            spec,
            hostfile,
            cgroups: self.node.cgroups.clone(),
            attempts: self.tasks.attempts.clone(),
        })
    }

    /// Stops a task.
    pub(super) fn stop(&mut self, command: &StopTask) {
        let id: TaskId = command.task.unwrap_or_default().into();
        let Some(task) = self.tasks.get_mut(id) else {
            self.stop_unknown(id);
            return;
        };
        if task.has_ended() {
            task.repeat_phase(&mut self.server);
        } else if command.kill {
            task.request_kill(&command.reason);
        } else if task.stop.is_none() {
            task.request_stop(&command.reason, &self.server);
        } else {
            // The deadlines stay; the first command may not have reached all trainers.
            task.forward_stop();
        }
    }

    /// Answers a stop command for an unknown task. A start command that is still under way must not be carried out.
    fn stop_unknown(&mut self, id: TaskId) {
        if let Err(e) = self.tasks.forbid(id) {
            // There is no answer, so the server repeats the command; by then the disk may have space.
            tracing::error!("{e}");
            return;
        }
        self.server.answer(TaskEnded {
            task: Some(id.into()),
            was_stopped: true,
            ..Default::default()
        });
    }

    /// Changes the CPU and memory limits of a task.
    pub(super) fn resize(&mut self, command: &ResizeTask) {
        let id: TaskId = command.task.unwrap_or_default().into();
        let Some(task) = self.tasks.get_mut(id).filter(|t| !t.has_ended()) else {
            return;
        };
        if task.phase == Phase::Starting {
            task.resize = Some(*command);
            return;
        }
        let Some(spec) = &mut task.spec else { return };
        // A server that reconnects repeats the current limits.
        if (spec.cpu_milli, spec.memory_mib) == (command.cpu_milli, command.memory_mib) {
            return;
        }
        self.node.cpus.release(&spec.cpus);
        spec.cpus = self.node.cpus.allocate(command.cpu_milli, spec.nearest);
        spec.cpu_milli = command.cpu_milli;
        spec.memory_mib = command.memory_mib;
        let cpus = match spec.cpus.is_empty() {
            true => self.node.all_cpus(),
            false => spec.cpus.clone(),
        };
        // The cgroup was created when the task was started, and only the file names it.
        let group = task.folder.spec().ok().flatten().and_then(|s| s.cgroup);
        let limited = match (&self.node.cgroups, &group) {
            (Some(groups), Some(group)) => groups.limit_cpu(group, &cpus, command.cpu_milli),
            _ => Ok(()),
        };
        let needs_affinity = group.as_ref().is_none_or(TaskGroup::needs_affinity);
        let resized = limited
            .map_err(ResizeError::from)
            .and_then(|()| match needs_affinity {
                true => bind(&task.folder, &cpus),
                false => Ok(()),
            });
        match resized {
            Ok(()) => {
                tracing::info!(task = %id, cpu_milli = command.cpu_milli, "resized task");
                task.send_to_trainers(&TrainerCommand::Resize {
                    cpu_milli: command.cpu_milli,
                    memory_mib: command.memory_mib,
                });
            }
            Err(e) => tracing::warn!(task = %id, "cannot resize the task: {e}"),
        }
        // CPU does not depend on memory, which cannot be taken from a task that uses it.
        if let Some(Err(e)) = group.map(|group| group.limit_memory(command.memory_mib)) {
            tracing::warn!(task = %id, "the memory limit of the task stays: {e}");
        }
    }
}

/// Returns the folder in which a task starts.
fn workdir(command: &StartTask, account: Option<&Account>, folder: &TaskFolder) -> PathBuf {
    match (command.workdir.as_str(), account) {
        ("", _) if !command.instances.is_empty() => folder.work(),
        ("", Some(account)) => account.home.clone(),
        ("", None) => "/".into(),
        (path, _) => path.into(),
    }
}

/// Returns the account to run as. Only root can run tasks as another user.
fn account(user: &str) -> Result<Option<Account>, StartError> {
    if user.is_empty() || !Uid::effective().is_root() {
        return Ok(None);
    }
    match User::from_name(user) {
        Ok(Some(found)) => Ok(Some(Account {
            name: found.name,
            uid: found.uid.as_raw(),
            gid: found.gid.as_raw(),
            home: found.dir,
        })),
        Ok(None) => Err(StartError::UnknownUser(user.to_owned())),
        Err(source) => Err(StartError::UserLookup {
            user: user.to_owned(),
            source,
        }),
    }
}

/// Why the limits of a task cannot be changed.
#[derive(Debug, thiserror::Error)]
enum ResizeError {
    #[error(transparent)]
    File(#[from] crate::error::AgentError),
    #[error("the task does not run yet")]
    NotRunning,
    #[error("CPU {cpu}: {source}")]
    InvalidCpu { cpu: u32, source: nix::Error },
}

/// Binds all threads of a task to CPUs.
fn bind(folder: &TaskFolder, cpus: &[u32]) -> Result<(), ResizeError> {
    let shim = folder.shim()?;
    let shim = shim.ok_or(ResizeError::NotRunning)?.pid;
    let mut set = nix::sched::CpuSet::new();
    for cpu in cpus {
        set.set(*cpu as usize)
            .map_err(|source| ResizeError::InvalidCpu { cpu: *cpu, source })?;
    }
    for pid in process::descendants(shim) {
        for thread in process::threads(pid) {
            // A thread that has ended in the meantime is ignored.
            let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(thread.cast_signed()), &set);
        }
    }
    Ok(())
}
