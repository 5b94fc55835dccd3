//! How much longer than planned a step of models takes that share GPUs behind stage gates.

use std::collections::VecDeque;

use dovetail_model::Time;
use serde::{Deserialize, Serialize};

/// Number of groups; when it is reached, the one that was not updated for longest is forgotten.
const MAX_GROUPS: usize = 1_000;
/// Number of latest measurements that are kept for each.
const MAX_MEASUREMENTS: usize = 16;
/// Number of measurements from which on they are used.
const MIN_MEASUREMENTS: usize = 2;

/// Limits of a factor, in millionths. What is outside was not measured in a steady state.
const FACTORS_PPM: std::ops::RangeInclusive<u64> = 100_000..=100_000_000;

/// A set of models that shared GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LearnedGroup {
    /// Their keys, sorted; a model is there as often as jobs of it shared GPUs.
    models: Vec<String>,
    updated: Time,
    /// Latest factors in millionths, oldest first.
    recent: VecDeque<u32>,
}

/// Measured periods of groups, as factors of the planned ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LearnedGroups {
    /// Sorted by models.
    groups: Vec<LearnedGroup>,
}

impl LearnedGroups {
    /// Adds a measured period of a group, and the one that was planned without contention, in microseconds.
    pub fn record(&mut self, now: Time, mut models: Vec<String>, measured_us: u64, planned_us: f64) {
        let ppm = (measured_us as f64 * 1e6 / planned_us.max(1.0)) as u64;
        let Some(ppm) = u32::try_from(ppm).ok().filter(|_| FACTORS_PPM.contains(&ppm)) else {
            return;
        };
        models.sort_unstable();
        let known = self.position(&models);
        let position = known.unwrap_or_else(|_| {
            if self.groups.len() >= MAX_GROUPS {
                let oldest = (0..self.groups.len()).min_by_key(|i| self.groups[*i].updated);
                oldest.map(|i| self.groups.remove(i));
            }
            let free = self.position(&models).unwrap_or_else(|free| free);
            let group = LearnedGroup {
                models,
                updated: now,
                recent: VecDeque::new(),
            };
            self.groups.insert(free, group);
            free
        });
        let group = &mut self.groups[position];
        group.updated = now;
        if group.recent.len() == MAX_MEASUREMENTS {
            group.recent.pop_front();
        }
        group.recent.push_back(ppm);
    }

    fn position(&self, models: &[String]) -> Result<usize, usize> {
        self.groups
            .binary_search_by(|group| group.models.as_slice().cmp(models))
    }

    /// Returns the groups with enough measurements, and how many times longer than planned a period of each is, in
    /// millionths.
    pub fn iter(&self) -> impl Iterator<Item = (&[String], u32)> {
        let usable = self
            .groups
            .iter()
            .filter(|group| group.recent.len() >= MIN_MEASUREMENTS);
        usable.map(|group| (group.models.as_slice(), median(&group.recent)))
    }

    /// Returns how many times longer than planned a period of a group is, in millionths, once it was measured often enough.
    pub fn factor_ppm(&self, models: &[String]) -> Option<u32> {
        let mut models = models.to_vec();
        models.sort_unstable();
        let group = &self.groups[self.position(&models).ok()?];
        (group.recent.len() >= MIN_MEASUREMENTS).then(|| median(&group.recent))
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Forgets all groups with a model, and returns them.
    pub fn forget(&mut self, model: &str) -> Vec<Vec<String>> {
        let has_model = |group: &mut LearnedGroup| group.models.iter().any(|m| m == model);
        self.groups
            .extract_if(.., has_model)
            .map(|group| group.models)
            .collect()
    }
}

fn median(values: &VecDeque<u32>) -> u32 {
    let mut values: Vec<u32> = values.iter().copied().collect();
    values.sort_unstable();
    values[(values.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_factor_needs_two_measurements_and_an_outlier_does_not_count() {
        let mut groups = LearnedGroups::default();
        let pair = models(&["vgg", "bert"]);
        groups.record(Time(1), pair.clone(), 110, 100.0);
        assert_eq!(groups.factor_ppm(&pair), None);
        groups.record(Time(2), models(&["bert", "vgg"]), 9_000, 100.0);
        groups.record(Time(3), pair.clone(), 112, 100.0);
        assert_eq!(groups.factor_ppm(&pair), Some(1_120_000));
        groups.record(Time(3), pair.clone(), 1 << 60, 1.0);
        assert_eq!(groups.factor_ppm(&pair), Some(1_120_000), "no such factor");
        let sorted = models(&["bert", "vgg"]);
        assert_eq!(
            groups.iter().collect::<Vec<_>>(),
            [(sorted.as_slice(), 1_120_000)]
        );
        let text = serde_json::to_string(&groups).unwrap();
        assert_eq!(serde_json::from_str::<LearnedGroups>(&text).unwrap(), groups);
        assert_eq!(groups.forget("gpt"), Vec::<Vec<String>>::new());
        assert_eq!(groups.forget("bert"), [sorted]);
        assert!(groups.is_empty());
    }

    #[test]
    fn the_number_of_groups_and_measurements_is_limited() {
        let mut groups = LearnedGroups::default();
        for n in 0..3_000_u32 {
            let other = format!("model {:04}", n % 1_500);
            groups.record(Time(n.into()), models(&["bert", &other]), 100, 100.0);
        }
        assert_eq!(groups.groups.len(), MAX_GROUPS);
        for n in 0..100 {
            groups.record(Time(9_000 + n), models(&["bert", "vgg"]), 100, 100.0);
        }
        assert!(groups.groups.iter().all(|g| g.recent.len() <= MAX_MEASUREMENTS));
        assert!(
            groups
                .groups
                .windows(2)
                .all(|pair| pair[0].models < pair[1].models)
        );
    }
}
