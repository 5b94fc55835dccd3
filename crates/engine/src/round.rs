//! One walk down the line, as a discipline sees it: candidates best first, holders worst first, and a draft between.

use dovetail_model::ids::Id;
use dovetail_model::{Allocation, JobId, Reason, Time};

use crate::cluster::Cluster;
use crate::draft::{Draft, Mark};
use crate::job::Job;
use crate::line::{Rank, Spot};
use crate::parts::{Ask, Grouping, Placement, Sizing, Tenancy};
use crate::shape::ShapeId;
use crate::sharers::Sharers;
use crate::state::State;

/// The next job in line that does not hold GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The job.
    pub job: JobId,
    /// Its place in line.
    pub rank: Rank,
    /// Its shape; none for a job that lost its GPUs in this very round.
    pub shape: Option<ShapeId>,
}

impl Candidate {
    /// A holder as the candidate it would be after [`Round::withdraw`].
    pub fn holder(rank: Rank) -> Self {
        Self {
            job: rank.job,
            rank,
            shape: None,
        }
    }
}

/// The first job of one group of the waiting line.
#[derive(Debug, Clone)]
struct Head {
    shape: ShapeId,
    slope: i64,
    gpus: u32,
    gpu_type: Option<dovetail_model::GpuTypeId>,
    spot: Spot,
    rank: Rank,
    /// So many more are looked up with the next one: the more were taken, the more.
    reach: u32,
    /// Most heads never get so far.
    ahead: Option<Box<Ahead>>,
}

/// Those of a group that were looked up already, the next one last.
#[derive(Debug, Clone, Default)]
struct Ahead(Vec<Spot>);

/// Jobs of a group that are looked up at once, at most.
const REACH: u32 = 64;

impl Head {
    /// Goes on to the next one of the group, if there is any. Nobody comes or leaves the line during a walk.
    fn advance(&mut self, state: &State) -> bool {
        let known = self.ahead.as_mut().and_then(|ahead| ahead.0.pop());
        let next = known.or_else(|| {
            let group = state.waiting.group(self.shape, self.slope);
            let mut behind = group.after(self.spot);
            let next = behind.next();
            if self.reach > 0 {
                let ahead = &mut self.ahead.get_or_insert_default().0;
                ahead.extend(behind.take(self.reach as usize));
                ahead.reverse();
            }
            self.reach = (self.reach * 2 + 1).min(REACH);
            next
        });
        let Some(next) = next else { return false };
        (self.spot, self.rank) = (next, next.rank(self.slope, state.now));
        true
    }

    /// Goes on to the next one that holds no GPUs, if there is any.
    fn skip_placed(&mut self, state: &State) -> bool {
        while state.known(self.rank.job).allocation.is_some() {
            if !self.advance(state) {
                return false;
            }
        }
        true
    }
}

/// A job that lost its GPUs in this round and may get GPUs again.
#[derive(Debug, Clone)]
struct Returned {
    rank: Rank,
    original: Allocation,
}

/// A holder in the order in which holders give way.
#[derive(Debug, Clone, Copy)]
struct Tail {
    rank: Rank,
    evicted: bool,
}

/// A point in the round to come back to.
#[derive(Debug, Clone, Copy)]
pub struct Checkpoint {
    draft: Mark,
    evicted: usize,
    restarted: usize,
}

/// One walk down the line. Nothing that is done here is carried out before the walk ends.
#[derive(Debug)]
pub struct Round<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) sizing: &'a mut dyn Sizing,
    pub(crate) grouping: &'a mut dyn Grouping,
    pub(crate) tenancy: &'a mut dyn Tenancy,
    pub(crate) placement: &'a mut dyn Placement,
    pub(crate) draft: Draft,
    /// The first job of every group still offered; made at the first look.
    heads: Option<Vec<Head>>,
    taken: Option<usize>,
    returned: Vec<Returned>,
    /// Everyone thrown out in this round, and everyone of those who started again, to take it back.
    evicted: Vec<JobId>,
    restarted: Vec<Returned>,
    tail: Vec<Tail>,
    tail_first: usize,
    cursors: Option<Vec<(i64, Option<Spot>)>>,
    wake: Option<Time>,
    kept_for: Option<Kept>,
    /// Jobs start only where they find enough.
    pub(crate) enough_only: bool,
    /// What jobs of each shape ask for, where that is the same for all of them.
    asks: Vec<Option<Ask>>,
    asks_by_shape: bool,
    /// Jobs thrown out in this round that were passed over since.
    dropped: Vec<Returned>,
    /// Where the first walk has left off: groups that were passed over, or that asked for more GPUs than were free.
    passed: Vec<Head>,
}

/// GPUs are kept for a job that does not fit yet, which should start at that moment, if it is known.
pub(crate) type Kept = (JobId, Option<Time>);

impl<'a> Round<'a> {
    pub(crate) fn new(
        state: &'a mut State,
        sizing: &'a mut dyn Sizing,
        grouping: &'a mut dyn Grouping,
        tenancy: &'a mut dyn Tenancy,
        placement: &'a mut dyn Placement,
    ) -> Self {
        Self {
            asks: Vec::new(),
            asks_by_shape: sizing.asks_by_shape(),
            state,
            sizing,
            grouping,
            tenancy,
            placement,
            draft: Draft::default(),
            heads: None,
            taken: None,
            returned: Vec::new(),
            evicted: Vec::new(),
            restarted: Vec::new(),
            tail: Vec::new(),
            tail_first: 0,
            cursors: None,
            wake: None,
            kept_for: None,
            enough_only: false,
            passed: Vec::new(),
            dropped: Vec::new(),
        }
    }

    /// Starts everyone who fits with less than enough, in order, on what the others have left.
    pub(crate) fn settle(&mut self) {
        self.enough_only = false;
        self.asks.clear();
        let mut heads = std::mem::take(&mut self.passed);
        heads.extend(self.heads.take().unwrap_or_default());
        heads.retain_mut(|head| head.skip_placed(self.state));
        (self.heads, self.taken) = (Some(heads), None);
        while let Some(candidate) = self.next_that_may_fit() {
            if self.start(&candidate).is_err() {
                self.pass_over(&candidate);
            }
        }
    }

    /// The moment of this round.
    pub fn now(&self) -> Time {
        self.state.now
    }

    /// The cluster as the draft has it.
    pub fn cluster(&self) -> &Cluster {
        &self.state.cluster
    }

    /// A job in line.
    pub fn job(&self, id: JobId) -> &Job {
        self.state.known(id)
    }

    /// The next job in line without GPUs: waiting, or thrown out earlier in this round.
    pub fn next_in_line(&mut self) -> Option<Candidate> {
        self.scan(false)
    }

    /// Like [`Round::next_in_line`], but jobs that ask for more GPUs than are free are not offered, now or later in the round.
    pub fn next_that_may_fit(&mut self) -> Option<Candidate> {
        self.scan(true)
    }

    fn scan(&mut self, only_fitting: bool) -> Option<Candidate> {
        let mut heads = match self.heads.take() {
            Some(heads) => heads,
            None => first_of_groups(self.state, only_fitting),
        };
        if let Some(i) = self.taken.take()
            && !heads[i].advance(self.state)
        {
            heads.swap_remove(i);
        }
        if only_fitting {
            let cluster = &self.state.cluster;
            let too_wide = |head: &mut Head| head.gpus > cluster.free_gpus(head.gpu_type);
            self.passed
                .extend(heads.extract_if(.., too_wide).filter(|_| self.enough_only));
        }
        let best = heads
            .iter()
            .enumerate()
            .min_by_key(|(_, h)| h.rank)
            .map(|(i, h)| (i, h.rank, h.shape));
        self.heads = Some(heads);
        let back = self.returned.iter().map(|r| r.rank).min();
        match (best, back) {
            (Some((i, rank, shape)), back) if back.is_none_or(|other| rank < other) => {
                self.taken = Some(i);
                Some(Candidate {
                    job: rank.job,
                    rank,
                    shape: Some(shape),
                })
            }
            (_, Some(rank)) => Some(Candidate {
                job: rank.job,
                rank,
                shape: None,
            }),
            (_, None) => None,
        }
    }

    /// Whether jobs start only where they find enough; those who do not are looked at again when the walk is over.
    pub fn is_choosy(&self) -> bool {
        self.enough_only
    }

    /// Offers no more jobs of the candidate's shape in this round. A job thrown out in this round is just dropped.
    pub fn pass_over(&mut self, candidate: &Candidate) {
        match candidate.shape {
            None => {
                let is_it = |r: &mut Returned| r.rank.job == candidate.job;
                self.dropped.extend(self.returned.extract_if(.., is_it));
            }
            Some(shape) => {
                self.taken = None;
                if let Some(heads) = &mut self.heads {
                    let gone = heads.extract_if(.., |h| h.shape == shape);
                    self.passed.extend(gone.filter(|_| self.enough_only));
                }
            }
        }
    }

    /// Offers everyone in line anew who holds no GPUs, if the tenancy refused someone what others may have left since. Only
    /// if anything has changed since the draft was `then`: otherwise the answers would be the same.
    pub fn look_again(&mut self, then: &Checkpoint) -> bool {
        if !self.tenancy.look_again() || self.draft.mark() == then.draft {
            return false;
        }
        (self.heads, self.taken) = (None, None);
        self.passed.clear();
        self.returned.append(&mut self.dropped);
        true
    }

    /// Gives the candidate GPUs, if there is a place for all of it. A job that was thrown out in this round gets its
    /// own GPUs back where they are still free.
    ///
    /// # Errors
    /// Says why there is no place.
    pub fn start(&mut self, candidate: &Candidate) -> Result<(), Reason> {
        let back = self.position_in_returned(candidate);
        let own = back.map(|i| self.returned[i].original.clone());
        let allocation = match own.filter(|own| self.may_have_back(candidate.job, own)) {
            Some(own) => own,
            None => self.find_place(candidate)?,
        };
        self.give(candidate, back, allocation, false);
        Ok(())
    }

    /// Whether what a job lost in this round is still free, and its tenant may still use it.
    fn may_have_back(&mut self, id: JobId, own: &Allocation) -> bool {
        self.state.cluster.is_free(own) && self.tenancy.may_use(self.state.known(id), own)
    }

    /// Like [`Round::start`], but a job that was thrown out in this round is placed like any other.
    ///
    /// # Errors
    /// Says why there is no place.
    pub fn start_anywhere(&mut self, candidate: &Candidate) -> Result<(), Reason> {
        let allocation = self.find_place(candidate)?;
        self.give(candidate, self.position_in_returned(candidate), allocation, false);
        Ok(())
    }

    /// GPUs for the candidate that others hold, at least some of them, as the grouping chooses. A job that was thrown
    /// out in this round gets its own place back if only those are there who shared it.
    pub fn beside(&mut self, candidate: &Candidate) -> Option<Allocation> {
        if !self.grouping.terms().overlap {
            return None;
        }
        let job = self.state.known(candidate.job);
        if let Some(i) = self.position_in_returned(candidate) {
            let own = &self.returned[i].original;
            if self.is_as_left(own, job.spec.gpu_memory_mib) {
                return Some(own.clone());
            }
        }
        self.find_beside(candidate.job)
    }

    /// GPUs that others hold, as the grouping chooses.
    pub(crate) fn find_beside(&mut self, id: JobId) -> Option<Allocation> {
        let job = self.state.known(id);
        let ask = self.sizing.ask(job, &self.state.cluster);
        let view = Sharers::new(self.state);
        let found = self.grouping.beside(job, &ask, &view, self.state.now)?;
        let suits = found.is_in_bundles_of(ask.gpus_per_task)
            && !self.state.cluster.is_withheld(&found)
            && self.tenancy.may_use(job, &found);
        suits.then_some(found)
    }

    /// Whether a place that was lost in this round still has room, and nobody came to it in this round.
    pub(crate) fn is_as_left(&self, place: &Allocation, gpu_memory_mib: u64) -> bool {
        let view = Sharers::new(self.state);
        let most = self.grouping.terms().most as usize;
        self.state.cluster.has_room_beside(place, gpu_memory_mib)
            && place.shares.iter().all(|share| {
                let others = |slot| view.on(share.node, slot);
                let is_old = |id: &JobId| self.state.known(*id).is_up();
                share
                    .gpus
                    .iter()
                    .all(|slot| others(slot).len() < most && others(slot).iter().all(is_old))
            })
    }

    /// Gives the candidate GPUs that others may hold, as [`Round::beside`] found them.
    pub fn start_beside(&mut self, candidate: &Candidate, allocation: Allocation) {
        let back = self.position_in_returned(candidate);
        self.give(candidate, back, allocation, true);
    }

    fn position_in_returned(&self, candidate: &Candidate) -> Option<usize> {
        match candidate.shape {
            Some(_) => None,
            None => self.returned.iter().position(|r| r.rank.job == candidate.job),
        }
    }

    fn give(&mut self, candidate: &Candidate, back: Option<usize>, allocation: Allocation, share: bool) {
        if let Some(i) = back {
            self.restarted.push(self.returned.swap_remove(i));
        }
        self.draft
            .assign(self.state, self.tenancy, candidate.job, allocation, share);
    }

    /// What to ask the placement for.
    fn ask(&mut self, candidate: &Candidate) -> Ask {
        let shape = candidate.shape.filter(|_| self.asks_by_shape).map(Id::index);
        let known = shape.and_then(|shape| *self.asks.get(shape)?);
        if let Some(known) = known {
            return Ask {
                job: candidate.job,
                ..known
            };
        }
        let job = self.state.known(candidate.job);
        let mut ask = self.sizing.ask(job, &self.state.cluster);
        if self.enough_only {
            ask.enough = self.sizing.enough(job, &self.state.cluster);
        }
        if let Some(shape) = shape {
            self.asks.resize(self.asks.len().max(shape + 1), None);
            self.asks[shape] = Some(ask);
        }
        ask
    }

    fn find_place(&mut self, candidate: &Candidate) -> Result<Allocation, Reason> {
        let ask = self.ask(candidate);
        let job = self.state.known(candidate.job);
        let free = self.state.cluster.free_gpus(ask.gpu_type);
        if free < ask.gpus && !self.tenancy.limits() {
            return Err(Reason::NotEnoughFreeGpus {
                asked: ask.gpus,
                free,
            });
        }
        self.tenancy.place(job, &ask, &self.state.cluster, self.placement)
    }

    /// The holder that stands last in line, behind the candidate, that `may_go` and the tenancy allow to be thrown out.
    pub fn last_behind(&mut self, candidate: &Candidate, may_go: impl Fn(&Job) -> bool) -> Option<JobId> {
        let mut i = self.tail_first;
        loop {
            if i == self.tail.len() && !self.lengthen_tail() {
                return None;
            }
            let tail = self.tail[i];
            if tail.rank <= candidate.rank {
                return None;
            }
            if !tail.evicted {
                let victim = self.state.known(tail.rank.job);
                if may_go(victim) && self.tenancy.may_evict(self.state.known(candidate.job), victim) {
                    return Some(tail.rank.job);
                }
            }
            i += 1;
        }
    }

    /// Whether any holder stands behind the candidate, be it one that may be thrown out for it or not: where none does,
    /// none stands behind later candidates either.
    pub fn anyone_behind(&mut self, candidate: &Candidate) -> bool {
        let mut i = self.tail_first;
        loop {
            if i == self.tail.len() && !self.lengthen_tail() {
                return false;
            }
            let tail = self.tail[i];
            if tail.rank <= candidate.rank {
                return false;
            }
            if !tail.evicted {
                return true;
            }
            i += 1;
        }
    }

    /// Looks at one more holder from the end of the line.
    fn lengthen_tail(&mut self) -> bool {
        let Some(rank) = self.pull_tail() else {
            return false;
        };
        let evicted = self.evicted.contains(&rank.job);
        self.tail.push(Tail { rank, evicted });
        true
    }

    /// Whether enough GPUs are free, or held by jobs behind the candidate that `may_go` lets go. Under a tenancy with limits
    /// this is a guess that may be too high: who has to go beside others is known only when those have gone.
    pub fn enough_behind(&mut self, candidate: &Candidate, may_go: impl Fn(&Job) -> bool) -> bool {
        let job = self.state.known(candidate.job);
        let ask = self.sizing.ask(job, &self.state.cluster);
        let mut gpus = self.state.cluster.free_gpus(ask.gpu_type);
        let mut i = self.tail_first;
        while gpus < ask.gpus {
            if i == self.tail.len() && !self.lengthen_tail() {
                return false;
            }
            let tail = self.tail[i];
            if tail.rank <= candidate.rank {
                return false;
            }
            if !tail.evicted {
                let victim = self.state.known(tail.rank.job);
                let counts =
                    self.tenancy.limits() || self.tenancy.may_evict(self.state.known(candidate.job), victim);
                if may_go(victim) && counts {
                    gpus += victim.width();
                }
            }
            i += 1;
        }
        true
    }

    /// The next worst holder among those not looked at yet: the largest end of all groups.
    fn pull_tail(&mut self) -> Option<Rank> {
        let (state, now) = (&*self.state, self.state.now);
        let cursors = self
            .cursors
            .get_or_insert_with(|| state.holding.groups().map(|g| (g.slope, g.last())).collect());
        let (i, rank) = cursors
            .iter()
            .enumerate()
            .filter_map(|(i, (slope, spot))| spot.map(|s| (i, s.rank(*slope, now))))
            .max_by_key(|(_, rank)| *rank)?;
        let (slope, spot) = cursors[i];
        cursors[i].1 = spot.and_then(|s| state.holding.group((), slope).before(s));
        Some(rank)
    }

    /// Takes a holder's GPUs away, in the draft. It is offered again in its place in line.
    pub fn evict(&mut self, victim: JobId) {
        let original = self.draft.unassign(self.state, self.tenancy, victim);
        let position = (self.tail_first..self.tail.len()).find(|i| self.tail[*i].rank.job == victim);
        let position = position.expect("a victim was named by last_behind");
        self.tail[position].evicted = true;
        while self.tail.get(self.tail_first).is_some_and(|t| t.evicted) {
            self.tail_first += 1;
        }
        self.evicted.push(victim);
        self.returned.push(Returned {
            rank: self.tail[position].rank,
            original,
        });
    }

    /// Takes a holder's GPUs away, wherever it stands in line, in the draft. Returns it as a candidate: it may start
    /// again, on its own GPUs where these are still free.
    pub fn withdraw(&mut self, holder: Rank) -> Candidate {
        let original = self.draft.unassign(self.state, self.tenancy, holder.job);
        if let Some(tail) = self.tail.iter_mut().find(|t| t.rank.job == holder.job) {
            tail.evicted = true;
        }
        self.evicted.push(holder.job);
        self.returned.push(Returned {
            rank: holder,
            original,
        });
        Candidate::holder(holder)
    }

    /// Here.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            draft: self.draft.mark(),
            evicted: self.evicted.len(),
            restarted: self.restarted.len(),
        }
    }

    /// Undoes all evictions and starts since the checkpoint.
    pub fn rollback(&mut self, checkpoint: Checkpoint) {
        self.draft.rollback(self.state, self.tenancy, checkpoint.draft);
        self.returned.extend(self.restarted.drain(checkpoint.restarted..));
        for job in self.evicted.drain(checkpoint.evicted..) {
            self.returned.retain(|r| r.rank.job != job);
            self.dropped.retain(|r| r.rank.job != job);
            if let Some(i) = self.tail.iter().position(|t| t.rank.job == job) {
                self.tail[i].evicted = false;
                self.tail_first = self.tail_first.min(i);
            }
        }
    }

    /// All jobs that hold GPUs, best first.
    pub fn holders(&self) -> Vec<Rank> {
        self.state.holding.sorted(self.state.now)
    }

    /// All jobs in line, waiting or holding, best first.
    pub fn everyone(&self) -> Vec<Rank> {
        let mut all = self.state.holding.sorted(self.state.now);
        all.extend(self.state.waiting.sorted(self.state.now));
        all.sort_unstable();
        all
    }

    /// Jobs that wait in line, best first: all that hold no GPUs and have none to give up. They can be started in any
    /// turn, but [`Round::next_in_line`] does not know of it: a walk takes its candidates from here or from there.
    pub fn waiting(&self) -> Vec<Candidate> {
        let all = self.state.waiting.sorted(self.state.now);
        let candidate = |rank: Rank| Candidate {
            job: rank.job,
            rank,
            shape: Some(self.state.known(rank.job).shape),
        };
        all.into_iter().map(candidate).collect()
    }

    /// Asks for another decision at this moment, whatever happens until then.
    pub fn wake_at(&mut self, at: Time) {
        self.wake = Some(self.wake.map_or(at, |w| w.min(at)));
    }

    /// Says that GPUs are kept for the candidate, so that jobs behind it can be told why they wait.
    pub fn keep_for(&mut self, candidate: &Candidate, expected_start: Option<Time>) {
        self.kept_for = Some((candidate.job, expected_start));
    }

    pub(crate) fn finish(self) -> (Draft, Option<Time>, Option<Kept>) {
        (self.draft, self.wake, self.kept_for)
    }
}

/// The first job of every group of the waiting line, of those that may fit if so asked.
fn first_of_groups(state: &State, only_fitting: bool) -> Vec<Head> {
    if only_fitting && state.cluster.free_gpus(None) == 0 {
        return Vec::new();
    }
    let head = |group: crate::lineup::Group<'_, ShapeId>| {
        let shape = state.shapes.get(group.key);
        if only_fitting && shape.gpus > state.cluster.free_gpus(shape.gpu_type) {
            return None;
        }
        let spot = group.first()?;
        let mut head = Head {
            shape: group.key,
            slope: group.slope,
            gpus: shape.gpus,
            gpu_type: shape.gpu_type,
            spot,
            rank: spot.rank(group.slope, state.now),
            reach: 0,
            ahead: None,
        };
        // On another look at the line its first ones may have been given GPUs.
        head.skip_placed(state).then_some(head)
    };
    state.waiting.groups().filter_map(head).collect()
}
