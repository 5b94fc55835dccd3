//! The parts a policy is made of. Each is a small trait with one file per implementation in the `policies` crate.
//!
//! A part reads jobs and the cluster, never a clock, and what it returns is a value. State that a part gathers
//! (a history of finished jobs, a random generator) is saved and loaded with the engine.

use std::fmt::Debug;

use dovetail_model::run::Solved;
use dovetail_model::{Allocation, FenceId, GpuTypeId, JobId, JobSpec, NodeId, Reason, Share, Terms, Time};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster::{Cluster, NodeState};
use crate::crowd::Crowd;
use crate::job::Job;
use crate::line::Line;
use crate::round::Round;
use crate::sharers::Sharers;
use crate::state::Demand;

/// What every part can do: name itself, and carry its state through a snapshot.
pub trait Part: Debug + Send + Sync {
    /// Its name with the knobs that were set, as a user would write it: `tiresias:limits=3250/7200`.
    fn name(&self) -> String;

    /// The state it has gathered; nothing for most parts.
    fn save(&self) -> Value {
        Value::Null
    }

    /// Takes back what [`Part::save`] gave.
    ///
    /// # Errors
    /// Says what is wrong when the value is not one that this part saved.
    fn load(&mut self, saved: &Value) -> Result<(), String> {
        match saved {
            Value::Null => Ok(()),
            other => Err(format!(
                "{} keeps no state, but the snapshot has {other}",
                self.name()
            )),
        }
    }
}

macro_rules! cloneable {
    ($part:ident, $clone:ident) => {
        /// Lets a boxed part be cloned; implemented for everything that is `Clone`.
        pub trait $clone {
            /// A copy in a new box.
            fn clone_box(&self) -> Box<dyn $part>;
        }
        impl<T: $part + Clone + 'static> $clone for T {
            fn clone_box(&self) -> Box<dyn $part> {
                Box::new(self.clone())
            }
        }
        impl Clone for Box<dyn $part> {
            fn clone(&self) -> Self {
                (**self).clone_box()
            }
        }
    };
}

cloneable!(Admission, CloneAdmission);
cloneable!(Order, CloneOrder);
cloneable!(Discipline, CloneDiscipline);
cloneable!(Sizing, CloneSizing);
cloneable!(Grouping, CloneGrouping);
cloneable!(Placement, ClonePlacement);
cloneable!(Tenancy, CloneTenancy);

/// What admission says of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may stand in line.
    Admit,
    /// Not now.
    Hold(Reason),
    /// Not ever.
    Reject(Reason),
}

/// **Admission**: let it in, hold it, or turn it away.
pub trait Admission: Part + CloneAdmission {
    /// The verdict on a job that is new, or first in its lane of held jobs.
    fn admit(&self, job: &JobSpec, demand: &Demand, cluster: &Cluster) -> Verdict;

    /// Held jobs of one lane are let in first come, first served.
    fn lane(&self, _job: &JobSpec) -> u64 {
        0
    }
}

/// What a policy has to know of a job's remaining work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Knowledge {
    /// Nothing: only what the job has used so far.
    None,
    /// An estimate that may be wrong.
    Estimate,
    /// The truth.
    Oracle,
}

/// **Order**: who is next.
pub trait Order: Part + CloneOrder {
    /// The job's place in line from `now` on. Smaller is served first, ties go by job id.
    ///
    /// Called when the job comes into line, starts, stops, reports progress, or when an earlier line ran out. The
    /// lines of *waiting* jobs had better have few different slopes: every slope is a group to look at.
    fn line(&self, job: &Job, now: Time) -> Line;

    /// The same, for an order whose keys depend on how many jobs there are.
    fn line_among(&self, job: &Job, _crowd: &Crowd, now: Time) -> Line {
        self.line(job, now)
    }

    /// Whether [`Order::line_among`] is to be asked. The lines of all jobs are then drawn anew before each decision:
    /// when one job comes or goes the keys of all others change.
    fn looks_at_crowd(&self) -> bool {
        false
    }

    /// Looks at all jobs, in order of submission, and at the cluster, before the lines of all are drawn anew. Only asked
    /// of an order that looks at the crowd.
    fn see(&mut self, _jobs: &mut dyn Iterator<Item = &Job>, _cluster: &Cluster, _now: Time) {}

    /// Whether it sees all jobs again also when something happened since the decision, because the moments at which lines
    /// change hang together. Others keep what they saw until the next decision.
    fn sees_again(&self) -> bool {
        false
    }

    /// The least it must know of remaining work to make sense.
    fn knowledge(&self) -> Knowledge {
        Knowledge::None
    }

    /// How long a job on so many GPUs is served before its place in line gets worse by itself; none where it never does,
    /// or at no fixed time. Where starting again takes as long, jobs that take turns get nowhere.
    fn turn(&self, _gpus: u32) -> Option<Time> {
        None
    }

    /// A job has finished: a policy may learn from it. Returns true when all lines should be drawn anew.
    fn finished(&mut self, _job: &Job, _now: Time) -> bool {
        false
    }
}

/// **Discipline**: how the line is walked. What happens when the next job does not fit: pass over it, stop, keep GPUs
/// for it, or make others give way.
pub trait Discipline: Part + CloneDiscipline {
    /// Walks the line and starts what should run.
    fn walk(&mut self, round: &mut Round<'_>);

    /// Whether it ever looks at jobs that hold GPUs. If not, the engine does not keep them sorted.
    fn looks_at_holders(&self) -> bool;

    /// Whether a job that fits may start although one ahead of it does not.
    fn passes_over(&self) -> bool {
        true
    }

    /// Whether any job that fits may start when the walk is over: nothing is kept free for anybody.
    fn fills_up(&self) -> bool {
        false
    }

    /// Whether running jobs can lose their GPUs to jobs ahead of them, so that the mere passing of time can change
    /// what should run.
    fn preempts(&self) -> bool;
}

/// What is asked of the placement for one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The job, or the first of a group.
    pub job: JobId,
    /// GPUs.
    pub gpus: u32,
    /// GPUs of one bundle, which have to be on one node; see [`Allocation::is_in_bundles_of`].
    pub gpus_per_task: u32,
    /// Only this kind.
    pub gpu_type: Option<GpuTypeId>,
    /// Only on these nodes.
    pub fence: Option<FenceId>,
    /// CPU beside each GPU, in milli-cores.
    pub cpu_milli_per_gpu: u32,
    /// Memory beside each GPU, in MiB.
    pub memory_mib_per_gpu: u64,
    /// Memory it fills on each GPU, in MiB.
    pub gpu_memory_mib: u64,
    /// What would make it fastest, beside each GPU: nothing has to be there, but it may be worth a look where it is.
    pub wish: Share,
    /// Only where so much is there for each GPU beside the wishes of those who are.
    pub enough: Option<Share>,
}

impl Ask {
    /// What the job was submitted with.
    pub fn of(spec: &JobSpec) -> Self {
        Self {
            job: spec.id,
            gpus: spec.gpus,
            gpus_per_task: spec.gpus_per_task,
            gpu_type: spec.gpu_type,
            fence: spec.fence,
            cpu_milli_per_gpu: spec.cpu_milli_per_gpu,
            memory_mib_per_gpu: spec.memory_mib_per_gpu,
            gpu_memory_mib: spec.gpu_memory_mib,
            wish: spec.wish(),
            enough: None,
        }
    }
}

/// A job on a node, as a sizing sees it that shares out what is left there.
#[derive(Debug, Clone, Copy)]
pub struct Guest<'a> {
    /// The job.
    pub job: &'a Job,
    /// GPUs it has on the node.
    pub gpus: u32,
    /// What it was promised there, all GPUs together.
    pub promised: Share,
    /// What it gets for each GPU and no more: another of its nodes has no more for it.
    pub bound: Option<Share>,
}

/// **Sizing**: how wide a job runs, and how much CPU and memory it gets.
pub trait Sizing: Part + CloneSizing {
    /// What to ask for when the job is looked at alone. What is placed is promised: it cannot be taken back.
    fn ask(&self, job: &Job, _cluster: &Cluster) -> Ask {
        Ask::of(&job.spec)
    }

    /// Whether jobs of one [`crate::Shape`] ask for the same and find the same enough: it is asked once for all of them.
    fn asks_by_shape(&self) -> bool {
        false
    }

    /// Whether CPU and memory of running jobs change with who is beside them: [`Sizing::fill`] is asked then.
    fn fills(&self) -> bool {
        false
    }

    /// Whether jobs that find [`Sizing::enough`] start first, and the others on the GPUs that are left then. Only under a
    /// discipline that fills up.
    fn enough_first(&self) -> bool {
        false
    }

    /// What a job should find beside each GPU, over and above the wishes of those who are there, to start before jobs
    /// that do not; nothing where its promise is enough.
    fn enough(&self, _job: &Job, _cluster: &Cluster) -> Option<Share> {
        None
    }

    /// CPU and memory on one node for each of the jobs on it, all GPUs of a job there together: at least what it was
    /// promised, and no more than the node has left with all promises kept.
    fn fill(&mut self, _node: &NodeState, _left: Share, _guests: &[Guest<'_>]) -> Vec<Share> {
        Vec::new()
    }

    /// The integer programs it has solved so far, if it does so.
    fn solved(&self) -> Solved {
        Solved::default()
    }

    /// The fewest GPUs the job would ever be given.
    fn least(&self, job: &JobSpec) -> u32 {
        job.gpus
    }

    /// Widths for all jobs in line (best first) at once, zero for "not now"; none where every job keeps its own size.
    fn widths(&mut self, _line: &[&Job], _gpus: u32, _now: Time) -> Option<Vec<u32>> {
        None
    }

    /// The moment at which widths may change although nothing happens until then.
    fn changes_at(&self, _line: &[&Job], _now: Time) -> Option<Time> {
        None
    }
}

/// Jobs that run together on the same GPUs; mostly just one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The members, the first in line first.
    pub members: Vec<JobId>,
    /// GPUs for all of them together.
    pub gpus: u32,
}

/// **Grouping**: who shares GPUs.
pub trait Grouping: Part + CloneGrouping {
    /// Turns jobs in line (with their widths, best first) into claims, best first.
    fn group(&mut self, line: &[(&Job, u32)], gpus: u32, now: Time) -> Vec<Claim>;

    /// Whether it ever puts several jobs on the same GPUs.
    fn shares(&self) -> bool {
        self.terms().most > 1
    }

    /// The terms on which jobs share.
    fn terms(&self) -> Terms {
        Terms::GROUPS
    }

    /// Looks at the nodes before it is asked for groups.
    fn see(&mut self, _cluster: &Cluster) {}

    /// GPUs for a job that found no free ones, some of them held by others; none if it had better wait. Only asked
    /// where the terms let allocations overlap.
    fn beside(&mut self, _job: &Job, _ask: &Ask, _view: &Sharers<'_>, _now: Time) -> Option<Allocation> {
        None
    }
}

/// **Placement**: which GPUs.
pub trait Placement: Part + ClonePlacement {
    /// Free GPUs for the claim, all of them or none.
    ///
    /// # Errors
    /// The reason with numbers when there is no place.
    fn place(&mut self, ask: &Ask, cluster: &Cluster) -> Result<Allocation, Reason>;
}

/// **Tenancy**: what a tenant may use. It sees every change of a draft, so it can keep books of its own.
pub trait Tenancy: Part + CloneTenancy {
    /// Finds GPUs the tenant may use, mostly by asking the placement.
    ///
    /// # Errors
    /// The reason with numbers when there is no place.
    fn place(
        &mut self,
        _job: &Job,
        ask: &Ask,
        cluster: &Cluster,
        placement: &mut dyn Placement,
    ) -> Result<Allocation, Reason> {
        placement.place(ask, cluster)
    }

    /// Whether it ever keeps a job from GPUs that are free, or tells classes of jobs apart.
    fn limits(&self) -> bool {
        false
    }

    /// Whether the job could ever run.
    ///
    /// # Errors
    /// The reason with numbers when it could not, whoever gave way.
    fn ever(&mut self, _job: &JobSpec) -> Result<(), Reason> {
        Ok(())
    }

    /// What else there is to say of a job for which there is no place: who holds what it could use, and what would help.
    /// Looking changes nothing.
    fn explain(&self, _job: &Job, _ask: &Ask) -> Vec<Reason> {
        Vec::new()
    }

    /// The class of the job: all of a lower class stand ahead of it, whatever the order says.
    fn class(&self, _job: &JobSpec) -> u8 {
        0
    }

    /// Whether the job may have these free GPUs, which it had before or which a grouping chose beside others.
    fn may_use(&mut self, _job: &Job, _allocation: &Allocation) -> bool {
        true
    }

    /// Jobs of different keys may fit differently although they ask for the same.
    fn shape_key(&self, _job: &JobSpec) -> u64 {
        0
    }

    /// Jobs of one account may share GPUs, and are sized and grouped together.
    fn account(&self, job: &JobSpec) -> u64 {
        self.shape_key(job)
    }

    /// The most GPUs that jobs of its account may hold together.
    fn most(&self, _job: &JobSpec) -> u32 {
        u32::MAX
    }

    /// Whether one job may take GPUs from another that is behind it in line.
    fn may_evict(&self, _for_job: &Job, _victim: &Job) -> bool {
        true
    }

    /// Whether someone was refused, since it was asked last, what others may have made room for in the same decision.
    fn look_again(&mut self) -> bool {
        false
    }

    /// A draft gave this to the job.
    fn taken(&mut self, _job: &JobSpec, _allocation: &Allocation) {}

    /// A draft, or the end of the job, gave it back.
    fn released(&mut self, _job: &JobSpec, _allocation: &Allocation) {}

    /// How a node is now. Told before any job is placed on it, and at every change.
    fn node(&mut self, _node: NodeId, _state: &NodeState) {}

    /// The number of the cell a tenant owns that this GPU stands for now, where tenants own cells.
    fn cell_at(&self, _node: NodeId, _slot: u32) -> Option<u32> {
        None
    }

    /// A decision is over: what was drafted stands. Tells whose class has changed.
    fn decided(&mut self) -> Vec<JobId> {
        Vec::new()
    }

    /// Jobs that run on as borrowers although they were guaranteed their GPUs: what their tenants own has changed.
    fn downgraded(&self) -> Vec<JobId> {
        Vec::new()
    }

    /// Whether its own books are right, and agree with what these jobs hold.
    ///
    /// # Errors
    /// Says what is wrong with them.
    fn check(&self, _holders: &mut dyn Iterator<Item = &Job>) -> Result<(), String> {
        Ok(())
    }
}

/// A whole policy: one of each part.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The name of the preset, and what was replaced in it.
    pub name: String,
    /// Who gets in.
    pub admission: Box<dyn Admission>,
    /// Who is next.
    pub order: Box<dyn Order>,
    /// How the line is walked.
    pub discipline: Box<dyn Discipline>,
    /// How wide.
    pub sizing: Box<dyn Sizing>,
    /// Who shares.
    pub grouping: Box<dyn Grouping>,
    /// Which GPUs.
    pub placement: Box<dyn Placement>,
    /// What a tenant may use.
    pub tenancy: Box<dyn Tenancy>,
}

impl Policy {
    /// The parts in the order they are asked, for saving and showing.
    pub fn parts(&self) -> [(&'static str, &dyn Part); 7] {
        [
            ("admission", &*self.admission),
            ("order", &*self.order),
            ("discipline", &*self.discipline),
            ("sizing", &*self.sizing),
            ("grouping", &*self.grouping),
            ("placement", &*self.placement),
            ("tenancy", &*self.tenancy),
        ]
    }

    pub(crate) fn load(&mut self, saved: &[Value; 7]) -> Result<(), String> {
        self.admission.load(&saved[0])?;
        self.order.load(&saved[1])?;
        self.discipline.load(&saved[2])?;
        self.sizing.load(&saved[3])?;
        self.grouping.load(&saved[4])?;
        self.placement.load(&saved[5])?;
        self.tenancy.load(&saved[6])
    }
}
