//! Jobs whose processes do different things: roles, each with instances of its own.

use std::collections::BTreeMap;

use dovetail_model::Allocation;
use dovetail_openpai::environment::RoleInfo;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::amounts::Cpus;
use crate::request::{JobRequest, MOST_CPUS};

/// The most instances that start together: each is told of all the others.
const MOST_TOGETHER: u64 = 2_000;
/// The most instances that start on their own.
const MOST: u64 = 100_000;

/// Instances that do the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// How many there are.
    pub instances: u32,
    /// GPUs of each, all on one node.
    pub gpus: u32,
    /// CPU of each instance.
    #[schemars(with = "f64")]
    pub cpus: Cpus,
    /// Memory of each, in MiB.
    pub memory_mib: u64,
    /// What each runs.
    pub command: Vec<String>,
    /// Variables on top of those of the job.
    pub env: BTreeMap<String, String>,
    /// The launch fails when so many have failed; -1 for never.
    pub min_failed: i32,
    /// The launch succeeds when so many have succeeded; 0 for all of them, -1 for when everything is over.
    pub min_succeeded: i32,
    /// How often one is started again, where they start on their own.
    pub retries: u32,
    /// Ports of each, by label: how many.
    pub ports: BTreeMap<String, u32>,
    /// The container image it runs in, where the node has a container runtime.
    pub image: Option<String>,
    /// Size of `/dev/shm` in the container, in MiB; zero for what the runtime gives.
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
    /// So many failures fail the launch; none: never.
    pub fn failures_allowed(&self) -> Option<u32> {
        match self.min_failed {
            0 => Some(1),
            some => u32::try_from(some).ok(),
        }
    }

    /// So many successes make the launch a success; none: only when everything is over.
    pub fn successes_needed(&self) -> Option<u32> {
        match self.min_succeeded {
            0 => Some(self.instances),
            some => u32::try_from(some).ok(),
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
}

/// An instance and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Which role.
    pub role: usize,
    /// Which of its instances.
    pub index: u32,
    /// Which node of the allocation.
    pub place: usize,
    /// GPU slots there.
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
/// largest share of an instance with GPUs, and what instances without GPUs need, spread evenly over all GPUs.
fn per_gpu(roles: &[(Role, u32)], gpus: u128, amount: impl Fn(&Role) -> u64) -> u64 {
    let without_gpus = roles.iter().filter(|(r, _)| r.gpus == 0);
    let spread: u128 = without_gpus
        .map(|(r, n)| u128::from(amount(r)) * u128::from(*n))
        .sum();
    let with_gpus = roles.iter().map(|(r, _)| r).filter(|r| r.gpus > 0);
    // An instance's share is a fraction; the sum is rounded up once.
    let sums = with_gpus.map(|r| {
        let own = u128::from(r.gpus);
        (u128::from(amount(r)) * gpus + spread * own).div_ceil(own * gpus)
    });
    let most = sums.max().unwrap_or_else(|| spread.div_ceil(gpus));
    u64::try_from(most).unwrap_or(u64::MAX)
}

impl JobRequest {
    /// Works out what a job with roles asks for as a whole, and checks its roles.
    ///
    /// # Errors
    /// Names the role and what would be accepted.
    pub fn size_by_roles(&mut self) -> Result<(), String> {
        if self.roles.is_empty() {
            return Ok(());
        }
        self.check_roles()?;
        if !self.gang {
            // Each instance is a job of its own; this one stands for the first.
            return self.resize_to(&[(self.roles[0].clone(), 1)]);
        }
        let all: Vec<(Role, u32)> = self.roles.iter().map(|r| (r.clone(), r.instances)).collect();
        self.resize_to(&all)
    }

    fn resize_to(&mut self, roles: &[(Role, u32)]) -> Result<(), String> {
        let gpus: u64 = roles.iter().map(|(r, n)| u64::from(r.gpus) * u64::from(*n)).sum();
        if gpus > 1_000_000 {
            return Err(format!("roles: ask for {gpus} GPUs together; at most 1000000"));
        }
        // A job without GPUs holds a slot, so that it stands in line like the others.
        self.gpus = (gpus as u32).max(1);
        self.gpus_per_task = roles.iter().map(|(r, _)| r.gpus).max().unwrap_or(1).max(1);
        let gpus = u128::from(self.gpus);
        let cpu_milli = per_gpu(roles, gpus, |r| u64::from(r.cpus.milli()));
        self.cpus_per_gpu = Cpus::from_milli(i64::try_from(cpu_milli).unwrap_or(i64::MAX));
        self.memory_mib_per_gpu = per_gpu(roles, gpus, |r| r.memory_mib);
        Ok(())
    }

    pub(crate) fn check_roles(&self) -> Result<(), String> {
        let is_name = |name: &str| {
            let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
            !name.is_empty() && name.chars().all(good) && !name.starts_with(|c: char| c.is_ascii_digit())
        };
        for (i, role) in self.roles.iter().enumerate() {
            let bad = |field: &str, what: &str| Err(format!("roles[{i}].{field}: {what}"));
            if !is_name(&role.name) {
                return bad("name", "must be letters, digits and `_`, not a digit first");
            }
            if self.roles[..i].iter().any(|r| r.name == role.name) {
                return bad("name", &format!("there are two roles {}", role.name));
            }
            if role.instances == 0 {
                return bad("instances", "must be at least 1");
            }
            if role.command.first().is_none_or(String::is_empty) {
                return bad("command", "a program and its arguments are needed");
            }
            if !(Cpus::ZERO..=MOST_CPUS).contains(&role.cpus) {
                return bad("cpus", "must be from 0 to 100000");
            }
            if role.min_failed < -1 || role.min_succeeded < -1 {
                return bad("min_failed, min_succeeded", "must be -1 or more");
            }
            if let Some(label) = role.ports.keys().find(|label| !is_name(label)) {
                return bad(
                    "ports",
                    &format!("{label:?} is no label: letters, digits and `_`"),
                );
            }
            if role.ports.values().any(|count| *count > 64) {
                return bad("ports", "at most 64 of one label");
            }
        }
        let instances: u64 = self.roles.iter().map(|r| u64::from(r.instances)).sum();
        let most = if self.gang { MOST_TOGETHER } else { MOST };
        if instances > most {
            return Err(format!(
                "roles: have {instances} instances; at most {most} {}",
                match self.gang {
                    true => "that start together",
                    false => "of one job",
                }
            ));
        }
        if self.gang {
            self.check_bundles()?;
        }
        Ok(())
    }

    /// Sizes must fit into each other, so that instances fit into nodes that have room for whole bundles.
    fn check_bundles(&self) -> Result<(), String> {
        let mut sizes: Vec<(u32, &str)> = self.roles.iter().map(|r| (r.gpus, r.name.as_str())).collect();
        sizes.retain(|(gpus, _)| *gpus > 0);
        sizes.sort_unstable();
        for pair in sizes.windows(2) {
            let ((small, of), (large, other)) = (pair[0], pair[1]);
            if large % small != 0 {
                return Err(format!(
                    "roles: an instance of {of} has {small} GPUs and one of {other} {large}: the smaller number must divide the \
                     larger one, such as {small} and {}",
                    large.div_ceil(small) * small
                ));
            }
        }
        Ok(())
    }

    /// The role and index of an instance, counted over all roles.
    pub fn instance(&self, mut number: u32) -> Option<(usize, u32)> {
        for (i, role) in self.roles.iter().enumerate() {
            if number < role.instances {
                return Some((i, number));
            }
            number -= role.instances;
        }
        None
    }

    /// The job of one instance, where instances start on their own.
    pub(crate) fn alone(mut self, number: u32) -> Self {
        if self.roles.is_empty() || self.gang {
            return self;
        }
        if let Some((role, _)) = self.instance(number) {
            let role = self.roles[role].clone();
            self.retries.user = role.retries;
            // What was checked for all is right for each.
            let _ = self.resize_to(&[(role, 1)]);
        }
        if number > 0 {
            self.file = None;
            self.remarks.clear();
        }
        self
    }

    /// The instances of a launch: all of a gang, one where they start on their own.
    fn wanted(&self) -> Vec<(usize, u32)> {
        if !self.gang {
            let number = self.array.map_or(0, |part| part.index);
            return self.instance(number).into_iter().collect();
        }
        let of = |(i, role): (usize, &Role)| (0..role.instances).map(move |index| (i, index));
        self.roles.iter().enumerate().flat_map(of).collect()
    }

    /// Where each instance of a launch is: the widest first, each on the first node that has room. None if the GPUs are
    /// not in bundles.
    pub fn seat(&self, allocation: &Allocation) -> Option<Vec<Instance>> {
        let mut wanted = self.wanted();
        wanted.sort_by_key(|(role, _)| std::cmp::Reverse(self.roles[*role].gpus));
        let gpus = wanted.iter().map(|(role, _)| self.roles[*role].gpus);
        let slots = place_tasks(gpus, allocation)?;
        let instance = |((role, index), (place, gpus))| Instance {
            role,
            index,
            place,
            gpus,
        };
        let mut seated: Vec<Instance> = wanted.into_iter().zip(slots).map(instance).collect();
        seated.sort_by_key(|instance| (instance.role, instance.index));
        Some(seated)
    }

    /// The same without what its owner keeps secret.
    pub fn without_secrets(&self) -> Self {
        let mut shown = self.clone();
        shown
            .secrets
            .values_mut()
            .for_each(|value| "******".clone_into(value));
        shown
    }

    /// A text with its secrets filled in.
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
    fn a_job_asks_for_what_its_roles_need() {
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
        let seats = job.seat(&nodes(&[4, 5])).unwrap();
        let shown: Vec<(usize, usize, usize)> =
            seats.iter().map(|s| (s.role, s.place, s.gpus.len())).collect();
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
    fn sizes_that_do_not_fit_into_each_other_are_refused() {
        let said = job(vec![role("a", 1, 3, 0), role("b", 1, 4, 0)])
            .size_by_roles()
            .unwrap_err();
        assert!(
            said.contains("a has 3 GPUs and one of b 4") && said.contains("3 and 6"),
            "{said}"
        );
        let mut alone = job(vec![role("a", 1, 3, 0), role("b", 1, 4, 0)]);
        alone.gang = false;
        alone.size_by_roles().unwrap();
        assert_eq!(alone.alone(1).gpus, 4);
    }

    #[test]
    fn secrets_are_filled_in_at_the_end_and_not_shown() {
        let mut job = job(vec![]);
        job.secrets.insert("key".to_owned(), "hunter2".to_owned());
        assert_eq!(job.with_secrets("login <% $secrets.key %>"), "login hunter2");
        assert!(!format!("{:?}", job.without_secrets()).contains("hunter2"));
    }

    proptest! {
        /// Wherever the engine puts whole bundles, all instances have a seat, and no GPU has two.
        #[test]
        fn bundles_have_seats(counts in prop::collection::vec(0_u32..4, 4), cuts in prop::collection::vec(0_usize..4, 8)) {
            let sizes = [8, 4, 2, 1];
            let roles: Vec<Role> = counts.iter().zip(sizes).enumerate().filter(|(_, (n, _))| **n > 0)
                .map(|(i, (n, gpus))| role(&format!("r{i}"), *n, gpus, 0)).collect();
            prop_assume!(!roles.is_empty());
            let mut job = job(roles);
            job.size_by_roles().unwrap();
            let (bundle, mut given) = (job.gpus_per_task, vec![0_u32; 4]);
            for i in 0..job.gpus / bundle {
                given[cuts[i as usize % cuts.len()]] += bundle;
            }
            given[cuts[0]] += job.gpus % bundle;
            given.retain(|g| *g > 0);
            let allocation = nodes(&given);
            prop_assert!(allocation.is_in_bundles_of(bundle));
            let seats = job.seat(&allocation).expect("there is room");
            let mut used: Vec<(usize, u32)> = seats.iter().flat_map(|s| s.gpus.iter().map(|g| (s.place, *g))).collect();
            prop_assert_eq!(used.len() as u32, job.gpus);
            used.sort_unstable();
            used.dedup();
            prop_assert_eq!(used.len() as u32, job.gpus);
        }
    }
}
