//! How much longer than planned the period of jobs that share GPUs is, as it was measured where they ran.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::stages::MOST_SHARERS;

/// Stands for the profile of a job: a number that follows from the key of the profile, so that no table of keys is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProfileKey(u64);

impl ProfileKey {
    /// Returns the number of a key (64-bit FNV-1a).
    pub fn of(key: &str) -> Self {
        let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash)
    }
}

/// Measured factors, by the profiles of the members of a group. A group that was not measured counts as slow as the slowest
/// measured group of some of its members, and has the factor one if there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(Vec<ProfileKey>, u32)>", into = "Vec<(Vec<ProfileKey>, u32)>")]
pub struct GroupFactors {
    /// Factors in millionths, by sorted members.
    measured: BTreeMap<Vec<ProfileKey>, u32>,
}

/// The factor of a group that was not measured, in millionths.
const UNMEASURED_PPM: u32 = 1_000_000;

impl GroupFactors {
    /// Sets the factor of a group, in millionths, or forgets it. Returns whether that changed anything.
    pub fn set(&mut self, mut members: Vec<ProfileKey>, ppm: Option<u32>) -> bool {
        members.sort_unstable();
        let before = match ppm {
            Some(ppm) => self.measured.insert(members, ppm),
            None => self.measured.remove(&members),
        };
        before != ppm
    }

    /// Returns the factor of a group in millionths.
    pub fn ppm(&self, members: &[ProfileKey]) -> u32 {
        let mut members = members.to_vec();
        members.sort_unstable();
        let measured = self.measured.get(&members).copied();
        measured
            .or_else(|| self.slowest_part(&members))
            .unwrap_or(UNMEASURED_PPM)
    }

    /// Returns the largest factor of a measured group of some of these members.
    fn slowest_part(&self, members: &[ProfileKey]) -> Option<u32> {
        if !(3..=MOST_SHARERS).contains(&members.len()) {
            return None;
        }
        let parts = (1..1_u32 << members.len()).filter(|part| part.count_ones() > 1);
        let factors = parts.filter_map(|part| {
            let chosen = members.iter().enumerate().filter(|(i, _)| part >> i & 1 == 1);
            let part: Vec<ProfileKey> = chosen.map(|(_, member)| *member).collect();
            self.measured.get(&part).copied()
        });
        factors.max()
    }
}

impl From<Vec<(Vec<ProfileKey>, u32)>> for GroupFactors {
    fn from(rows: Vec<(Vec<ProfileKey>, u32)>) -> Self {
        Self {
            measured: rows.into_iter().collect(),
        }
    }
}

impl From<GroupFactors> for Vec<(Vec<ProfileKey>, u32)> {
    fn from(factors: GroupFactors) -> Self {
        factors.measured.into_iter().collect()
    }
}

/// Factors that many readers have. A change makes a copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedGroupFactors(Arc<GroupFactors>);

impl SharedGroupFactors {
    /// Whether both are the same value, and not only equal.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the factors, to change them.
    pub fn make_mut(&mut self) -> &mut GroupFactors {
        Arc::make_mut(&mut self.0)
    }
}

impl From<GroupFactors> for SharedGroupFactors {
    fn from(factors: GroupFactors) -> Self {
        Self(Arc::new(factors))
    }
}

impl std::ops::Deref for SharedGroupFactors {
    type Target = GroupFactors;

    fn deref(&self) -> &GroupFactors {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_belongs_to_a_group_in_any_order() {
        let [a, b] = ["bert", "~ann/train"].map(ProfileKey::of);
        let mut factors = GroupFactors::default();
        assert_eq!(factors.ppm(&[a, b]), 1_000_000);
        assert!(factors.set(vec![b, a], Some(1_250_000)) && !factors.set(vec![a, b], Some(1_250_000)));
        assert_eq!(
            (factors.ppm(&[a, b]), factors.ppm(&[a, a])),
            (1_250_000, 1_000_000)
        );
        let text = serde_json::to_string(&factors).unwrap();
        assert_eq!(serde_json::from_str::<GroupFactors>(&text).unwrap(), factors);
        assert!(factors.set(vec![a, b], None) && !factors.set(vec![a, b], None));
    }

    #[test]
    fn a_group_that_was_not_measured_is_as_slow_as_its_slowest_part() {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(ProfileKey::of);
        let mut factors = GroupFactors::default();
        factors.set(vec![a, b], Some(2_600_000));
        factors.set(vec![c, b], Some(1_100_000));
        assert_eq!(factors.ppm(&[c, b, a]), 2_600_000);
        assert_eq!(factors.ppm(&[a, d, c, b]), 2_600_000);
        assert_eq!(factors.ppm(&[b, d, c]), 1_100_000);
        assert_eq!(factors.ppm(&[a, d, c]), 1_000_000);
        factors.set(vec![a, b, c], Some(1_200_000));
        assert_eq!(factors.ppm(&[c, b, a]), 1_200_000, "measured itself");
        assert_eq!(factors.ppm(&[a; 100]), 1_000_000, "no group");
    }
}
