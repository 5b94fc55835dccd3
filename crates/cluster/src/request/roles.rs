//! Roles: parts of a job with commands and resources of their own, each with one or more instances.

use std::collections::BTreeMap;

use dovetail_model::Allocation;
use dovetail_openpai::environment::RoleInfo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::JobRequest;
use super::error::{RequestError, RoleError};
use super::validate::{MAX_CPUS, MAX_GPUS};
use crate::amounts::Cpus;

/// Largest number of instances that start together: each one gets the addresses of all others.
pub(super) const MAX_GANG_INSTANCES: u64 = 2_000;
/// Largest number of instances that are jobs of their own.
const MAX_INSTANCES: u64 = 100_000;

/// Largest number of ports of one label.
const MAX_PORTS: u32 = 64;

/// Instances with the same command and resources.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Role {
    /// Name of the role.
    pub name: String,
    /// Number of instances.
    pub instances: u32,
    /// Number of GPUs of each instance, all on one node.
    pub gpus: u32,
    /// CPU cores of each instance.
    #[schemars(with = "f64")]
    pub cpus: Cpus,
    /// Memory of each instance, in MiB.
    pub memory_mib: u64,
    /// Command and arguments of each instance.
    pub command: Vec<String>,
    /// Environment variables, in addition to those of the job.
    pub env: BTreeMap<String, String>,
    /// Number of failed instances that fails the attempt; -1 for never.
    pub min_failed: i32,
    /// Number of successful instances that completes the attempt; 0 for all of them, -1 for when all roles have ended.
    pub min_succeeded: i32,
    /// Number of retries of an instance, where each one is a job of its own.
    pub retries: u32,
    /// Number of ports of each instance, by label.
    pub ports: BTreeMap<String, u32>,
    /// Container image, used where the node has a container runtime.
    pub image: Option<String>,
    /// Size of `/dev/shm` in the container, in MiB; zero for the default of the runtime.
    pub shm_mib: u64,
}

impl Default for Role {
    fn default() -> Self {
        Self {
            name: String::new(),
            instances: 1,
            gpus: 0,
            cpus: Cpus::ZERO,
            memory_mib: 0,
            command: Vec::new(),
            env: BTreeMap::new(),
            min_failed: 1,
            min_succeeded: 0,
            retries: 0,
            ports: BTreeMap::new(),
            image: None,
            shm_mib: 0,
        }
    }
}

impl Role {
    /// Returns the number of failures that fails the attempt, or `None` for never.
    pub fn failures_allowed(&self) -> Option<u32> {
        match self.min_failed {
            0 => Some(1),
            count => u32::try_from(count).ok(),
        }
    }

    /// Returns the number of successes that completes the attempt, or `None` for when all roles have ended.
    pub fn successes_needed(&self) -> Option<u32> {
        match self.min_succeeded {
            0 => Some(self.instances),
            count => u32::try_from(count).ok(),
        }
    }

    /// Returns the role as OpenPAI's environment variables describe it.
    pub fn info(&self) -> RoleInfo<'_> {
        RoleInfo {
            name: &self.name,
            instances: self.instances,
            gpus: self.gpus,
            cpus: u64::from(self.cpus.whole()),
            memory_mib: self.memory_mib,
            shm_mib: self.shm_mib,
            min_failed: self.failures_allowed(),
            min_succeeded: self.successes_needed(),
        }
    }

    fn validate(&self) -> Result<(), RoleError> {
        let is_name = |name: &str| {
            let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
            !name.is_empty() && name.chars().all(is_valid) && !name.starts_with(|c: char| c.is_ascii_digit())
        };
        if !is_name(&self.name) {
            return Err(RoleError::Name);
        }
        if self.instances == 0 {
            return Err(RoleError::NoInstances);
        }
        if self.command.first().is_none_or(String::is_empty) {
            return Err(RoleError::MissingCommand);
        }
        if !(Cpus::ZERO..=MAX_CPUS).contains(&self.cpus) {
            return Err(RoleError::Cpus);
        }
        if self.min_failed < -1 || self.min_succeeded < -1 {
            return Err(RoleError::CompletionRule);
        }
        if let Some(label) = self.ports.keys().find(|label| !is_name(label)) {
            return Err(RoleError::PortLabel(label.clone()));
        }
        match self.ports.values().any(|count| *count > MAX_PORTS) {
            true => Err(RoleError::TooManyPorts),
            false => Ok(()),
        }
    }
}

/// An instance of a role and its placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Index of the role.
    pub role: usize,
    /// Index among the instances of the role.
    pub index: u32,
    /// Index of the node in the allocation.
    pub place: usize,
    /// GPU slots on that node.
    pub gpus: Vec<u32>,
}

/// Places tasks on the nodes of an allocation and returns for each its node, as an index into the shares, and its GPU slots.
///
/// Tasks are given by their numbers of GPUs, the largest first. Each goes to the first node with enough slots; tasks without
/// GPUs are spread over the nodes in proportion to their slots. Returns `None` if a task does not fit on any node.
pub fn place_tasks(
    gpus: impl IntoIterator<Item = u32>,
    allocation: &Allocation,
) -> Option<Vec<(usize, Vec<u32>)>> {
    let mut free: Vec<Vec<u32>> = allocation
        .shares
        .iter()
        .map(|s| s.gpus.iter().collect())
        .collect();
    let widths: Vec<usize> = free.iter().map(|slots| slots.len().max(1)).collect();
    let mut without_gpus = vec![0_usize; free.len()];
    let mut slots = Vec::new();
    for gpus in gpus {
        let gpus = gpus as usize;
        let place = if gpus > 0 {
            free.iter().position(|slots| slots.len() >= gpus)?
        } else {
            let load = |i: &usize| (without_gpus[*i] * 1_000_000 / widths[*i], *i);
            let place = (0..free.len()).min_by_key(load)?;
            without_gpus[place] += 1;
            place
        };
        let rest = free[place].split_off(gpus);
        slots.push((place, std::mem::replace(&mut free[place], rest)));
    }
    Some(slots)
}

/// Returns what has to be available beside each of a job's GPUs so that every instance gets its amount, rounded up: the
/// largest share of an instance with GPUs, and what instances without GPUs need, spread evenly over all GPUs. Instances are
/// GPUs and amount of one, and how many there are.
pub(super) fn per_gpu(instances: impl Iterator<Item = (u32, u64, u32)> + Clone, gpus: u128) -> u64 {
    let without_gpus = instances.clone().filter(|(own, _, _)| *own == 0);
    let spread: u128 = without_gpus
        .map(|(_, amount, count)| u128::from(amount) * u128::from(count))
        .sum();
    // An instance's share is a fraction; the sum is rounded up once.
    let sums = instances.filter(|(own, _, _)| *own > 0).map(|(own, amount, _)| {
        let own = u128::from(own);
        (u128::from(amount) * gpus + spread * own).div_ceil(own * gpus)
    });
    let most = sums.max().unwrap_or_else(|| spread.div_ceil(gpus));
    u64::try_from(most).unwrap_or(u64::MAX)
}

impl JobRequest {
    /// Sets the size of a job with roles to the sum of its roles, after checking them.
    ///
    /// # Errors
    /// Names the role and what is expected.
    pub fn size_by_roles(&mut self) -> Result<(), RequestError> {
        if self.roles.is_empty() {
            return Ok(());
        }
        self.validate_roles()?;
        if !self.gang {
            // Each instance is a job of its own; this request stands for the first one.
            return self.resize_to(&[(self.roles[0].clone(), 1)]);
        }
        let all: Vec<(Role, u32)> = self.roles.iter().map(|r| (r.clone(), r.instances)).collect();
        self.resize_to(&all)
    }

    fn resize_to(&mut self, roles: &[(Role, u32)]) -> Result<(), RequestError> {
        let gpus: u64 = roles.iter().map(|(r, n)| u64::from(r.gpus) * u64::from(*n)).sum();
        let max = u64::from(MAX_GPUS);
        if gpus > max {
            return Err(RequestError::RoleGpus { gpus, max });
        }
        // A job without GPUs holds one slot, so that it is queued like the others.
        self.gpus = (gpus as u32).max(1);
        self.gpus_per_task = roles.iter().map(|(r, _)| r.gpus).max().unwrap_or(1).max(1);
        let gpus = u128::from(self.gpus);
        let amounts = |of: fn(&Role) -> u64| roles.iter().map(move |(r, n)| (r.gpus, of(r), *n));
        let cpu_milli = per_gpu(amounts(|r| u64::from(r.cpus.milli())), gpus);
        self.cpus_per_gpu = Cpus::from_milli(i64::try_from(cpu_milli).unwrap_or(i64::MAX));
        self.memory_mib_per_gpu = per_gpu(amounts(|r| r.memory_mib), gpus);
        Ok(())
    }

    pub(super) fn validate_roles(&self) -> Result<(), RequestError> {
        for (index, role) in self.roles.iter().enumerate() {
            if self.roles[..index].iter().any(|r| r.name == role.name) {
                let error = RoleError::DuplicateName(role.name.clone());
                return Err(RequestError::Role { index, error });
            }
            role.validate()
                .map_err(|error| RequestError::Role { index, error })?;
        }
        let instances: u64 = self.roles.iter().map(|r| u64::from(r.instances)).sum();
        let max = if self.gang {
            MAX_GANG_INSTANCES
        } else {
            MAX_INSTANCES
        };
        if instances > max {
            return Err(RequestError::Instances {
                instances,
                max,
                gang: self.gang,
            });
        }
        match self.gang {
            true => self.validate_role_sizes(),
            false => Ok(()),
        }
    }

    /// Checks that the sizes of instances divide each other: then all instances fit on nodes with room for whole tasks.
    fn validate_role_sizes(&self) -> Result<(), RequestError> {
        let mut sizes: Vec<(u32, &str)> = self.roles.iter().map(|r| (r.gpus, r.name.as_str())).collect();
        sizes.retain(|(gpus, _)| *gpus > 0);
        sizes.sort_unstable();
        for pair in sizes.windows(2) {
            let ((small, smaller), (large, larger)) = (pair[0], pair[1]);
            if large % small != 0 {
                return Err(RequestError::RoleSizes {
                    smaller: smaller.to_owned(),
                    small,
                    larger: larger.to_owned(),
                    large,
                });
            }
        }
        Ok(())
    }

    /// Returns the role and the index in it of an instance, counted over all roles.
    pub fn instance(&self, mut number: u32) -> Option<(usize, u32)> {
        for (i, role) in self.roles.iter().enumerate() {
            if number < role.instances {
                return Some((i, number));
            }
            number -= role.instances;
        }
        None
    }

    /// Returns the request for the job of one instance, where each one is a job of its own.
    pub(crate) fn for_instance(mut self, number: u32) -> Self {
        if self.roles.is_empty() || self.gang {
            return self;
        }
        if let Some((role, _)) = self.instance(number) {
            let role = self.roles[role].clone();
            self.retries.user = role.retries;
            // Cannot fail: one instance is smaller than all, which were checked.
            let _ = self.resize_to(&[(role, 1)]);
        }
        if number > 0 {
            self.file = None;
            self.remarks.clear();
        }
        self
    }

    /// Returns the instances of an attempt: all of a gang, or the one of this job.
    fn instances(&self) -> Vec<(usize, u32)> {
        if !self.gang {
            let number = self.array.map_or(0, |part| part.index);
            return self.instance(number).into_iter().collect();
        }
        let of_role = |(i, role): (usize, &Role)| (0..role.instances).map(move |index| (i, index));
        self.roles.iter().enumerate().flat_map(of_role).collect()
    }

    /// Places the instances of an attempt: the largest first, each on the first node with enough slots. Returns `None` if
    /// the allocation does not consist of whole tasks.
    pub fn place_instances(&self, allocation: &Allocation) -> Option<Vec<Instance>> {
        let mut instances = self.instances();
        instances.sort_by_key(|(role, _)| std::cmp::Reverse(self.roles[*role].gpus));
        let gpus = instances.iter().map(|(role, _)| self.roles[*role].gpus);
        let slots = place_tasks(gpus, allocation)?;
        let instance = |((role, index), (place, gpus))| Instance {
            role,
            index,
            place,
            gpus,
        };
        let mut placed: Vec<Instance> = instances.into_iter().zip(slots).map(instance).collect();
        placed.sort_by_key(|instance| (instance.role, instance.index));
        Some(placed)
    }

    /// Returns the request with its secrets masked.
    pub fn without_secrets(&self) -> Self {
        let mut shown = self.clone();
        shown
            .secrets
            .values_mut()
            .for_each(|value| "******".clone_into(value));
        shown
    }

    /// Replaces the references to secrets in a text by their values.
    pub(crate) fn with_secrets(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.secrets {
            text = text.replace(&format!("<% $secrets.{name} %>"), value);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use dovetail_model::{GpuSet, NodeId, NodeShare};
    use proptest::prelude::*;

    use super::*;

    fn role(name: &str, instances: u32, gpus: u32, cpus: u32) -> Role {
        Role {
            name: name.to_owned(),
            instances,
            gpus,
            cpus: Cpus::from_whole(cpus),
            memory_mib: 100,
            command: vec!["true".to_owned()],
            ..Role::default()
        }
    }

    fn job(roles: Vec<Role>) -> JobRequest {
        JobRequest {
            roles,
            ..JobRequest::default()
        }
    }

    fn nodes(sizes: &[u32]) -> Allocation {
        let share = |(i, gpus): (usize, &u32)| NodeShare {
            node: NodeId(i as u32),
            gpus: GpuSet::full(*gpus),
            cpu_milli: 0,
            memory_mib: 0,
        };
        Allocation {
            shares: sizes.iter().enumerate().map(share).collect(),
        }
    }

    #[test]
    fn the_size_of_a_job_is_the_sum_of_its_roles() {
        let mut job = job(vec![
            role("worker", 4, 2, 3),
            role("ps", 2, 0, 4),
            role("eval", 1, 1, 1),
        ]);
        job.size_by_roles().unwrap();
        assert_eq!((job.gpus, job.gpus_per_task), (9, 2));
        assert_eq!(
            job.cpus_per_gpu,
            Cpus::from_milli(2389),
            "1.5 + 8/9 cores, rounded up"
        );
        let placed = job.place_instances(&nodes(&[4, 5])).unwrap();
        let shown: Vec<(usize, usize, usize)> =
            placed.iter().map(|s| (s.role, s.place, s.gpus.len())).collect();
        assert_eq!(
            shown,
            [
                (0, 0, 2),
                (0, 0, 2),
                (0, 1, 2),
                (0, 1, 2),
                (1, 0, 0),
                (1, 1, 0),
                (2, 1, 1)
            ]
        );
    }

    #[test]
    fn a_job_without_gpus_holds_one_slot() {
        let mut job = job(vec![role("a", 3, 0, 2)]);
        job.size_by_roles().unwrap();
        assert_eq!(
            (job.gpus, job.cpus_per_gpu.whole(), job.memory_mib_per_gpu),
            (1, 6, 300)
        );
    }

    #[test]
    fn role_sizes_that_do_not_divide_each_other_are_refused() {
        let message = job(vec![role("a", 1, 3, 0), role("b", 1, 4, 0)])
            .size_by_roles()
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("a has 3 GPUs and one of b 4") && message.contains("3 and 6"),
            "{message}"
        );
        let mut separate = job(vec![role("a", 1, 3, 0), role("b", 1, 4, 0)]);
        separate.gang = false;
        separate.size_by_roles().unwrap();
        assert_eq!(separate.for_instance(1).gpus, 4);
    }

    #[test]
    fn secrets_are_inserted_into_commands_and_not_shown() {
        let mut job = job(vec![]);
        job.secrets.insert("key".to_owned(), "hunter2".to_owned());
        assert_eq!(job.with_secrets("login <% $secrets.key %>"), "login hunter2");
        assert!(!format!("{:?}", job.without_secrets()).contains("hunter2"));
    }

    proptest! {
        /// On any allocation of whole tasks, all instances are placed and no GPU is used twice.
        #[test]
        fn all_instances_are_placed_on_whole_tasks(counts in prop::collection::vec(0_u32..4, 4), cuts in prop::collection::vec(0_usize..4, 8)) {
            let sizes = [8, 4, 2, 1];
            let roles: Vec<Role> = counts.iter().zip(sizes).enumerate().filter(|(_, (n, _))| **n > 0)
                .map(|(i, (n, gpus))| role(&format!("r{i}"), *n, gpus, 0)).collect();
            prop_assume!(!roles.is_empty());
            let mut job = job(roles);
            job.size_by_roles().unwrap();
            let (task_gpus, mut slots) = (job.gpus_per_task, vec![0_u32; 4]);
            for i in 0..job.gpus / task_gpus {
                slots[cuts[i as usize % cuts.len()]] += task_gpus;
            }
            slots[cuts[0]] += job.gpus % task_gpus;
            slots.retain(|g| *g > 0);
            let allocation = nodes(&slots);
            prop_assert!(allocation.is_in_bundles_of(task_gpus));
            let placed = job.place_instances(&allocation).expect("all instances fit");
            let mut used: Vec<(usize, u32)> = placed.iter().flat_map(|s| s.gpus.iter().map(|g| (s.place, *g))).collect();
            prop_assert_eq!(used.len() as u32, job.gpus);
            used.sort_unstable();
            used.dedup();
            prop_assert_eq!(used.len() as u32, job.gpus);
        }
    }
}
