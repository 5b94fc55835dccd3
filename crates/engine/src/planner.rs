//! The plan of one decision: the state with a draft on top, and the parts that size, group and place jobs.

use dovetail_model::ids::Id;
use dovetail_model::{Allocation, JobKey, Reason};

use crate::draft::{Draft, Mark};
use crate::job::Job;
use crate::occupancy::Occupancy;
use crate::parts::{Ask, Claim, Grouping, Placement, Sizing, Tenancy};
use crate::queue_key::Rank;
use crate::round::Candidate;
use crate::shape::ShapeId;
use crate::state::State;

/// The parts that turn a candidate into an allocation.
#[derive(Debug)]
pub(crate) struct Steps<'a> {
    pub(crate) size: &'a mut dyn Sizing,
    pub(crate) group: &'a mut dyn Grouping,
    pub(crate) limit: &'a mut dyn Tenancy,
    pub(crate) place: &'a mut dyn Placement,
}

/// The plan of one decision. Its changes are applied to the state at once, and undone by a rollback.
#[derive(Debug)]
pub struct Planner<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) steps: Steps<'a>,
    pub(crate) draft: Draft,
    asks: AskCache,
}

/// The asks of all shapes, where the sizing asks the same for all jobs of a shape.
#[derive(Debug, Default)]
struct AskCache {
    by_shape: bool,
    asks: Vec<Option<Ask>>,
    /// Whether jobs start only where they find their headroom.
    require_headroom: bool,
}

impl AskCache {
    fn get(&self, shape: Option<ShapeId>) -> Option<Ask> {
        *self.asks.get(shape.filter(|_| self.by_shape)?.index())?
    }

    fn insert(&mut self, shape: Option<ShapeId>, ask: Ask) {
        if let Some(shape) = shape.filter(|_| self.by_shape).map(Id::index) {
            self.asks.resize(self.asks.len().max(shape + 1), None);
            self.asks[shape] = Some(ask);
        }
    }
}

impl<'a> Planner<'a> {
    pub(crate) fn new(state: &'a mut State, steps: Steps<'a>) -> Self {
        let asks = AskCache {
            by_shape: steps.size.asks_by_shape(),
            ..AskCache::default()
        };
        Self {
            state,
            steps,
            draft: Draft::default(),
            asks,
        }
    }

    pub(crate) fn job(&self, id: JobKey) -> &Job {
        self.state.job(id)
    }

    /// Returns all jobs that hold GPUs, in queue order.
    pub(crate) fn holders(&self) -> Vec<Rank> {
        self.state.queues.holders.sorted(self.state.now)
    }

    /// Returns all jobs, queued or holding GPUs, in queue order.
    pub(crate) fn all_jobs(&self) -> Vec<Rank> {
        let mut all = self.holders();
        all.extend(self.state.queues.queued.sorted(self.state.now));
        all.sort_unstable();
        all
    }

    /// Whether jobs start only where they find their headroom.
    pub(crate) fn requires_headroom(&self) -> bool {
        self.asks.require_headroom
    }

    pub(crate) fn require_headroom(&mut self, required: bool) {
        self.asks.require_headroom = required;
        self.asks.asks.clear();
    }

    /// Sizes a job alone: what to ask the placement for.
    pub(crate) fn ask(&self, id: JobKey) -> Ask {
        self.steps.size.ask(self.state.job(id), &self.state.cluster)
    }

    /// Sizes a candidate, with the headroom it needs if headroom is required.
    pub(crate) fn ask_for(&mut self, candidate: &Candidate) -> Ask {
        if let Some(ask) = self.asks.get(candidate.shape) {
            return Ask {
                job: candidate.job,
                ..ask
            };
        }
        let mut ask = self.ask(candidate.job);
        if self.asks.require_headroom
            && let Some(filling) = self.steps.size.filling()
        {
            ask.headroom = filling.headroom(self.state.job(candidate.job), &self.state.cluster);
        }
        self.asks.insert(candidate.shape, ask);
        ask
    }

    /// Finds GPUs for a job.
    pub(crate) fn place(&mut self, id: JobKey, ask: &Ask) -> Result<Allocation, Reason> {
        let Steps { limit, place, .. } = &mut self.steps;
        limit.place(self.state.job(id), ask, &self.state.cluster, *place)
    }

    /// Finds GPUs for a candidate.
    pub(crate) fn place_candidate(&mut self, candidate: &Candidate) -> Result<Allocation, Reason> {
        let ask = self.ask_for(candidate);
        let free = self.state.cluster.free_gpus(ask.gpu_type);
        if free < ask.gpus && !self.steps.limit.has_limits() {
            return Err(Reason::NotEnoughFreeGpus {
                asked: ask.gpus,
                free,
            });
        }
        self.place(candidate.job, &ask)
    }

    /// Finds GPUs held by other jobs, as the grouping chooses.
    pub(crate) fn place_beside(&mut self, id: JobKey) -> Option<Allocation> {
        let ask = self.ask(id);
        let job = self.state.job(id);
        let occupancy = Occupancy::new(self.state);
        let found = self
            .steps
            .group
            .place_beside(job, &ask, &occupancy, self.state.now)?;
        let usable = found.is_in_bundles_of(ask.gpus_per_task)
            && !self.state.cluster.is_unavailable(&found)
            && self.steps.limit.may_use(job, &found);
        usable.then_some(found)
    }

    /// Whether the GPUs a job lost in this decision are still free, and its tenant may still use them.
    pub(crate) fn may_return_to(&mut self, id: JobKey, lost: &Allocation) -> bool {
        self.state.cluster.is_free(lost) && self.steps.limit.may_use(self.state.job(id), lost)
    }

    /// Whether shared GPUs that a job lost in this decision still have room, and no other job was placed there since.
    pub(crate) fn has_room_as_before(&self, lost: &Allocation, gpu_memory_mib: u64) -> bool {
        let occupancy = Occupancy::new(self.state);
        let max_jobs = self.steps.group.terms().max_jobs as usize;
        self.state.cluster.has_room_beside(lost, gpu_memory_mib)
            && lost.shares.iter().all(|share| {
                let others = |slot| occupancy.jobs_on(share.node, slot);
                let was_there = |id: &JobKey| self.state.job(*id).holds_gpus();
                share
                    .gpus
                    .iter()
                    .all(|slot| others(slot).len() < max_jobs && others(slot).iter().all(was_there))
            })
    }

    /// Gives GPUs to a job that holds none; with `share`, other jobs may hold them already.
    pub fn assign(&mut self, job: JobKey, allocation: Allocation, share: bool) {
        self.draft
            .assign(self.state, self.steps.limit, job, allocation, share);
    }

    /// Takes the GPUs of a job away and returns them.
    pub(crate) fn unassign(&mut self, job: JobKey) -> Allocation {
        self.draft.unassign(self.state, self.steps.limit, job)
    }

    pub(crate) fn rollback(&mut self, mark: Mark) {
        self.draft.rollback(self.state, self.steps.limit, mark);
    }

    /// Takes the GPUs of all jobs away, for a plan from scratch. A job that gets the same GPUs again is not disturbed.
    pub fn release_all(&mut self) {
        for holder in self.holders() {
            self.unassign(holder.job);
        }
    }

    /// Groups these jobs, in this order, each at its own width.
    pub fn group(&mut self, queue: &[JobKey]) -> Vec<Claim> {
        let gpus = self.state.cluster.total_gpus(None);
        let state = &*self.state;
        let sized: Vec<(&Job, u32)> = queue
            .iter()
            .map(|id| (state.job(*id), self.ask(*id).gpus))
            .collect();
        let grouping = &mut *self.steps.group;
        grouping.observe(&state.cluster, state.group_factors.as_ref());
        grouping.group(&sized, gpus, state.now)
    }

    /// Places all members of a claim, none of which holds GPUs, on one set of GPUs.
    ///
    /// # Errors
    /// Returns the reason when no placement exists.
    pub fn place_claim(&mut self, claim: &Claim) -> Result<(), Reason> {
        let ask = self.ask_for_claim(claim);
        let place = self.place(claim.members[0], &ask)?;
        for (i, member) in claim.members.iter().enumerate() {
            let share = with_share_of(&place, &self.ask(*member));
            let constraint = self.state.job(*member).spec.constraint;
            if i == 0 || self.state.cluster.admits(&share, constraint) {
                self.assign(*member, share, i > 0);
            }
        }
        Ok(())
    }

    /// Sizes a claim: the ask of its first member, with GPU memory and tasks that suit all members.
    pub(crate) fn ask_for_claim(&self, claim: &Claim) -> Ask {
        let gpu_memory = |m: &JobKey| self.state.job(*m).spec.gpu_memory_mib;
        Ask {
            gpus: claim.gpus,
            gpus_per_task: self.gpus_per_task(claim),
            gpu_memory_mib: claim.members.iter().map(gpu_memory).sum(),
            ..self.ask(claim.members[0])
        }
    }

    /// Returns the task size that suits all members of a claim: the least common multiple of theirs, at most the claim.
    fn gpus_per_task(&self, claim: &Claim) -> u32 {
        let sizes = claim
            .members
            .iter()
            .map(|m| self.state.job(*m).spec.gpus_per_task);
        sizes.fold(1, |all, one| {
            let (all, one) = (u64::from(all), u64::from(one.max(1)));
            let common = all / common_divisor(all, one) * one;
            u32::try_from(common).unwrap_or(u32::MAX).min(claim.gpus.max(1))
        })
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Whether both name the same GPUs, regardless of CPU and memory.
pub(crate) fn same_gpus(a: &Allocation, b: &Allocation) -> bool {
    a.shares.len() == b.shares.len()
        && a.shares
            .iter()
            .zip(&b.shares)
            .all(|(x, y)| x.node == y.node && x.gpus == y.gpus)
}

/// Returns the same GPUs with the CPU and memory of this ask.
pub(crate) fn with_share_of(allocation: &Allocation, ask: &Ask) -> Allocation {
    let mut sized = allocation.clone();
    for share in &mut sized.shares {
        let gpus = share.gpus.count();
        share.cpu_milli = ask.cpu_milli_per_gpu * gpus;
        share.memory_mib = ask.memory_mib_per_gpu * u64::from(gpus);
    }
    sized
}
