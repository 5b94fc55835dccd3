//! Everything the engine remembers, and the small steps that keep it consistent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dovetail_model::ids::IdVec;
use dovetail_model::{Allocation, JobId, JobSpec, Slowdowns, TenantId, Time, UserId};
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::crowd::Crowd;
use crate::job::{Job, Stage};
use crate::lineup::{Lineup, Places};
use crate::node_set::NodeSet;
use crate::parts::{Order, Policy, Tenancy};
use crate::shape::{Shape, ShapeId, Shapes};
use crate::sharers::Occupants;

/// GPUs asked for by the jobs that were let in and are not done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// By all.
    pub gpus: u64,
    by_tenant: IdVec<TenantId, u64>,
    by_user: IdVec<UserId, u64>,
}

impl Demand {
    /// By one tenant.
    pub fn of_tenant(&self, tenant: TenantId) -> u64 {
        self.by_tenant.get(tenant).copied().unwrap_or(0)
    }

    /// By one user.
    pub fn of_user(&self, user: UserId) -> u64 {
        self.by_user.get(user).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, job: &JobSpec) {
        self.gpus += u64::from(job.gpus);
        *self.by_tenant.entry(job.tenant) += u64::from(job.gpus);
        *self.by_user.entry(job.user) += u64::from(job.gpus);
    }

    pub(crate) fn remove(&mut self, job: &JobSpec) {
        self.gpus -= u64::from(job.gpus);
        *self.by_tenant.entry(job.tenant) -= u64::from(job.gpus);
        *self.by_user.entry(job.user) -= u64::from(job.gpus);
    }
}

/// Which line-up a job stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Seat {
    #[default]
    None,
    Waiting,
    Holding,
}

/// The job table entry: the job, its seat, and whether its line is to be drawn anew.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) job: Job,
    pub(crate) seat: Seat,
    pub(crate) stale: bool,
}

/// Everything the engine remembers. Sorted line-ups are rebuilt from the jobs after a snapshot.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct State {
    pub(crate) now: Time,
    pub(crate) jobs: IdVec<JobId, Option<Box<Entry>>>,
    /// The nodes.
    pub cluster: Cluster,
    pub(crate) demand: Demand,
    pub(crate) inbox: Vec<JobId>,
    pub(crate) held: BTreeMap<u64, VecDeque<JobId>>,
    /// Jobs that were placed and wait for their GPUs to be really free, by id.
    pub(crate) pending: BTreeSet<JobId>,
    pub(crate) idle_jobs: u32,
    pub(crate) idle_gpus: u64,
    pub(crate) holding_jobs: u32,
    /// Jobs alive × time up to `job_time_at`.
    pub(crate) job_time: i128,
    pub(crate) job_time_at: Time,
    #[serde(skip)]
    pub(crate) shapes: Shapes,
    #[serde(skip)]
    pub(crate) waiting: Lineup<ShapeId>,
    #[serde(skip)]
    pub(crate) holding: Lineup<()>,
    #[serde(skip)]
    pub(crate) expiries: BTreeSet<(Time, JobId)>,
    pub(crate) stale: Vec<JobId>,
    #[serde(skip)]
    pub(crate) keep_holders: bool,
    /// Whether CPU and memory change with who is beside whom.
    #[serde(skip)]
    pub(crate) fills: bool,
    /// Nodes where someone came or went since what is left there was last shared out.
    #[serde(default)]
    pub(crate) touched: NodeSet,
    #[serde(skip)]
    pub(crate) occupants: Occupants,
    /// What was measured of jobs that share GPUs.
    #[serde(default)]
    pub(crate) slowdowns: Slowdowns,
}

/// Jobs that change their places in line, where they are many.
#[derive(Debug, Default)]
struct Moves {
    many: bool,
    from_waiting: Places<ShapeId>,
    from_holding: Places<()>,
    to_waiting: Places<ShapeId>,
    to_holding: Places<()>,
}

impl Moves {
    /// So many may move.
    fn of(count: usize) -> Self {
        Self {
            many: count >= 256,
            ..Self::default()
        }
    }

    /// All of them leave and come, together.
    fn carry_out(self, waiting: &mut Lineup<ShapeId>, holding: &mut Lineup<()>) {
        if !self.many {
            return;
        }
        waiting.remove_all(self.from_waiting);
        holding.remove_all(self.from_holding);
        waiting.insert_all(self.to_waiting);
        holding.insert_all(self.to_holding);
    }
}

impl State {
    /// Keeps the books this policy looks into, and no others.
    pub(crate) fn suit(&mut self, policy: &Policy) {
        self.keep_holders = policy.discipline.looks_at_holders();
        self.fills = policy.sizing.fills();
        self.occupants.kept = policy.grouping.terms().overlap || self.fills;
    }

    /// The job, while it lives.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(id)?.as_ref().map(|e| &e.job)
    }

    pub(crate) fn known(&self, id: JobId) -> &Job {
        self.job(id).expect("a job that is dealt with is in the table")
    }

    pub(crate) fn entry(&mut self, id: JobId) -> &mut Entry {
        self.jobs[id]
            .as_mut()
            .expect("a job that is dealt with is in the table")
    }

    /// Jobs that live, in order of submission.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values().filter_map(|e| e.as_ref().map(|e| &e.job))
    }

    /// How crowded it is, now and so far.
    pub(crate) fn crowd(&self) -> Crowd {
        Crowd {
            jobs: self.idle_jobs + self.holding_jobs,
            gpus: self.cluster.nodes().map(|(_, node)| node.spec.gpus).sum(),
            job_time: self.job_time_now(),
        }
    }

    fn job_time_now(&self) -> i128 {
        let jobs = i128::from(self.idle_jobs + self.holding_jobs);
        self.job_time + jobs * i128::from(self.now.since(self.job_time_at).0)
    }

    /// Brings the books of the crowd up to this moment; to be called before the number of jobs changes.
    pub(crate) fn count_crowd(&mut self) {
        self.job_time = self.job_time_now();
        self.job_time_at = self.now;
    }

    /// Asks for the lines of all jobs in line to be drawn anew.
    pub(crate) fn mark_all_stale(&mut self) {
        let waiting = self.waiting.jobs().collect::<Vec<JobId>>();
        let holding = self.holding.jobs().collect::<Vec<JobId>>();
        waiting
            .into_iter()
            .chain(holding)
            .for_each(|id| self.mark_stale(id));
    }

    /// Asks for the job's line to be drawn anew before the next decision.
    pub(crate) fn mark_stale(&mut self, id: JobId) {
        let entry = self.entry(id);
        if !entry.stale {
            entry.stale = true;
            self.stale.push(id);
        }
    }

    /// Takes the job out of whatever line-up it stands in.
    pub(crate) fn unseat(&mut self, id: JobId) {
        self.leave(id, &mut Moves::default());
    }

    /// The same; where many move, the lines are left later, by all of them together.
    fn leave(&mut self, id: JobId, moves: &mut Moves) {
        let entry = self.jobs[id]
            .as_mut()
            .expect("a job that stands in line is in the table");
        match entry.seat {
            Seat::None => return,
            Seat::Waiting => {
                let (shape, line) = (entry.job.shape, &entry.job.line);
                match moves.many {
                    true => moves.from_waiting.push(shape, line, id),
                    false => self.waiting.remove(shape, line, id),
                }
            }
            Seat::Holding => match moves.many {
                true => moves.from_holding.push((), &entry.job.line, id),
                false => self.holding.remove((), &entry.job.line, id),
            },
        }
        entry.seat = Seat::None;
        if let Some(until) = entry.job.line.until {
            self.expiries.remove(&(until, id));
        }
    }

    /// Takes all these jobs out of the line-ups they stand in.
    pub(crate) fn unseat_all(&mut self, ids: &[JobId]) {
        let mut moves = Moves::of(ids.len());
        ids.iter().for_each(|id| self.leave(*id, &mut moves));
        moves.carry_out(&mut self.waiting, &mut self.holding);
    }

    /// Whether a line is to be drawn anew.
    pub(crate) fn has_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// Draws all stale lines anew and puts the jobs where they belong.
    pub(crate) fn reseat(&mut self, order: &dyn Order, tenancy: &dyn Tenancy) {
        let mut stale = std::mem::take(&mut self.stale);
        let crowd = (order.looks_at_crowd() && !stale.is_empty()).then(|| self.crowd());
        let mut moves = Moves::of(stale.len());
        for id in stale.drain(..) {
            if self.jobs[id].is_none() {
                continue;
            }
            let now = self.now;
            let keep_holders = self.keep_holders;
            let entry = self.jobs[id].as_mut().expect("looked at above");
            entry.stale = false;
            let seat = match (entry.job.is_waiting(), entry.job.allocation.is_some()) {
                (true, _) => Seat::Waiting,
                (false, true) if keep_holders => Seat::Holding,
                _ => {
                    self.leave(id, &mut moves);
                    continue;
                }
            };
            let line = match &crowd {
                Some(crowd) => order.line_among(&entry.job, crowd, now),
                None => order.line(&entry.job, now),
            };
            let spec = &entry.job.spec;
            let line = match (tenancy.limits(), spec.spare) {
                (false, false) => line,
                (true, _) => line.of_class(2 * tenancy.class(spec) + u8::from(spec.spare)),
                (false, true) => line.of_class(1),
            };
            if crowd.is_some() && entry.seat == seat && entry.job.line == line && line.until.is_none() {
                continue;
            }
            self.leave(id, &mut moves);
            let entry = self.jobs[id].as_mut().expect("looked at above");
            if line.fresh_start {
                entry.job.forgiven = entry.job.gpu_time(now);
            }
            entry.job.remembered = line.remember.unwrap_or(entry.job.remembered);
            entry.job.line = line;
            entry.seat = seat;
            if seat == Seat::Waiting {
                entry.job.shape = self
                    .shapes
                    .id(Shape::of(&entry.job.spec, tenancy.shape_key(&entry.job.spec)));
                match moves.many {
                    true => moves.to_waiting.push(entry.job.shape, &line, id),
                    false => self.waiting.insert(entry.job.shape, &line, id),
                }
            } else {
                match moves.many {
                    true => moves.to_holding.push((), &line, id),
                    false => self.holding.insert((), &line, id),
                }
            }
            if let Some(until) = line.until {
                self.expiries.insert((until, id));
            }
        }
        self.stale = stale;
        moves.carry_out(&mut self.waiting, &mut self.holding);
    }

    /// Marks every job whose line has run out.
    pub(crate) fn expire(&mut self) {
        while let Some((until, id)) = self.expiries.first().copied() {
            if until > self.now {
                break;
            }
            self.expiries.pop_first();
            self.entry(id).job.line.until = None;
            self.mark_stale(id);
        }
    }

    /// The job was placed and shall be launched as soon as its GPUs are free.
    pub(crate) fn pend(&mut self, id: JobId) {
        self.pending.insert(id);
    }

    /// The same for many, by id.
    pub(crate) fn pend_all(&mut self, ids: &[JobId]) {
        match ids.len() >= 256.max(self.pending.len() / 8) {
            true => self.pending.append(&mut ids.iter().copied().collect()),
            false => self.pending.extend(ids),
        }
    }

    /// The job shall not be launched any more.
    pub(crate) fn unpend(&mut self, id: JobId) {
        self.pending.remove(&id);
    }

    /// The job leaves the table; what it held is free.
    pub(crate) fn forget(&mut self, id: JobId, tenancy: &mut dyn Tenancy) -> Job {
        self.unseat(id);
        self.unpend(id);
        if let Some(allocation) = self.entry(id).job.allocation.take() {
            self.give_back(id, &allocation, tenancy);
        }
        self.count_crowd();
        let job = self.jobs[id].take().expect("looked at above").job;
        self.idle_jobs -= 1;
        self.idle_gpus -= u64::from(job.spec.gpus);
        if job.stage == Stage::Active {
            self.demand.remove(&job.spec);
        }
        job
    }

    /// What is left on these nodes is to be shared out anew.
    pub(crate) fn touch(&mut self, allocation: &Allocation) {
        if self.fills {
            self.touched.extend(allocation.shares.iter().map(|s| s.node));
        }
    }

    /// The cluster gives `allocation` to a job that holds nothing.
    pub(crate) fn hand_out(
        &mut self,
        id: JobId,
        allocation: Allocation,
        share: bool,
        tenancy: &mut dyn Tenancy,
    ) {
        let gpu_memory_mib = self.known(id).spec.gpu_memory_mib;
        let wish = self.known(id).spec.wish();
        self.cluster.take(&allocation, share, gpu_memory_mib, wish);
        self.occupants.come(id, &allocation);
        self.touch(&allocation);
        let entry = self.entry(id);
        tenancy.taken(&entry.job.spec, &allocation);
        let gpus = entry.job.spec.gpus;
        debug_assert!(entry.job.allocation.is_none(), "a job holds one allocation");
        entry.job.allocation = Some(allocation);
        self.idle_jobs -= 1;
        self.idle_gpus -= u64::from(gpus);
        self.holding_jobs += 1;
    }

    /// The cluster takes back what the job held; the caller has taken it out of the job.
    pub(crate) fn give_back(&mut self, id: JobId, allocation: &Allocation, tenancy: &mut dyn Tenancy) {
        let gpu_memory_mib = self.known(id).spec.gpu_memory_mib;
        let wish = self.known(id).spec.wish();
        self.cluster.release(allocation, gpu_memory_mib, wish);
        self.occupants.go(id, allocation);
        self.touch(allocation);
        let entry = self.entry(id);
        tenancy.released(&entry.job.spec, allocation);
        let gpus = entry.job.spec.gpus;
        self.idle_jobs += 1;
        self.idle_gpus += u64::from(gpus);
        self.holding_jobs -= 1;
    }
}
