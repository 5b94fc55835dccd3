//! Instances of roles: one process group for each, with GPUs, ports and an environment of its own.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use dovetail_proto::v1::{Instance, StartTask};

use crate::config::Images;
use crate::task::container::{self, Run};
use crate::task::environment::{Here, add_sdk, common};
use crate::task::record::{Container, Process};

/// Why a task cannot be started.
#[derive(Debug)]
pub(crate) struct Cannot {
    pub(crate) why: String,
    /// The job asks for what the node does not have: the node is fine.
    pub(crate) refused: bool,
}

impl From<String> for Cannot {
    fn from(why: String) -> Self {
        Self { why, refused: false }
    }
}

/// The processes of the instances that an order starts here, and what is not as it was asked for.
pub(crate) fn processes(
    order: &StartTask,
    here: &Here<'_>,
    runtime: Option<&Path>,
    images: Images,
) -> Result<(Vec<Process>, Vec<String>), Cannot> {
    let of_task = common(order, here);
    let several = order.peers.len() > 1 || order.instances.len() > 1;
    let mut remarks = Vec::new();
    let mut made = Vec::new();
    for instance in &order.instances {
        let who = format!("{}/{}", instance.role, instance.index);
        if instance.command.is_empty() {
            return Err(format!("{who}: the order has no command").into());
        }
        if let Some(slot) = instance.gpus.iter().find(|g| !order.gpus.contains(g)) {
            return Err(format!("{who}: GPU slot {slot} is not one of the task's").into());
        }
        if let Some(slot) = instance.gpus.iter().find(|g| **g as usize >= here.gpus.len()) {
            return Err(format!("{who}: GPU slot {slot} of {} on this node", here.gpus.len()).into());
        }
        if let Some(port) = instance.ports.iter().find(|port| !is_free(**port)) {
            return Err(format!("{who}: port {port} is taken by another program").into());
        }
        let mut env = of_task.clone();
        env.extend(own(instance, here));
        env.extend(instance.env.iter().map(|(k, v)| (k.clone(), v.clone())));
        add_sdk(&mut env, here);
        let (mut command, mut used, mut first_words) = (instance.command.clone(), None, String::new());
        match (instance.image.as_str(), runtime, images) {
            ("", _, _) => {}
            (image, Some(runtime), _) => {
                let key = order.task.unwrap_or_default();
                let name = format!(
                    "dovetail-{}-{}-{}-{}",
                    key.job, key.generation, instance.role, instance.index
                );
                let uuids = uuids(instance, here);
                command = container::command(&Run {
                    runtime,
                    name: &name,
                    image,
                    gpus: &uuids,
                    env: &env,
                    folders: &[here.folder.path(), here.socket, here.sdk],
                    workdir: &order.workdir,
                    cpu_milli: instance.cpu_milli,
                    memory_mib: instance.memory_mib,
                    shm_mib: instance.shm_mib,
                    command: &instance.command,
                });
                let runtime = runtime.to_owned();
                used = Some(Container { runtime, name });
            }
            (image, None, Images::Require) => {
                let why = format!(
                    "{who}: it asks for the image {image}, and this node has neither podman nor docker; install one, or let \
                     the agent run such jobs without their images (--images ignore)"
                );
                return Err(Cannot { why, refused: true });
            }
            (image, None, Images::Ignore) => {
                first_words = format!("the image {image} is not used: this node has no container runtime");
                let remark = format!("{} on {}", first_words, here.node);
                if !remarks.contains(&remark) {
                    remarks.push(remark);
                }
            }
        }
        made.push(Process {
            rank: instance.rank,
            command,
            env,
            tag: if several { who } else { String::new() },
            container: used,
            first_words,
        });
    }
    Ok((made, remarks))
}

fn uuids(instance: &Instance, here: &Here<'_>) -> Vec<String> {
    let uuid = |slot: &u32| here.gpus[*slot as usize].clone();
    instance.gpus.iter().map(uuid).collect()
}

/// What differs from what the whole task finds in its environment.
fn own(instance: &Instance, here: &Here<'_>) -> BTreeMap<String, String> {
    let uuids = uuids(instance, here).join(",");
    let devices = if uuids.is_empty() {
        "none".to_owned()
    } else {
        uuids.clone()
    };
    let slots: Vec<String> = instance.gpus.iter().map(u32::to_string).collect();
    [
        ("CUDA_VISIBLE_DEVICES", uuids),
        ("NVIDIA_VISIBLE_DEVICES", devices),
        ("local_accessible_gpus", slots.join(",")),
        ("DOVETAIL_GPUS", instance.gpus.len().to_string()),
        ("DOVETAIL_CPU_MILLI", instance.cpu_milli.to_string()),
        ("DOVETAIL_MEMORY_MIB", instance.memory_mib.to_string()),
        ("DOVETAIL_ROLE", instance.role.clone()),
        ("DOVETAIL_ROLE_INDEX", instance.index.to_string()),
        ("DOVETAIL_RANK", instance.rank.to_string()),
        ("LOCAL_RANK", "0".to_owned()),
        ("PAI_WORK_DIR", here.folder.work().display().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Whether nobody listens at a port.
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

    fn check(
        image: &str,
        port: u32,
        runtime: Option<&str>,
        images: Images,
    ) -> Result<(Vec<Process>, Vec<String>), Cannot> {
        let folder = TaskFolder::at(Path::new("/t/7-2"));
        let gpus = ["GPU-a".to_owned(), "GPU-b".to_owned()];
        let here = Here {
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
        let order = StartTask {
            task: Some(TaskKey {
                job: 7,
                generation: 2,
            }),
            gpus: vec![0, 1],
            instances: vec![instance("worker", &[1]), instance("ps", &[])],
            ..StartTask::default()
        };
        processes(&order, &here, runtime.map(Path::new), images)
    }

    fn free_port() -> u32 {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        listener.local_addr().unwrap().port().into()
    }

    #[test]
    fn each_instance_sees_its_own_gpus() {
        let (made, remarks) = check("", free_port(), None, Images::Require).unwrap();
        assert!(remarks.is_empty());
        let [worker, ps] = &made[..] else {
            panic!("{made:?}")
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
    fn an_image_is_used_refused_or_ignored_and_said() {
        let port = free_port();
        let (made, remarks) = check("some/image", port, Some("/usr/bin/podman"), Images::Require).unwrap();
        assert_eq!(
            (made[0].command[0].as_str(), remarks.len()),
            ("/usr/bin/podman", 0)
        );
        assert_eq!(made[0].container.as_ref().unwrap().name, "dovetail-7-2-worker-0");
        let Cannot { why, refused } = check("some/image", port, None, Images::Require).unwrap_err();
        assert!(
            refused && why.contains("some/image") && why.contains("--images ignore"),
            "{why}"
        );
        let (made, remarks) = check("some/image", port, None, Images::Ignore).unwrap();
        assert_eq!(made[0].command, ["true"]);
        assert!(made[0].first_words.contains("some/image is not used"));
        assert_eq!(
            remarks,
            ["the image some/image is not used: this node has no container runtime on n1"]
        );
    }

    #[test]
    fn a_port_that_is_taken_is_refused() {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let said = check("", port.into(), None, Images::Require).unwrap_err();
        assert!(
            !said.refused && said.why.contains(&format!("port {port} is taken")),
            "{said:?}"
        );
    }
}
