//! The processes of a job with roles: one for each instance, with its own GPUs, ports and environment.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use dovetail_openpai::environment::{Variables, WORK_DIR};
use dovetail_proto::v1::{Instance, StartTask};

use crate::config::Images;
use crate::task::container::{self, ContainerRun};
use crate::task::environment::{NodeContext, add_sdk, gpu_variables, task_variables};
use crate::task::error::StartError;
use crate::task::record::{Container, ProcessSpec};

/// How containers are run on this node.
#[derive(Clone, Copy)]
pub(crate) struct ContainerSupport<'a> {
    /// Program of the container runtime, if there is one.
    pub(crate) runtime: Option<&'a Path>,
    /// What happens to jobs with images without a container runtime.
    pub(crate) images: Images,
}

/// Returns the processes of the instances that a command starts on this node, and remarks on images that are not used.
pub(crate) fn processes(
    command: &StartTask,
    context: &NodeContext<'_>,
    containers: ContainerSupport<'_>,
) -> Result<(Vec<ProcessSpec>, Vec<String>), StartError> {
    let common = task_variables(command, context)?;
    let is_alone = command.peers.len() <= 1 && command.instances.len() <= 1;
    let mut remarks = Vec::new();
    let mut processes = Vec::new();
    for instance in &command.instances {
        let name = format!("{}/{}", instance.role, instance.index);
        let made = process(command, instance, context, containers, &common);
        let mut process = made.map_err(|source| StartError::Instance {
            instance: name.clone(),
            source: Box::new(source),
        })?;
        if !is_alone {
            process.tag = name;
        }
        if !process.log_note.is_empty() {
            let remark = format!("{}: {}", context.node, process.log_note);
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
        processes.push(process);
    }
    Ok((processes, remarks))
}

/// Returns the process of one instance, in a container if it has an image.
fn process(
    command: &StartTask,
    instance: &Instance,
    context: &NodeContext<'_>,
    containers: ContainerSupport<'_>,
    common: &Variables,
) -> Result<ProcessSpec, StartError> {
    check(command, instance)?;
    let uuids = context.uuids(&instance.gpus)?;
    let mut env = common.clone();
    env.extend(instance_variables(instance, context, &uuids));
    env.extend(instance.env.iter().map(|(k, v)| (k.clone(), v.clone())));
    add_sdk(&mut env, context);
    let mut process = ProcessSpec {
        rank: instance.rank,
        command: instance.command.clone(),
        env,
        tag: String::new(),
        container: None,
        log_note: String::new(),
    };
    match (instance.image.as_str(), containers.runtime, containers.images) {
        ("", _, _) => {}
        (image, Some(runtime), _) => {
            let task = command.task.unwrap_or_default();
            let name = format!(
                "dovetail-{}-{}-{}-{}",
                task.job, task.attempt, instance.role, instance.index
            );
            process.command = container::command_line(&ContainerRun {
                runtime,
                name: &name,
                image,
                gpus: &uuids,
                env: &process.env,
                folders: &[context.folder.path(), context.socket, context.sdk],
                workdir: &command.workdir,
                cpu_milli: instance.cpu_milli,
                memory_mib: instance.memory_mib,
                shm_mib: instance.shm_mib,
                command: &instance.command,
            });
            let runtime = runtime.to_owned();
            process.container = Some(Container { runtime, name });
        }
        (image, None, Images::Require) => return Err(StartError::NoContainerRuntime(image.to_owned())),
        (image, None, Images::Ignore) => {
            process.log_note = format!("the image {image} is not used: this node has no container runtime");
        }
    }
    Ok(process)
}

fn check(command: &StartTask, instance: &Instance) -> Result<(), StartError> {
    if instance.command.is_empty() {
        return Err(StartError::NoCommand);
    }
    if let Some(slot) = instance.gpus.iter().find(|g| !command.gpus.contains(g)) {
        return Err(StartError::UnassignedSlot(*slot));
    }
    match instance.ports.iter().find(|port| !is_free(**port)) {
        Some(port) => Err(StartError::PortInUse(*port)),
        None => Ok(()),
    }
}

/// Returns the variables in which an instance differs from its task.
fn instance_variables(instance: &Instance, context: &NodeContext<'_>, uuids: &[String]) -> Variables {
    let mut env = gpu_variables(&instance.gpus, uuids);
    for (name, value) in [
        ("DOVETAIL_CPU_MILLI", instance.cpu_milli.to_string()),
        ("DOVETAIL_MEMORY_MIB", instance.memory_mib.to_string()),
        ("DOVETAIL_ROLE", instance.role.clone()),
        ("DOVETAIL_ROLE_INDEX", instance.index.to_string()),
        ("DOVETAIL_RANK", instance.rank.to_string()),
        ("LOCAL_RANK", "0".to_owned()),
        (WORK_DIR, context.folder.work().display().to_string()),
    ] {
        env.insert(name.to_owned(), value);
    }
    env
}

/// Returns whether no program listens on a port.
fn is_free(port: u32) -> bool {
    let Ok(port) = u16::try_from(port) else {
        return false;
    };
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::folder::TaskFolder;
    use dovetail_proto::v1::TaskKey;

    /// Starts a task with two instances.
    fn start(
        image: &str,
        port: u32,
        runtime: Option<&str>,
        images: Images,
    ) -> Result<(Vec<ProcessSpec>, Vec<String>), StartError> {
        let folder = TaskFolder::at(Path::new("/t/7-2"));
        let gpus = ["GPU-a".to_owned(), "GPU-b".to_owned()];
        let context = NodeContext {
            node: "n1",
            address: "10.0.0.1",
            gpus: &gpus,
            socket: Path::new("/t/s"),
            secret: "hush",
            folder: &folder,
            mps: None,
            sdk: Path::new("/t/python"),
        };
        let instance = |role: &str, gpus: &[u32]| Instance {
            role: role.into(),
            command: vec!["true".into()],
            gpus: gpus.to_vec(),
            ports: vec![port],
            image: image.into(),
            env: [("PAI_TASK_INDEX".to_owned(), "0".to_owned())].into(),
            ..Instance::default()
        };
        let command = StartTask {
            task: Some(TaskKey { job: 7, attempt: 2 }),
            gpus: vec![0, 1],
            instances: vec![instance("worker", &[1]), instance("ps", &[])],
            ..StartTask::default()
        };
        let runtime = runtime.map(Path::new);
        processes(&command, &context, ContainerSupport { runtime, images })
    }

    fn free_port() -> u32 {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        listener.local_addr().unwrap().port().into()
    }

    #[test]
    fn each_instance_sees_its_own_gpus() {
        let (processes, remarks) = start("", free_port(), None, Images::Require).unwrap();
        assert!(remarks.is_empty());
        let [worker, ps] = &processes[..] else {
            panic!("{processes:?}")
        };
        assert_eq!(
            (worker.env["CUDA_VISIBLE_DEVICES"].as_str(), worker.tag.as_str()),
            ("GPU-b", "worker/0")
        );
        assert_eq!(
            (
                ps.env["CUDA_VISIBLE_DEVICES"].as_str(),
                ps.env["NVIDIA_VISIBLE_DEVICES"].as_str()
            ),
            ("", "none")
        );
        assert_eq!(ps.env["PAI_TASK_INDEX"], "0");
    }

    #[test]
    fn an_image_is_used_or_refused_or_ignored_with_a_remark() {
        let port = free_port();
        let (processes, remarks) =
            start("some/image", port, Some("/usr/bin/podman"), Images::Require).unwrap();
        assert_eq!(
            (processes[0].command[0].as_str(), remarks.len()),
            ("/usr/bin/podman", 0)
        );
        assert_eq!(
            processes[0].container.as_ref().unwrap().name,
            "dovetail-7-2-worker-0"
        );
        let error = start("some/image", port, None, Images::Require).unwrap_err();
        let text = error.to_string();
        assert!(
            error.is_refusal() && text.contains("some/image") && text.contains("--images ignore"),
            "{text}"
        );
        let (processes, remarks) = start("some/image", port, None, Images::Ignore).unwrap();
        assert_eq!(processes[0].command, ["true"]);
        assert!(processes[0].log_note.contains("some/image is not used"));
        assert_eq!(
            remarks,
            ["n1: the image some/image is not used: this node has no container runtime"]
        );
    }

    #[test]
    fn a_port_in_use_is_rejected() {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = start("", port.into(), None, Images::Require).unwrap_err();
        assert!(!error.is_refusal());
        assert_eq!(
            error.to_string(),
            format!("worker/0: port {port} is in use by another program")
        );
    }
}
