//! Periods and efficiencies of all groups of Muri's models, compared with its own values.

use std::collections::BTreeMap;
use std::io::Read;

use dovetail_model::layout::layout;
use dovetail_model::stages::{Contention, Ordering, Stages, efficiency, period_us};
use dovetail_testkit::shared;
use dovetail_workload::StageTable;

#[test]
fn every_group_has_the_reference_efficiency() {
    let Some(folder) = shared(env!("CARGO_MANIFEST_DIR"), "muri/golden") else {
        return;
    };
    let profiles = std::fs::read_to_string(folder.join("model_profiles.csv")).unwrap();
    let mut known: BTreeMap<(String, String), Stages> = BTreeMap::new();
    for line in profiles.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let us = |i: usize| (cells[i].parse::<f64>().unwrap() * 1000.0).round() as u32;
        known.insert(
            (cells[0].to_owned(), cells[1].to_owned()),
            Stages::three(us(4), us(5), us(6), us(3)),
        );
    }
    let mut table = String::new();
    let file = std::fs::File::open(folder.join("group_efficiency.csv.gz")).unwrap();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut table)
        .unwrap();
    let near = |ours: f64, text: &str| (ours - text.parse::<f64>().unwrap()).abs() < 1e-9;
    let mut groups = 0;
    for line in table.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let members: Vec<Stages> = cells[2]
            .split('+')
            .map(|model| known[&(cells[0].to_owned(), model.to_owned())])
            .collect();
        let best = period_us(&members, Ordering::Best) / 1e6;
        let worst = period_us(&members, Ordering::Worst) / 1e6;
        let gamma = efficiency(&members, Ordering::Best, &Contention::default());
        assert!(near(best, cells[3]), "best period of {line}: {best}");
        assert!(near(worst, cells[4]), "worst period of {line}: {worst}");
        assert!(near(gamma, cells[7]), "efficiency of {line}: {gamma}");
        groups += 1;
    }
    assert_eq!(groups, 2916);
}

#[test]
fn phases_converge_to_the_period_except_for_some_groups_of_four() {
    let profiles = StageTable::default();
    let (mut groups, mut longer, mut most) = (0, 0, 1.0f64);
    for gpus in [1, 2, 4, 8, 16, 32] {
        let stages: Vec<Stages> = profiles
            .rows
            .iter()
            .filter(|r| r.gpus == gpus)
            .map(|r| r.stages)
            .collect();
        for group in multisets(&stages) {
            for ordering in [Ordering::Best, Ordering::Worst] {
                let drawn = layout(&group, ordering);
                assert_eq!(drawn.period_us, period_us(&group, ordering));
                let ratio = drawn.steady_us / drawn.period_us;
                if (ratio - 1.0).abs() > 2e-3 {
                    assert!(group.len() == 4 && ordering == Ordering::Best, "{group:?}");
                    longer += 1;
                    most = most.max(ratio);
                }
            }
            groups += 1;
        }
    }
    assert_eq!((groups, longer), (2916, 292));
    assert!((most - 1236.0 / 879.0).abs() < 1e-9, "{most}");
}

/// Returns all groups of two, three and four, each once.
fn multisets(stages: &[Stages]) -> Vec<Vec<Stages>> {
    let mut all: Vec<Vec<usize>> = (0..stages.len()).map(|i| vec![i]).collect();
    let mut groups = Vec::new();
    for _ in 2..=4 {
        let grown = |g: &Vec<usize>| {
            let last = g.last().copied().unwrap_or(0);
            (last..stages.len())
                .map(|i| [g.as_slice(), &[i]].concat())
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(grown).collect();
        groups.extend(
            all.iter()
                .map(|g| g.iter().map(|i| stages[*i]).collect::<Vec<_>>()),
        );
    }
    groups
}
