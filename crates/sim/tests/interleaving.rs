//! Interleaving never credits more work than a resource has time for.

use dovetail_model::stages::{Contention, Ordering, Stages, shared_period_us};
use dovetail_testkit::any::cases;
use proptest::prelude::*;

fn groups() -> impl Strategy<Value = Vec<Stages>> {
    let time = || prop_oneof![1 => Just(0u32), 3 => 1..1_000_000u32];
    let three = (time(), time(), time())
        .prop_map(|(data, gpu, network)| Stages::three(data, gpu, network, (data + gpu + network).max(1)));
    let four = [time(), time(), time(), time()].prop_map(|times_us| Stages {
        times_us,
        four: true,
        iteration_us: times_us.iter().sum::<u32>().max(1),
    });
    prop_oneof![
        prop::collection::vec(three, 2..=4),
        prop::collection::vec(four, 2..=4)
    ]
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn no_resource_is_busy_for_longer_than_the_period(group in groups()) {
        let contentions = [Contention::NONE, Contention::default()];
        for (ordering, contention) in [Ordering::Best, Ordering::Worst].into_iter().zip(contentions) {
            let period = shared_period_us(&group, ordering, &contention);
            for resource in 0..4 {
                let busy: f64 = group.iter().map(|s| f64::from(s.times_us[resource])).sum();
                // With three stages, data is loaded by two resources: storage and CPU.
                let many = if resource == 0 && !group[0].four { 2.0 } else { 1.0 };
                prop_assert!(
                    busy <= many * period * (1.0 + 1e-9),
                    "{:?}: resource {} is busy for {} of {}", ordering, resource, busy, many * period
                );
            }
        }
    }
}
