//! Assignment of CPUs to tasks.

use std::collections::BTreeMap;

/// The CPUs of the node by NUMA domain, and the number of tasks on each.
#[derive(Clone, Debug)]
pub(crate) struct CpuAllocator {
    domains: Vec<Vec<u32>>,
    tasks: BTreeMap<u32, u32>,
}

impl CpuAllocator {
    pub(crate) fn new(domains: Vec<Vec<u32>>) -> Self {
        Self {
            domains,
            tasks: BTreeMap::new(),
        }
    }

    /// Chooses CPUs for this many milli-cores and assigns a task to them. Returns none if the task may run on all CPUs.
    ///
    /// Free CPUs of one domain are preferred, starting with the domain nearest to the task's GPUs; otherwise the CPUs
    /// with the fewest tasks are shared.
    pub(crate) fn allocate(&mut self, cpu_milli: u32, nearest: Option<usize>) -> Vec<u32> {
        let count = cpu_milli.div_ceil(1000) as usize;
        let all: usize = self.domains.iter().map(Vec::len).sum();
        if count == 0 || count >= all {
            return Vec::new();
        }
        let free = |domain: &Vec<u32>| domain.iter().filter(|cpu| self.load(**cpu) == 0).count();
        // The fullest domain that has enough leaves the others whole.
        let best = (0..self.domains.len())
            .filter(|d| free(&self.domains[*d]) >= count)
            .min_by_key(|d| (nearest != Some(*d), free(&self.domains[*d]), *d));
        let mut cpus: Vec<(bool, u32, u32)> = Vec::new();
        for (d, domain) in self.domains.iter().enumerate() {
            let is_elsewhere = best.or(nearest) != Some(d);
            cpus.extend(domain.iter().map(|cpu| (is_elsewhere, self.load(*cpu), *cpu)));
        }
        match best {
            Some(_) => cpus.sort_unstable(),
            None => cpus.sort_unstable_by_key(|(is_elsewhere, load, cpu)| (*load, *is_elsewhere, *cpu)),
        }
        let mut chosen: Vec<u32> = cpus.into_iter().take(count).map(|(_, _, cpu)| cpu).collect();
        chosen.sort_unstable();
        self.assign(&chosen);
        chosen
    }

    /// Counts a task on these CPUs.
    pub(crate) fn assign(&mut self, cpus: &[u32]) {
        for cpu in cpus {
            *self.tasks.entry(*cpu).or_default() += 1;
        }
    }

    /// Removes a task from these CPUs.
    pub(crate) fn release(&mut self, cpus: &[u32]) {
        for cpu in cpus {
            if let Some(count) = self.tasks.get_mut(cpu) {
                *count = count.saturating_sub(1);
            }
        }
    }

    fn load(&self, cpu: u32) -> u32 {
        self.tasks.get(&cpu).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_cpus_near_the_gpus_are_preferred_to_other_domains_and_shared_cpus() {
        let mut cpus = CpuAllocator::new(vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
        assert_eq!(cpus.allocate(3000, Some(1)), [4, 5, 6]);
        assert_eq!(cpus.allocate(2000, Some(1)), [0, 1]);
        // Without GPUs, the fullest domain that has enough.
        assert_eq!(cpus.allocate(500, None), [7]);
        // No domain has three free CPUs: those with the fewest tasks.
        assert_eq!(cpus.allocate(3000, None).len(), 3);
        cpus.release(&[4, 5, 6]);
        assert_eq!(cpus.allocate(3000, None), [4, 5, 6]);
    }

    #[test]
    fn a_request_for_no_or_all_cpus_is_not_bound() {
        let mut cpus = CpuAllocator::new(vec![vec![0, 1]]);
        assert!(cpus.allocate(0, None).is_empty());
        assert!(cpus.allocate(2000, None).is_empty());
        assert_eq!(cpus.allocate(1000, None), [0]);
        assert_eq!(cpus.allocate(1000, None), [1]);
        assert_eq!(cpus.allocate(1000, None), [0]);
    }
}
