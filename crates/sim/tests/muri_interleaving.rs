//! Periods and efficiencies of all groups of Muri's models, against its own values.

use std::collections::BTreeMap;
use std::io::Read;

use dovetail_model::stages::{Contention, Ordering, Stages, efficiency, period_us};
use dovetail_testkit::shared;

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
