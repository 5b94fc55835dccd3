//! What of a request Kubernetes cannot express, and the roles of a job that names none.

use dovetail_cluster::{JobRequest, Processes, Role};

use super::{Asked, Sender, Several};

/// So many pods a job may have; each Job names all of them to each.
const MOST_INSTANCES: u32 = 1000;

/// Fields without which it would be another job.
pub(super) fn refused(request: &JobRequest, several: Option<Several<'_>>, sender: &Sender) -> Vec<String> {
    let mut wrong = Vec::new();
    if !request.after.is_empty() {
        wrong.push("after: jobs on Kubernetes do not wait for others; send it when they are over".to_owned());
    }
    if request.processes == Processes::PerGpu {
        wrong.push(
            "processes: per-gpu: a pod runs one command; expected per-node, with torchrun in the command"
                .to_owned(),
        );
    }
    let named = |role: &Role| role.image.is_some();
    if sender.image.is_none() && (request.roles.is_empty() || !request.roles.iter().all(named)) {
        let what = match request.roles.iter().position(|role| !named(role)) {
            Some(at) => format!("roles[{at}].image: is missing"),
            None => "image: a job without roles names none".to_owned(),
        };
        wrong.push(format!(
            "{what}; pods need one, such as --image pytorch/pytorch:2.9"
        ));
    }
    let in_order = |s: &Several<'_>| s.indices.iter().copied().eq(0..s.indices.len() as u32);
    if let Some(several) = several.filter(|s| !in_order(s)) {
        let last = several.indices.len().saturating_sub(1);
        wrong.push(format!(
            "array: an array on Kubernetes counts from 0 and leaves nothing out; expected 0-{last}"
        ));
    }
    if several.is_some() && request.gang && !request.roles.is_empty() {
        wrong.push(
            "array: a job with roles that start together cannot be one; send it several times".to_owned(),
        );
    }
    wrong
}

/// The roles of a job; one that names none has as many pods as its GPUs need.
pub(super) fn roles(
    request: &JobRequest,
    several: Option<Several<'_>>,
    sender: &Sender,
) -> Result<Vec<Role>, String> {
    let roles = match request.roles.is_empty() {
        false => request.roles.clone(),
        true => vec![one_role(request, several, sender)?],
    };
    let pods: u64 = roles.iter().map(|r| u64::from(r.instances)).sum();
    match pods > u64::from(MOST_INSTANCES) {
        true => Err(format!(
            "roles: {pods} pods are too many for one job; at most {MOST_INSTANCES}"
        )),
        false => Ok(roles),
    }
}

fn one_role(request: &JobRequest, several: Option<Several<'_>>, sender: &Sender) -> Result<Role, String> {
    let most = sender.gpus_per_pod.max(1);
    let pods = request.gpus.div_ceil(most);
    if !request.gpus.is_multiple_of(pods.max(1)) {
        return Err(format!(
            "gpus: {} cannot be shared out evenly over {pods} pods of at most {most} GPUs; expected a multiple of {most}, or roles",
            request.gpus
        ));
    }
    if several.is_some() && pods > 1 {
        return Err(format!(
            "gpus: {} for each job of an array; at most {most}, because each is one pod",
            request.gpus
        ));
    }
    if request.processes == Processes::FirstNode && pods > 1 {
        return Err(format!(
            "processes: first-node: on Kubernetes each of the {pods} pods runs the command; expected per-node, or at most {most} GPUs"
        ));
    }
    let gpus = request.gpus / pods.max(1);
    let range = range(request, several.is_some(), sender);
    let (least, pods) = range.unwrap_or((0, pods));
    Ok(Role {
        name: "worker".to_owned(),
        instances: several.map_or(pods, |s| s.indices.len() as u32),
        // Those it did without need not have run when the others are done.
        min_succeeded: i32::try_from(least).unwrap_or(0),
        gpus,
        cpus: request.cpus_per_gpu.times(gpus),
        memory_mib: request.memory_mib_per_gpu * u64::from(gpus),
        command: request.command.clone(),
        retries: request.retries.user,
        // Each of an array is for itself.
        min_failed: if several.is_some() { -1 } else { 1 },
        ..Role::default()
    })
}

/// With how many pods an elastic job starts, and how many it can use; none for all others.
pub(super) fn range(request: &JobRequest, is_array: bool, sender: &Sender) -> Option<(u32, u32)> {
    if is_array || !request.roles.is_empty() || request.gpus == 0 {
        return None;
    }
    let gpus_of_each = request.gpus / request.gpus.div_ceil(sender.gpus_per_pod.max(1));
    let least = request
        .min_gpus
        .unwrap_or(request.gpus)
        .div_ceil(gpus_of_each)
        .max(1);
    let most = request.max_gpus.unwrap_or(request.gpus) / gpus_of_each;
    (least < most).then_some((least, most))
}

/// What is left out, or not quite the same.
pub(super) fn remarks(asked: &Asked<'_>) -> Vec<String> {
    let request = asked.request;
    let mut said = Vec::new();
    let mut say = |is_so: bool, what: &str| {
        if is_so {
            said.push(what.to_owned());
        }
    };
    let is_elastic = request.min_gpus.is_some() || request.max_gpus.is_some();
    say(
        is_elastic && asked.range().is_none(),
        "min_gpus, max_gpus: ignored: a job on Kubernetes grows and shrinks by whole pods, and these make no other number of them",
    );
    say(
        asked.range().is_some(),
        "min_gpus, max_gpus: WORLD_SIZE counts all pods that may run; use a launcher that takes a range, such as torchrun --nnodes",
    );
    say(
        request.gpu_memory_mib > 0,
        "gpu_memory_mib: ignored: nobody knows the memory of GPUs here; use gpu_type",
    );
    say(
        request.run_as.is_some(),
        "run_as: ignored: the image says whose account it is",
    );
    say(
        request.private,
        "private: ignored: who may see pods is a matter of the namespace",
    );
    say(
        request.time_limit.is_some() && asked.roles.iter().any(|r| r.retries > 0),
        "time_limit: a pod that has run for so long has failed, and is tried again like any other",
    );
    let several = asked.roles.len() > 1 || asked.roles.iter().any(|r| r.instances > 1);
    say(
        !asked.each_alone && several && request.retries.user > 0 && !request.roles.is_empty(),
        "retries.user: an instance that fails is started again by itself, not all of them together",
    );
    for role in &asked.roles {
        let name = &role.name;
        say(
            !asked.each_alone && role.retries > 0 && !request.roles.is_empty(),
            &format!("roles.{name}.retries: ignored: retries of the job count"),
        );
        say(
            role.failures_allowed().is_none() && !asked.request.roles.is_empty(),
            &format!(
                "roles.{name}.min_failed: a Job of which an instance failed has failed when all are over"
            ),
        );
        say(
            !role.ports.is_empty(),
            &format!(
                "roles.{name}.ports: are the same for all instances, because each pod has an address of its own"
            ),
        );
        say(
            !by_us(asked, role),
            &format!(
                "roles.{name}.gpus: is 0 and it starts alone, so the scheduler of the cluster starts it"
            ),
        );
    }
    said
}

/// Whether Dovetail starts the pods of a role: pods without GPUs that start alone are left to others.
pub(super) fn by_us(asked: &Asked<'_>, role: &Role) -> bool {
    role.gpus > 0 || (!asked.each_alone && asked.instances() > 1)
}
