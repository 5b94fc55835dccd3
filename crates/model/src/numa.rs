//! Choosing the CPUs of a job on a node: from one NUMA domain where that is possible.

use serde::{Deserialize, Serialize};

use crate::cpu_set::CpuSet;
use crate::gpu_set::GpuSet;

/// CPUs of a node that are close to each other, and the GPUs close to them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NumaDomain {
    /// CPUs of the domain.
    pub cpus: CpuSet,
    /// GPU slots of the domain.
    #[serde(default)]
    pub gpus: GpuSet,
}

impl NumaDomain {
    /// Divides a node into `domains` equal domains, with CPUs and GPUs in the order of their numbers.
    pub fn equal(domains: u32, cpus: u32, gpus: u32) -> Vec<Self> {
        let cut = |all: u32, i: u32| (u64::from(all) * u64::from(i) / u64::from(domains)) as u32;
        let domain = |i| {
            let mut slots = GpuSet::empty(gpus);
            (cut(gpus, i)..cut(gpus, i + 1)).for_each(|slot| slots.insert(slot));
            Self {
                cpus: CpuSet::range(cut(cpus, i), cut(cpus, i + 1) - cut(cpus, i)),
                gpus: slots,
            }
        };
        (0..domains).map(domain).collect()
    }
}

/// Chooses `count` of the free CPUs, by domain; returns none if fewer are free.
///
/// All CPUs are taken from the fullest domain that still has enough, the one with the fewest free CPUs, to leave large gaps
/// in other domains intact. If no domain has enough, they are taken from the fullest domain, then from the next. Ties are
/// broken in favour of the first domain, and within a domain the lowest CPUs are taken.
///
/// Domains in `near` (those of the job's GPUs) precede all others; with an empty `near` this is Synergy's rule.
pub fn choose_cpus(free: &[CpuSet], count: u32, near: &[usize]) -> Option<CpuSet> {
    let (near, far): (Vec<_>, Vec<_>) = (0..free.len()).partition(|i| near.contains(i));
    let mut chosen = CpuSet::default();
    let mut left = count;
    for domains in [near, far] {
        let taken = from_domains(free, domains, left);
        left -= taken.count();
        chosen.add(&taken);
    }
    (left == 0).then_some(chosen)
}

/// Takes up to `count` CPUs of these domains.
fn from_domains(free: &[CpuSet], mut domains: Vec<usize>, count: u32) -> CpuSet {
    domains.sort_by_key(|i| free[*i].count());
    if let Some(whole) = domains.iter().find(|i| free[**i].count() >= count) {
        return free[*whole].lowest(count);
    }
    let mut chosen = CpuSet::default();
    for i in domains {
        let taken = free[i].lowest(count - chosen.count());
        chosen.add(&taken);
    }
    chosen
}

/// The CPUs of one node and which of them are free. An agent uses it to bind jobs to CPUs.
///
/// The result depends only on the order of requests, so two ledgers with the same history agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLedger {
    domains: Vec<NumaDomain>,
    free: Vec<CpuSet>,
}

impl CpuLedger {
    /// Returns the ledger of a node on which every CPU is free.
    pub fn new(domains: Vec<NumaDomain>) -> Self {
        let free = domains.iter().map(|d| d.cpus.clone()).collect();
        Self { domains, free }
    }

    /// Returns the number of free CPUs.
    pub fn free(&self) -> u32 {
        self.free.iter().map(CpuSet::count).sum()
    }

    /// Takes `count` whole CPUs for a job on these GPUs; returns none if fewer are free. With `affinity`, the domains of
    /// the GPUs are used first.
    pub fn take(&mut self, count: u32, gpus: &GpuSet, affinity: bool) -> Option<CpuSet> {
        let is_near = |i: &usize| affinity && self.domains[*i].gpus.intersects(gpus);
        let near: Vec<usize> = (0..self.domains.len()).filter(is_near).collect();
        let chosen = choose_cpus(&self.free, count, &near)?;
        self.free.iter_mut().for_each(|free| free.remove(&chosen));
        Some(chosen)
    }

    /// Returns CPUs to their domains. CPUs that the node does not have are ignored.
    pub fn give_back(&mut self, cpus: &CpuSet) {
        for (free, domain) in self.free.iter_mut().zip(&self.domains) {
            free.add(&domain.cpus.common(cpus));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(lists: &[&str]) -> Vec<CpuSet> {
        lists
            .iter()
            .map(|l| l.parse().unwrap_or_else(|e| panic!("{e}")))
            .collect()
    }

    #[track_caller]
    fn chosen(lists: &[&str], count: u32, near: &[usize], expected: &str) {
        let found = choose_cpus(&sets(lists), count, near);
        assert_eq!(
            found.map_or("none".to_owned(), |c| format!("[{c}]")),
            expected.to_owned()
        );
    }

    #[test]
    fn the_fullest_domain_with_enough_cpus_is_chosen() {
        chosen(&["0-11", "12-15", "24-30"], 4, &[], "[12-15]");
        chosen(&["0-11", "12-15", "24-30"], 5, &[], "[24-28]");
        chosen(&["0-11", "12-15", "24-30"], 12, &[], "[0-11]");
        chosen(&["0-3", "4-7"], 2, &[], "[0-1]");
        chosen(&["0-3", "4-7"], 0, &[], "[]");
    }

    #[test]
    fn without_a_large_enough_domain_the_fullest_is_emptied_first() {
        chosen(&["0-11", "12-15", "24-30"], 13, &[], "[0-1,12-15,24-30]");
        chosen(&["0-11", "12-15", "24-30"], 23, &[], "[0-15,24-30]");
        chosen(&["0-11", "12-15", "24-30"], 24, &[], "none");
        chosen(&[], 1, &[], "none");
    }

    #[test]
    fn domains_of_the_gpus_are_used_first() {
        chosen(&["0-11", "12-15", "24-30"], 4, &[0], "[0-3]");
        chosen(&["0-11", "12-15", "24-30"], 6, &[1], "[12-15,24-25]");
        chosen(&["0-11", "12-15", "24-30"], 6, &[1, 2], "[24-29]");
    }

    #[test]
    fn a_node_is_divided_into_equal_domains() {
        let domains = NumaDomain::equal(2, 24, 8);
        assert_eq!(domains[1].cpus.to_string(), "12-23");
        assert_eq!(domains[1].gpus.iter().collect::<Vec<_>>(), [4, 5, 6, 7]);
        let odd = NumaDomain::equal(3, 7, 4);
        assert_eq!(odd.iter().map(|d| d.cpus.count()).sum::<u32>(), 7);
        assert_eq!(odd.iter().map(|d| d.gpus.count()).sum::<u32>(), 4);
    }

    #[test]
    fn a_ledger_takes_cpus_near_the_gpus() {
        let mut ledger = CpuLedger::new(NumaDomain::equal(2, 24, 8));
        let mut gpus = GpuSet::empty(8);
        gpus.insert(5);
        let near = ledger.take(3, &gpus, true);
        assert_eq!(near.map(|c| c.to_string()).as_deref(), Some("12-14"));
        let any = ledger.take(3, &gpus, false);
        assert_eq!(any.map(|c| c.to_string()).as_deref(), Some("15-17"));
        assert_eq!(ledger.take(19, &gpus, true), None);
        assert_eq!(ledger.free(), 18);
        ledger.give_back(&CpuSet::range(12, 6));
        assert_eq!(ledger, CpuLedger::new(NumaDomain::equal(2, 24, 8)));
    }
}
