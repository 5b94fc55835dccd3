//! Run times of jobs, predicted from those of similar jobs that have ended.

use std::collections::{BTreeMap, VecDeque};

use dovetail_model::{Time, Work};
use serde::{Deserialize, Serialize};

/// What is known about a job when it is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobTraits<'a> {
    /// User who submitted it.
    pub user: &'a str,
    /// Its name; digits do not count, so that `train-7` resembles `train-8`.
    pub name: &'a str,
    /// Its model, if it states one.
    pub model: Option<&'a str>,
    /// Its virtual cluster.
    pub virtual_cluster: &'a str,
    /// GPUs it asks for.
    pub gpus: u32,
    /// When it was submitted; the hour of the day counts.
    pub submitted: Time,
}

/// The jobs that a prediction is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Jobs of the same user, name and number of GPUs.
    NameAndGpus,
    /// Jobs of the same user and name.
    Name,
    /// Jobs of the same user, model and number of GPUs.
    ModelOfUser,
    /// Jobs of the same model and number of GPUs.
    Model,
    /// Jobs of the same user and number of GPUs, at this time of the day.
    UserAndHour,
    /// Jobs of the same user and number of GPUs.
    User,
    /// Jobs of the same virtual cluster and number of GPUs.
    VirtualCluster,
    /// Jobs of the same number of GPUs.
    Gpus,
    /// All jobs.
    All,
}

impl Basis {
    /// All, most similar jobs first.
    const ALL: [Self; 9] = [
        Self::NameAndGpus,
        Self::Name,
        Self::ModelOfUser,
        Self::Model,
        Self::UserAndHour,
        Self::User,
        Self::VirtualCluster,
        Self::Gpus,
        Self::All,
    ];

    /// Returns how many jobs a prediction needs.
    fn min_jobs(self) -> usize {
        match self {
            Self::NameAndGpus | Self::Name => 2,
            Self::ModelOfUser | Self::Model | Self::UserAndHour | Self::User => 4,
            Self::VirtualCluster | Self::Gpus | Self::All => 8,
        }
    }

    /// Returns the key of the group to which a job belongs; none if the job does not state what it takes.
    fn key(self, job: &JobTraits<'_>) -> Option<u64> {
        let mut key = KeyHash::new(self as u8);
        match self {
            Self::NameAndGpus => key.text(job.user).name(job.name).number(job.gpus),
            Self::Name => key.text(job.user).name(job.name),
            Self::ModelOfUser => key.text(job.user).text(job.model?).number(job.gpus),
            Self::Model => key.text(job.model?).number(job.gpus),
            Self::UserAndHour => key
                .text(job.user)
                .number(job.gpus)
                .number(part_of_day(job.submitted)),
            Self::User => key.text(job.user).number(job.gpus),
            Self::VirtualCluster => key.text(job.virtual_cluster).number(job.gpus),
            Self::Gpus => key.number(job.gpus),
            Self::All => &mut key,
        };
        Some(key.0)
    }
}

/// Returns the quarter of the day that a time is in.
fn part_of_day(time: Time) -> u32 {
    const QUARTER: i64 = 6 * 3600 * 1_000_000;
    u32::try_from(time.0.rem_euclid(4 * QUARTER) / QUARTER).unwrap_or(0)
}

/// A hash that is the same in every process (FNV-1a).
struct KeyHash(u64);

impl KeyHash {
    fn new(seed: u8) -> Self {
        let mut hash = Self(0xcbf2_9ce4_8422_2325);
        hash.byte(seed);
        hash
    }

    fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }

    fn text(&mut self, text: &str) -> &mut Self {
        text.bytes().for_each(|byte| self.byte(byte));
        self.byte(0xff);
        self
    }

    /// Adds a name, with one mark for each run of digits.
    fn name(&mut self, name: &str) -> &mut Self {
        let mut after_digit = false;
        for byte in name.bytes() {
            let is_digit = byte.is_ascii_digit();
            if !is_digit || !after_digit {
                self.byte(if is_digit { b'#' } else { byte });
            }
            after_digit = is_digit;
        }
        self.byte(0xff);
        self
    }

    fn number(&mut self, number: u32) -> &mut Self {
        number.to_le_bytes().into_iter().for_each(|byte| self.byte(byte));
        self
    }
}

/// A predicted run time, alone on the GPUs that the job asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prediction {
    /// Half of the similar jobs ran shorter.
    pub median: Work,
    /// One in twenty of the similar jobs ran shorter.
    pub low: Work,
    /// One in twenty of the similar jobs ran longer.
    pub high: Work,
    /// Number of similar jobs.
    pub jobs: u32,
    /// What they have in common.
    pub basis: Basis,
}

/// Number of latest run times that are kept of a group.
const MAX_RUN_TIMES: usize = 32;
/// Number of groups; when it is reached, the half that was not used for longest is forgotten.
const MAX_GROUPS: usize = 8_192;

/// Run times of similar jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Group {
    /// Number of the last job that was added.
    last: u64,
    /// Latest run times, oldest first.
    run_times: VecDeque<u64>,
}

/// Predicts run times from those of the jobs that have ended so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunTimePredictor {
    /// Number of jobs so far.
    jobs: u64,
    groups: BTreeMap<u64, Group>,
}

impl RunTimePredictor {
    /// Adds a job that has ended: its work, that is the time it would have run alone on the GPUs it asked for.
    pub fn learn(&mut self, job: &JobTraits<'_>, work: Work) {
        self.jobs += 1;
        for key in Basis::ALL.iter().filter_map(|basis| basis.key(job)) {
            let group = self.groups.entry(key).or_insert_with(|| Group {
                last: 0,
                run_times: VecDeque::new(),
            });
            group.last = self.jobs;
            if group.run_times.len() == MAX_RUN_TIMES {
                group.run_times.pop_front();
            }
            group.run_times.push_back(work.0);
        }
        if self.groups.len() > MAX_GROUPS {
            self.forget_half();
        }
    }

    fn forget_half(&mut self) {
        let mut last: Vec<u64> = self.groups.values().map(|group| group.last).collect();
        let middle = last.len() / 2;
        let (_, median, _) = last.select_nth_unstable(middle);
        let median = *median;
        self.groups.retain(|_, group| group.last > median);
    }

    /// Returns the number of jobs it has learned from.
    pub fn jobs(&self) -> u64 {
        self.jobs
    }

    /// Returns the run time of a job, predicted from the most similar jobs of which enough have ended.
    pub fn predict(&self, job: &JobTraits<'_>) -> Option<Prediction> {
        Basis::ALL.iter().find_map(|basis| {
            let group = self.groups.get(&basis.key(job)?)?;
            (group.run_times.len() >= basis.min_jobs()).then(|| prediction(*basis, &group.run_times))
        })
    }
}

fn prediction(basis: Basis, run_times: &VecDeque<u64>) -> Prediction {
    let mut sorted: Vec<u64> = run_times.iter().copied().collect();
    sorted.sort_unstable();
    let at = |percent: usize| Work(sorted[(sorted.len() - 1) * percent / 100].max(1));
    Prediction {
        median: at(50),
        low: at(5),
        high: Work(sorted[((sorted.len() - 1) * 95).div_ceil(100)].max(1)),
        jobs: u32::try_from(sorted.len()).unwrap_or(u32::MAX),
        basis,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600 * 1_000_000;

    fn job<'a>(user: &'a str, name: &'a str, gpus: u32) -> JobTraits<'a> {
        JobTraits {
            user,
            name,
            model: None,
            virtual_cluster: "default",
            gpus,
            submitted: Time(3 * DAY),
        }
    }

    #[test]
    fn the_most_similar_jobs_count() {
        let mut predictor = RunTimePredictor::default();
        assert_eq!(predictor.predict(&job("ann", "train-1", 1)), None);
        for i in 0..8 {
            predictor.learn(&job("bob", &format!("eval-{i}"), 1), Work(1_000 + i));
        }
        let others = predictor.predict(&job("ann", "train-1", 1)).unwrap();
        assert_eq!(
            (others.basis, others.median),
            (Basis::VirtualCluster, Work(1_003))
        );
        for (name, work) in [("train-1", 50_000), ("train-22", 60_000), ("train-3", 70_000)] {
            predictor.learn(&job("ann", name, 1), Work(work));
        }
        let own = predictor.predict(&job("ann", "train-4", 1)).unwrap();
        assert_eq!(
            (own.basis, own.median, own.jobs),
            (Basis::NameAndGpus, Work(60_000), 3)
        );
        let wider = predictor.predict(&job("ann", "train-4", 8)).unwrap();
        assert_eq!(
            (wider.basis, wider.low, wider.high),
            (Basis::Name, Work(50_000), Work(70_000))
        );
        assert_eq!(
            predictor.predict(&job("ann", "other", 2)).unwrap().basis,
            Basis::All
        );
    }

    #[test]
    fn a_model_counts_for_other_users() {
        let mut predictor = RunTimePredictor::default();
        let of = |user, model| JobTraits {
            model: Some(model),
            ..job(user, "x", 4)
        };
        for work in [5, 6, 7, 8] {
            predictor.learn(&of("ann", "bert"), Work(work));
        }
        assert_eq!(predictor.predict(&of("bob", "bert")).unwrap().basis, Basis::Model);
        assert_eq!(predictor.predict(&of("bob", "vgg")), None);
    }

    #[test]
    fn only_the_latest_run_times_and_groups_are_kept() {
        let mut predictor = RunTimePredictor::default();
        for i in 0..20_000_u64 {
            let (user, name) = (
                format!("user{}", i % 5_000),
                format!("job {}", char::from(b'a' + (i % 26) as u8)),
            );
            predictor.learn(&job(&user, &name, 1 + (i % 8) as u32), Work(i + 1));
        }
        assert!(predictor.groups.len() <= MAX_GROUPS);
        assert!(
            predictor
                .groups
                .values()
                .all(|g| g.run_times.len() <= MAX_RUN_TIMES)
        );
        let any = predictor.predict(&job("new", "new", 64)).unwrap();
        assert!(
            (any.basis, any.jobs) == (Basis::All, 32) && any.low > Work(19_960),
            "{any:?}"
        );
        let text = serde_json::to_string(&predictor).unwrap();
        assert_eq!(
            serde_json::from_str::<RunTimePredictor>(&text).unwrap(),
            predictor
        );
    }
}
