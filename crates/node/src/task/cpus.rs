//! Which CPUs a task runs on.

use std::collections::BTreeMap;

/// The CPUs of the node by NUMA domain, and how many tasks are on each.
#[derive(Clone, Debug)]
pub(crate) struct CpuBook {
    domains: Vec<Vec<u32>>,
    tasks: BTreeMap<u32, u32>,
}

impl CpuBook {
    pub(crate) fn new(domains: Vec<Vec<u32>>) -> Self {
        Self {
            domains,
            tasks: BTreeMap::new(),
        }
    }

    /// CPUs for so many milli-cores: free ones of one domain, the one near to its GPUs first; then those with the
    /// fewest tasks. Empty if it may run anywhere.
    pub(crate) fn take(&mut self, cpu_milli: u32, near: Option<usize>) -> Vec<u32> {
        let want = cpu_milli.div_ceil(1000) as usize;
        let all: usize = self.domains.iter().map(Vec::len).sum();
        if want == 0 || want >= all {
            return Vec::new();
        }
        let free = |domain: &Vec<u32>| domain.iter().filter(|cpu| self.load(**cpu) == 0).count();
        // The fullest domain that has enough leaves the others whole.
        let best = (0..self.domains.len())
            .filter(|d| free(&self.domains[*d]) >= want)
            .min_by_key(|d| (near != Some(*d), free(&self.domains[*d]), *d));
        let mut cpus: Vec<(bool, u32, u32)> = Vec::new();
        for (d, domain) in self.domains.iter().enumerate() {
            let elsewhere = best.or(near) != Some(d);
            cpus.extend(domain.iter().map(|cpu| (elsewhere, self.load(*cpu), *cpu)));
        }
        match best {
            Some(_) => cpus.sort_unstable(),
            None => cpus.sort_unstable_by_key(|(elsewhere, load, cpu)| (*load, *elsewhere, *cpu)),
        }
        let mut taken: Vec<u32> = cpus.into_iter().take(want).map(|(_, _, cpu)| cpu).collect();
        taken.sort_unstable();
        self.mark(&taken);
        taken
    }

    /// A task is on these CPUs.
    pub(crate) fn mark(&mut self, cpus: &[u32]) {
        for cpu in cpus {
            *self.tasks.entry(*cpu).or_default() += 1;
        }
    }

    /// A task has left these CPUs.
    pub(crate) fn give_back(&mut self, cpus: &[u32]) {
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
    fn free_cpus_near_the_gpus_come_first_then_any_domain_that_has_enough() {
        let mut book = CpuBook::new(vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
        assert_eq!(book.take(3000, Some(1)), [4, 5, 6]);
        assert_eq!(book.take(2000, Some(1)), [0, 1]);
        // The fullest that has enough, when nothing is near.
        assert_eq!(book.take(500, None), [7]);
        // No domain has three: the least busy CPUs of all.
        assert_eq!(book.take(3000, None).len(), 3);
        book.give_back(&[4, 5, 6]);
        assert_eq!(book.take(3000, None), [4, 5, 6]);
    }

    #[test]
    fn all_or_no_cpus_means_anywhere() {
        let mut book = CpuBook::new(vec![vec![0, 1]]);
        assert!(book.take(0, None).is_empty());
        assert!(book.take(2000, None).is_empty());
        assert_eq!(book.take(1000, None), [0]);
        assert_eq!(book.take(1000, None), [1]);
        assert_eq!(book.take(1000, None), [0]);
    }
}
