//! Run times of earlier jobs, from which those of similar jobs are drawn.

use std::collections::BTreeMap;

use dovetail_model::{Time, Work};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::survival::{Draw, SurvivalCurve};

/// What jobs have in common that take about as long.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct JobTraits {
    /// User who submitted it.
    pub user: String,
    /// Name of the job; empty if it has none.
    pub name: String,
    /// Its virtual cluster.
    pub tenant: String,
    /// Number of GPUs it requests.
    pub gpus: u32,
}

/// A job that has started, and how much work it was, or was so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedJob {
    /// What it has in common with others.
    pub traits: JobTraits,
    /// When it first got GPUs.
    pub started: Time,
    /// Work that it did.
    pub work: Work,
    /// Whether it has finished; otherwise it will be more work.
    pub is_finished: bool,
    /// Work that its user expected.
    pub expected: Option<Work>,
}

/// Number of latest finished jobs that count.
pub(crate) const MAX_FINISHED: usize = 5_000;
/// Weight of less similar jobs: as many as this number of jobs of the more similar kind.
const BACKOFF: f64 = 4.0;
/// Number of comparisons of a stated run time with the real one below which the spread is assumed.
const MIN_RATIOS: usize = 8;
/// Numbers of latest jobs from which run times are drawn, each in a part of the simulations: what users run changes, and
/// it is unknown how fast.
const STRETCHES: [usize; 4] = [60, 250, 1_000, usize::MAX];

/// Run times of earlier jobs by similarity, and how well users estimate them.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Run times in each of the stretches, shortest first.
    stretches: Vec<Stretch>,
    finished: usize,
    median: Work,
    /// Real divided by stated run times, sorted.
    ratios: Vec<f64>,
    ratios_by_user: BTreeMap<String, Vec<f64>>,
}

/// Run times of the latest jobs by similarity.
#[derive(Debug, Clone, Default)]
struct Stretch {
    by_name: BTreeMap<(String, String), SurvivalCurve>,
    by_user: BTreeMap<(String, u32), SurvivalCurve>,
    by_tenant: BTreeMap<(String, u32), SurvivalCurve>,
    by_width: BTreeMap<u32, SurvivalCurve>,
    all: SurvivalCurve,
}

impl Stretch {
    fn new(jobs: &[ObservedJob]) -> Self {
        let mut stretch = Self::default();
        for job in jobs {
            let JobTraits {
                user,
                name,
                tenant,
                gpus,
            } = &job.traits;
            let width = gpus.next_power_of_two();
            let observed = (job.work, job.is_finished);
            if !name.is_empty() {
                let key = (user.clone(), name.clone());
                stretch.by_name.entry(key).or_default().add(observed);
            }
            if !user.is_empty() {
                let key = (user.clone(), width);
                stretch.by_user.entry(key).or_default().add(observed);
            }
            let key = (tenant.clone(), width);
            stretch.by_tenant.entry(key).or_default().add(observed);
            stretch.by_width.entry(width).or_default().add(observed);
            stretch.all.add(observed);
        }
        let curves = stretch.by_name.values_mut().chain(stretch.by_user.values_mut());
        let curves = curves.chain(stretch.by_tenant.values_mut());
        let curves = curves.chain(stretch.by_width.values_mut());
        curves
            .chain(std::iter::once(&mut stretch.all))
            .for_each(SurvivalCurve::finish);
        stretch
    }

    /// Returns the curves of the kinds a job belongs to, most similar first.
    fn kinds(&self, traits: &JobTraits) -> [Option<&SurvivalCurve>; 4] {
        let width = traits.gpus.next_power_of_two();
        [
            self.by_name.get(&(traits.user.clone(), traits.name.clone())),
            self.by_user.get(&(traits.user.clone(), width)),
            self.by_tenant.get(&(traits.tenant.clone(), width)),
            self.by_width.get(&width),
        ]
    }
}

impl History {
    /// Collects the run times of jobs.
    pub fn new(mut jobs: Vec<ObservedJob>) -> Self {
        jobs.sort_by_key(|job| job.started);
        let mut history = Self::default();
        let mut works = Vec::new();
        for job in jobs.iter().filter(|job| job.is_finished) {
            works.push(job.work);
            if let Some(expected) = job.expected.filter(|expected| expected.0 > 0) {
                let ratio = job.work.0 as f64 / expected.0 as f64;
                history.ratios.push(ratio);
                let of_user = history.ratios_by_user.entry(job.traits.user.clone());
                of_user.or_default().push(ratio);
            }
        }
        works.sort_unstable();
        history.finished = works.len();
        history.median = works.get(works.len() / 2).copied().unwrap_or_default();
        history.ratios.sort_unstable_by(f64::total_cmp);
        let by_user = history.ratios_by_user.values_mut();
        by_user.for_each(|ratios| ratios.sort_unstable_by(f64::total_cmp));
        history.stretches = STRETCHES
            .iter()
            .map(|length| Stretch::new(&jobs[jobs.len().saturating_sub(*length)..]))
            .collect();
        history
    }

    /// Returns the number of finished jobs.
    pub fn finished(&self) -> usize {
        self.finished
    }

    /// Returns the run time that half of the finished jobs do not exceed.
    pub fn median(&self) -> Work {
        self.median
    }

    /// Draws a stretch for one simulation.
    pub fn draw_stretch(&self, rng: &mut ChaCha8Rng) -> usize {
        rng.random_range(0..STRETCHES.len())
    }

    /// Draws the whole work of a job of which `done` is done: that of a similar job that was more. The more similar jobs
    /// there are, the less often one that is less similar is drawn. Where the stretch does not reach, a longer one does.
    pub fn draw(&self, traits: &JobTraits, done: Work, stretch: usize, rng: &mut ChaCha8Rng) -> Work {
        let mut done = done;
        for stretch in self.stretches.iter().skip(stretch) {
            let kinds = stretch.kinds(traits).into_iter().flatten();
            for curve in kinds.chain(std::iter::once(&stretch.all)) {
                let longer = curve.observed_beyond(done) as f64;
                if rng.random_range(0.0..1.0) >= longer / (longer + BACKOFF) {
                    continue;
                }
                match curve.draw(done, rng) {
                    Draw::Work(work) => return blur(work, done, rng),
                    // It is more than all known ones of this kind.
                    Draw::Beyond(end) => done = done.max(end),
                }
            }
        }
        overrun(done, rng)
    }

    /// Returns the share of jobs of this size that are more work.
    pub fn share_beyond(&self, traits: &JobTraits, done: Work) -> f64 {
        let width = traits.gpus.next_power_of_two();
        let curve = self.stretches.last().and_then(|all| all.by_width.get(&width));
        curve.map_or(1.0, |curve| curve.share_beyond(done))
    }

    /// Draws the whole work of a job whose run time was stated, and of which `done` is done.
    pub fn draw_estimated(&self, user: &str, expected: Work, done: Work, rng: &mut ChaCha8Rng) -> Work {
        let of_user = self.ratios_by_user.get(user);
        let enough = |ratios: &&Vec<f64>| ratios.len() >= MIN_RATIOS;
        let ratios = of_user.filter(enough).or(Some(&self.ratios).filter(enough));
        let drawn = match ratios {
            None => rng.random_range(0.8..1.25),
            Some(ratios) => {
                let least = done.0 as f64 / expected.0.max(1) as f64;
                let from = ratios.partition_point(|ratio| *ratio <= least);
                match &ratios[from..] {
                    [] => return overrun(done, rng),
                    longer => longer[rng.random_range(0..longer.len())],
                }
            }
        };
        let work = Work((expected.0 as f64 * drawn).min(1e18) as u64);
        match work > done {
            true => work,
            false => overrun(done, rng),
        }
    }
}

/// Run times are not limited to those that were observed.
fn blur(work: Work, done: Work, rng: &mut ChaCha8Rng) -> Work {
    let work = Work((work.0 as f64 * rng.random_range(0.95..1.05)) as u64);
    work.max(Work(done.0 + 1))
}

/// Draws the work of a job that is more than all known ones: the rest is in proportion to what is done.
fn overrun(done: Work, rng: &mut ChaCha8Rng) -> Work {
    let rest = (done.0 as f64 * rng.random_range(0.02..1.0)) as u64;
    Work(done.0.saturating_add(rest + 1))
}
