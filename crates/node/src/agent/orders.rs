//! Orders of the scheduler: keep, start, resize. Orders to stop are in `stopping`.

use dovetail_proto::v1::{ResizeTask, StartTask, TaskEnded, Welcome};
use nix::unistd::{Uid, User};

use crate::agent::launch::{self, Launch};
use crate::agent::state::{Agent, Phase, Task};
use crate::clock::boot_ms;
use crate::process;
use crate::task::environment::{self, Here};
use crate::task::folder::TaskFolder;
use crate::task::instances::{self, Cannot};
use crate::task::record::{Account, Key, Spec};

impl Agent {
    /// The scheduler has taken us in.
    pub(super) fn welcome(&mut self, welcome: &Welcome) {
        let keep: Vec<Key> = welcome.keep.iter().map(|k| (*k).into()).collect();
        self.link.is_welcome = true;
        self.link.beat_ms = u64::from(welcome.heartbeat_ms).max(10);
        self.link.lease_ms = u64::from(welcome.lease_ms);
        self.extend_lease(self.link.hello_ms);
        tracing::info!(node = welcome.node, kept = keep.len(), "connected");
        let unwanted: Vec<Key> = self
            .tasks
            .iter()
            .filter(|(key, task)| task.is_live() && !keep.contains(key))
            .map(|(key, _)| *key)
            .collect();
        for key in unwanted {
            tracing::warn!(task = %key, "the scheduler does not want it any more");
            self.kill(key, "the scheduler does not want it any more");
        }
        self.send_facts();
        self.beat();
    }

    /// Starts a task, unless it was started before or a newer one was.
    pub(super) fn start(&mut self, order: StartTask) {
        let key: Key = order.task.unwrap_or_default().into();
        if self.tasks.contains_key(&key) {
            // A repeated order is answered with what has happened since.
            self.repeat_facts(key);
            return;
        }
        let last = self.last_generation(key.job);
        if last.is_some_and(|last| last >= key.generation) {
            let last = last.unwrap_or_default();
            let why = format!(
                "generation {last} of the job is known here already: {} is too old",
                key.generation
            );
            tracing::warn!(task = %key, "{why}");
            self.answer(failed(key, why));
            return;
        }
        match self.plan(&order, key) {
            Ok(launch) => {
                let mut task = Task::new(launch.folder.clone(), Some(launch.spec.clone()), Phase::Starting);
                // The environment is in the file.
                if let Some(spec) = &mut task.spec {
                    spec.processes.clear();
                }
                self.cpus.mark(&launch.spec.cpus);
                self.tasks.insert(key, task);
                tracing::info!(task = %key, gpus = order.gpus.len(), "starts");
                tokio::spawn(launch::launch(launch, self.events.clone()));
            }
            Err(Cannot { why, refused }) => {
                tracing::warn!(task = %key, "cannot be started: {why}");
                let exit_code = if refused { IMAGE_MISSING } else { 0 };
                self.answer(TaskEnded {
                    refused,
                    exit_code,
                    ..failed(key, why)
                });
            }
        }
    }

    fn plan(&mut self, order: &StartTask, key: Key) -> Result<Launch, Cannot> {
        let folder = TaskFolder::of(&self.config.folder, key);
        let secret = format!("{:032x}", rand::random::<u128>());
        let account = account(&order.user)?;
        let uuids: Vec<String> = self.gpus.iter().map(|g| g.uuid.clone()).collect();
        let sharing = match (order.shared, &self.mps) {
            (false, _) => "",
            (true, Some(_)) => "mps",
            (true, None) => "time slices",
        };
        let here = Here {
            node: &self.config.node,
            address: &self.address,
            gpus: &uuids,
            socket: &self.socket,
            secret: &secret,
            folder: &folder,
            mps: self.mps.as_deref().filter(|_| order.shared),
            sdk: &self.sdk,
        };
        let (processes, remarks) = match order.instances.is_empty() {
            true => (environment::processes(order, &here)?, Vec::new()),
            false => instances::processes(order, &here, self.runtime.as_deref(), self.config.images)?,
        };
        let hostfile = environment::hostfile(order, &here);
        let near = order.gpus.first().and_then(|slot| self.gpus.get(*slot as usize));
        let near = near.and_then(|gpu| (gpu.numa as usize).checked_sub(1));
        let cpus = self.cpus.take(order.cpu_milli, near);
        // It is counted again when the task is known.
        self.cpus.give_back(&cpus);
        let home = account.as_ref().map(|a| a.home.clone());
        let workdir = match order.workdir.as_str() {
            "" if !order.instances.is_empty() => folder.work(),
            "" => home.unwrap_or_else(|| "/".into()),
            given => given.into(),
        };
        let spec = Spec {
            key,
            processes,
            workdir,
            account,
            cpus,
            cpu_milli: order.cpu_milli,
            memory_mib: order.memory_mib,
            cgroup: None,
            log_segment_bytes: self.config.log_segment_bytes,
            log_keep_bytes: self.config.log_keep_bytes,
            lease_file: self.lease_file.clone(),
            lease_until_ms: self.lease_until_ms,
            grace_ms: u64::from(order.grace_ms),
            shim: self.config.shim.iter().map(Into::into).collect(),
            secret,
            nodes: u32::try_from(order.peers.len()).unwrap_or(u32::MAX).max(1),
            sharing: sharing.to_owned(),
            instances: order
                .instances
                .iter()
                .map(|i| (i.role.clone(), i.index))
                .collect(),
            remarks,
        };
        Ok(Launch {
            folder,
            spec,
            hostfile,
            cgroups: self.cgroups.clone(),
            generations: self.generations.clone(),
        })
    }

    /// Gives a running task more or less CPU and memory.
    pub(super) fn resize(&mut self, order: &ResizeTask) {
        let key: Key = order.task.unwrap_or_default().into();
        let Some(task) = self.tasks.get_mut(&key).filter(|t| t.is_live()) else {
            return;
        };
        if task.phase == Phase::Starting {
            task.resize = Some(*order);
            return;
        }
        let Some(spec) = &mut task.spec else { return };
        // A scheduler that comes back says again what stands.
        if (spec.cpu_milli, spec.memory_mib) == (order.cpu_milli, order.memory_mib) {
            return;
        }
        self.cpus.give_back(&spec.cpus);
        spec.cpus = self.cpus.take(order.cpu_milli, None);
        spec.cpu_milli = order.cpu_milli;
        spec.memory_mib = order.memory_mib;
        let cpus = match spec.cpus.is_empty() {
            true => self.domains.concat(),
            false => spec.cpus.clone(),
        };
        // Which cgroup it has was found out when it was started.
        let group = task.folder.spec().ok().flatten().and_then(|s| s.cgroup);
        let done = match (&self.cgroups, &group) {
            (Some(groups), Some(group)) => groups.limit(group, &cpus, order.cpu_milli, order.memory_mib),
            _ => bind(&task.folder, &cpus),
        };
        match done {
            Ok(()) => tracing::info!(task = %key, cpu_milli = order.cpu_milli, "resized"),
            Err(why) => tracing::warn!(task = %key, "cannot be resized: {why}"),
        }
    }

    pub(super) fn last_generation(&self, job: u64) -> Option<u64> {
        let known = self.generations.lock().map_or(None, |g| g.last(job));
        let here = self
            .tasks
            .keys()
            .filter(|k| k.job == job)
            .map(|k| k.generation)
            .max();
        known.max(here)
    }

    pub(super) fn now_ms(&self) -> u64 {
        boot_ms()
    }
}

/// OpenPAI's code for an image that is not to be had.
const IMAGE_MISSING: i32 = 254;

/// The end of a task that never began.
pub(super) fn failed(key: Key, why: String) -> TaskEnded {
    TaskEnded {
        task: Some(key.into()),
        platform_error: why,
        ..Default::default()
    }
}

/// Who to run as. Nobody but root can be another.
fn account(user: &str) -> Result<Option<Account>, String> {
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
        Ok(None) => Err(format!("there is no user `{user}` on this node")),
        Err(e) => Err(format!("the user `{user}` cannot be looked up: {e}")),
    }
}

/// Binds every thread of a task to CPUs.
fn bind(folder: &TaskFolder, cpus: &[u32]) -> Result<(), String> {
    let running = folder.running().map_err(|e| e.to_string())?;
    let shim = running.ok_or("it is not running yet")?.pid;
    let mut set = nix::sched::CpuSet::new();
    for cpu in cpus {
        set.set(*cpu as usize).map_err(|e| format!("CPU {cpu}: {e}"))?;
    }
    for pid in process::descendants(shim) {
        for thread in process::threads(pid) {
            // One that is gone needs none.
            let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(thread.cast_signed()), &set);
        }
    }
    Ok(())
}
