//! Properties of the choice of CPUs, over random domains.

use dovetail_model::numa::{CpuLedger, choose_cpus};
use dovetail_model::{CpuSet, GpuSet, NumaDomain};
use proptest::prelude::*;

/// Generates five domains with up to 160 CPUs in total, some of whose numbers are missing.
fn domains() -> impl Strategy<Value = Vec<CpuSet>> {
    prop::collection::vec(prop::option::weighted(0.7, 0..5usize), 0..160).prop_map(|owners| {
        let mut free = vec![CpuSet::default(); 5];
        for (cpu, owner) in (0..).zip(owners) {
            if let Some(owner) = owner {
                free[owner].insert(cpu);
            }
        }
        free
    })
}

fn touched(free: &[CpuSet], chosen: &CpuSet) -> Vec<usize> {
    (0..free.len())
        .filter(|i| !free[*i].common(chosen).is_empty())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exactly_the_requested_number_of_free_cpus_is_chosen(
        free in domains(),
        count in 0..200u32,
        near in prop::collection::vec(0..5usize, 0..3),
    ) {
        let all: u32 = free.iter().map(CpuSet::count).sum();
        match choose_cpus(&free, count, &near) {
            None => prop_assert!(count > all),
            Some(chosen) => {
                prop_assert_eq!(chosen.count(), count);
                let from: u32 = free.iter().map(|f| f.common(&chosen).count()).sum();
                prop_assert_eq!(from, count, "only free CPUs are chosen");
            }
        }
    }

    #[test]
    fn the_fullest_domain_with_enough_cpus_is_chosen(free in domains(), count in 1..60u32) {
        let Some(chosen) = choose_cpus(&free, count, &[]) else { return Ok(()) };
        let touched = touched(&free, &chosen);
        let fitting: Vec<u32> = free.iter().map(CpuSet::count).filter(|c| *c >= count).collect();
        match fitting.iter().min() {
            Some(fullest) => {
                prop_assert_eq!(touched.len(), 1);
                prop_assert_eq!(free[touched[0]].count(), *fullest);
            }
            // Every domain fuller than the last one used was emptied.
            None => {
                let last = touched.iter().map(|i| free[*i].count()).max().unwrap_or(0);
                for (i, domain) in free.iter().enumerate().filter(|(_, d)| d.count() < last) {
                    prop_assert_eq!(domain.common(&chosen), domain.clone(), "domain {}", i);
                }
            }
        }
    }

    #[test]
    fn near_domains_are_used_first(free in domains(), count in 1..60u32, near in 0..5usize) {
        let Some(chosen) = choose_cpus(&free, count, &[near]) else { return Ok(()) };
        prop_assert_eq!(free[near].common(&chosen).count(), count.min(free[near].count()));
    }

    #[test]
    fn a_ledger_never_hands_out_a_cpu_twice(
        steps in prop::collection::vec((0..10u32, 0..8u32, any::<bool>(), any::<prop::sample::Index>()), 1..60),
        parts in 1..5u32,
    ) {
        let mut ledger = CpuLedger::new(NumaDomain::equal(parts, 24, 8));
        let mut held: Vec<CpuSet> = Vec::new();
        for (count, gpu, affinity, which) in steps {
            let mut gpus = GpuSet::empty(8);
            gpus.insert(gpu);
            match ledger.take(count, &gpus, affinity) {
                Some(cpus) => {
                    prop_assert!(held.iter().all(|h| h.common(&cpus).is_empty()), "{} are in use", cpus);
                    held.push(cpus);
                }
                None => {
                    let back = held.swap_remove(which.index(held.len()));
                    ledger.give_back(&back);
                }
            }
            let out: u32 = held.iter().map(CpuSet::count).sum();
            prop_assert_eq!(ledger.free() + out, 24);
        }
    }
}
