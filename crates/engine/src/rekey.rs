//! Keeping the sort keys of jobs, and with them the queues, up to date.

use dovetail_model::{JobKey, Time};

use crate::job::Job;
use crate::job_queues::{JobQueues, Membership, Moves};
use crate::load::ClusterLoad;
use crate::parts::{QueueOrder, Tenancy};
use crate::queue_key::QueueKey;
use crate::shape::Shape;
use crate::state::{Entry, State};

impl State {
    /// Requests that the sort key of the job is computed again before the next decision.
    pub(crate) fn mark_stale(&mut self, id: JobKey) {
        let entry = self.entry(id);
        if !entry.stale {
            entry.stale = true;
            self.stale.push(id);
        }
    }

    /// Requests a new sort key for a job that holds GPUs, if holders are kept sorted.
    pub(crate) fn holder_changed(&mut self, id: JobKey) {
        if self.keep_holders {
            self.mark_stale(id);
        }
    }

    /// Requests that the sort keys of all jobs in the queues are computed again.
    pub(crate) fn mark_all_stale(&mut self) {
        let queued = self.queues.queued.jobs();
        let all: Vec<JobKey> = queued.chain(self.queues.holders.jobs()).collect();
        all.into_iter().for_each(|id| self.mark_stale(id));
    }

    /// Marks every job whose sort key has expired.
    pub(crate) fn expire_keys(&mut self) {
        while let Some((until, id)) = self.queues.expiries.first().copied() {
            if until > self.now {
                break;
            }
            self.queues.expiries.pop_first();
            self.entry(id).job.sort_key.until = None;
            self.mark_stale(id);
        }
    }

    /// Returns when the first key expired that was not renewed since, if a job waits.
    pub(crate) fn overdue(&self) -> Option<Time> {
        let expiry = self.queues.expiries.first().map(|(at, _)| *at);
        expiry.filter(|at| *at <= self.now && self.idle_jobs > 0)
    }

    /// Takes a job out of the queue it is in.
    pub(crate) fn leave_queue(&mut self, id: JobKey) {
        self.leave_queues(&[id]);
    }

    /// Takes jobs out of the queues they are in.
    pub(crate) fn leave_queues(&mut self, ids: &[JobKey]) {
        let mut moves = Moves::for_count(ids.len());
        for id in ids {
            let entry = self.jobs[*id].as_mut().expect("a queued job is in the table");
            self.queues.leave(entry, &mut moves);
        }
        self.queues.finish(moves);
    }

    /// Computes all stale sort keys and moves the jobs to their new positions.
    pub(crate) fn update_keys(&mut self, order: &dyn QueueOrder, tenancy: &dyn Tenancy) {
        let mut stale = std::mem::take(&mut self.stale);
        let rekey = Rekey {
            order,
            tenancy,
            load: (order.depends_on_all_jobs() && !stale.is_empty()).then(|| self.load()),
            now: self.now,
            keep_holders: self.keep_holders,
        };
        let mut moves = Moves::for_count(stale.len());
        for id in stale.drain(..) {
            if let Some(entry) = self.jobs[id].as_mut() {
                entry.stale = false;
                rekey.update(entry, &mut self.queues, &mut moves);
            }
        }
        self.stale = stale;
        self.queues.finish(moves);
    }
}

/// What the sort keys of jobs depend on at one moment.
struct Rekey<'a> {
    order: &'a dyn QueueOrder,
    tenancy: &'a dyn Tenancy,
    /// The load of the cluster, where the order depends on it.
    load: Option<ClusterLoad>,
    now: Time,
    keep_holders: bool,
}

impl Rekey<'_> {
    /// Computes the sort key of a job and moves it to its queue.
    fn update(&self, entry: &mut Entry, queues: &mut JobQueues, moves: &mut Moves) {
        let to = match (entry.job.is_queued(), entry.job.allocation.is_some()) {
            (true, _) => Membership::Queued,
            (false, true) if self.keep_holders => Membership::Holder,
            _ => return queues.leave(entry, moves),
        };
        let sort_key = self.sort_key(&entry.job);
        if self.load.is_some()
            && entry.membership == to
            && entry.job.sort_key == sort_key
            && sort_key.until.is_none()
        {
            return;
        }
        queues.leave(entry, moves);
        let job = &mut entry.job;
        if sort_key.fresh_start {
            job.forgiven = job.gpu_time(self.now);
        }
        job.order_note = sort_key.note.unwrap_or(job.order_note);
        job.sort_key = sort_key;
        if to == Membership::Queued {
            let shape = Shape::of(&job.spec, self.tenancy.shape_key(&job.spec));
            job.shape = queues.shapes.id(shape);
        }
        queues.enter(entry, to, moves);
    }

    /// Returns the key of the order, behind those of more important classes.
    fn sort_key(&self, job: &Job) -> QueueKey {
        let key = match &self.load {
            Some(load) => self.order.key_under_load(job, load, self.now),
            None => self.order.key(job, self.now),
        };
        let key = key.at_place(job.spec.place);
        let best_effort = u8::from(job.spec.best_effort);
        match self.tenancy.has_limits() {
            true => key.of_class(2 * self.tenancy.class(&job.spec) as u8 + best_effort),
            false if job.spec.best_effort => key.of_class(1),
            false => key,
        }
    }
}
