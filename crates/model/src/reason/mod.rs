//! Why a job does not run. Every refusal is one of these values; the command line, the page and the metrics render the
//! same value with [`Reason::render`].

mod render;

use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::ids::{GpuTypeId, JobKey, TenantId, UserId};
use crate::units::Time;
pub use render::NameLookup;

/// Why a job does not run (yet).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The policy needs a datum about the job that is unknown, and treats the job worse for it.
    MissingData {
        /// What is unknown: it completes "no … known".
        datum: String,
        /// What the policy does about it: it completes "it is …".
        effect: String,
    },
    /// Fewer GPUs are free than the gang needs.
    NotEnoughFreeGpus {
        /// GPUs asked for.
        asked: u32,
        /// GPUs free now.
        free: u32,
    },
    /// Enough GPUs are free, but not where the placement accepts them.
    Fragmented {
        /// GPUs asked for.
        asked: u32,
        /// GPUs free now in the whole cluster.
        free: u32,
        /// The most GPUs free in one acceptable place.
        best: u32,
    },
    /// Too few GPUs are free on the nodes to which the job is limited.
    #[serde(alias = "Fenced", alias = "NodeConstraintSet")]
    NodeConstraint {
        /// GPUs asked for.
        asked: u32,
        /// Nodes of the constraint that are up.
        nodes: u32,
        /// GPUs free there, of the type asked for.
        free: u32,
    },
    /// GPUs are free, but no node has enough CPU and memory beside them.
    NotEnoughCpuOrMemory {
        /// CPU per GPU asked for, in milli-cores.
        cpu_milli_per_gpu: u32,
        /// Memory per GPU asked for, in MiB.
        memory_mib_per_gpu: u64,
    },
    /// GPUs are free, but too few of them have the GPU memory the job uses.
    NotEnoughGpuMemory {
        /// Memory used on each GPU, in MiB.
        asked_mib: u64,
        /// GPUs asked for.
        gpus: u32,
        /// Free GPUs with that much memory.
        fitting: u32,
    },
    /// Too few GPUs of the cluster have the GPU memory the job uses.
    GpuMemoryNeverFits {
        /// Memory used on each GPU, in MiB.
        asked_mib: u64,
        /// Memory of the largest GPU that the job could use, in MiB.
        largest_mib: u64,
        /// GPUs asked for.
        gpus: u32,
        /// GPUs with that much memory.
        fitting: u32,
    },
    /// The cluster is too small for the job, even when empty.
    NeverFits {
        /// GPUs asked for.
        asked: u32,
        /// GPUs of the cluster that the job could use.
        largest: u32,
        /// GPU type asked for.
        gpu_type: Option<GpuTypeId>,
    },
    /// The nodes are too small for the tasks of the job, even when empty.
    TasksNeverFit {
        /// Tasks asked for.
        tasks: u32,
        /// GPUs of each task, which must be on one node.
        gpus_per_task: u32,
        /// Tasks for which the cluster has room.
        fitting: u32,
        /// The most GPUs of one node that the job could use.
        largest_node: u32,
    },
    /// The job asks for no GPU, or its bounds contradict each other.
    Malformed {
        /// GPUs asked for.
        gpus: u32,
        /// The fewest GPUs on which it runs.
        #[serde(default)]
        min_gpus: u32,
        /// The most GPUs on which it runs.
        #[serde(default)]
        max_gpus: u32,
    },
    /// Admission holds the job because the admitted jobs ask for too many GPUs.
    LoadLimit {
        /// GPUs asked for by all admitted jobs.
        demand: u64,
        /// The limit.
        limit: u64,
    },
    /// Admission holds the job because its tenant has reached its limit.
    TenantCap {
        /// The tenant.
        tenant: TenantId,
        /// GPUs asked for by the tenant's admitted jobs.
        demand: u64,
        /// The limit.
        cap: u64,
    },
    /// Admission holds the job because its user has reached a limit.
    UserCap {
        /// The user.
        user: UserId,
        /// GPUs asked for by the user's admitted jobs.
        demand: u64,
        /// The limit.
        cap: u64,
    },
    /// The tenant holds all GPUs that it is guaranteed, or that it may borrow.
    TenantQuota {
        /// The tenant.
        tenant: TenantId,
        /// Whether the job borrows.
        borrows: bool,
        /// GPUs asked for.
        asked: u32,
        /// GPUs held by the tenant's jobs of the same class.
        held: u32,
        /// The most GPUs those jobs may hold.
        most: u32,
    },
    /// The cells its tenant owns, or all cells if it borrows, have no room for the job.
    CellsInUse {
        /// The tenant.
        tenant: TenantId,
        /// Whether the job borrows.
        borrows: bool,
        /// GPUs asked for.
        asked: u32,
        /// GPUs that are idle or borrowed where the job may run.
        available: u32,
        /// Of those, GPUs on nodes that are down or excluded.
        #[serde(default)]
        unusable: u32,
        /// Jobs that borrow the GPUs it needs; zero if preempting them would not help.
        #[serde(alias = "lent_to")]
        borrowers: u32,
    },
    /// The tenant may use another cell, but no healthy node can back it.
    NoHealthyCell {
        /// The tenant.
        tenant: TenantId,
        /// The type of cell.
        kind: String,
        /// Free cells of this type.
        free: u32,
        /// Of those, cells with nodes that are down.
        bad: u32,
    },
    /// What the tenant owns of one type of cell that the job may use.
    CellsOwned {
        /// The tenant.
        tenant: TenantId,
        /// The type of cell.
        kind: String,
        /// Cells the tenant owns.
        owned: u32,
        /// Of those, cells without jobs of the tenant.
        free: u32,
        /// Of those, cells with nodes that are down.
        bad: u32,
        /// Of those, cells without a healthy node to back them.
        doomed: u32,
        /// Cells of this type left in the whole cluster, if known.
        #[serde(default)]
        left_in_cluster: Option<u32>,
        /// Of those, cells with nodes that are down.
        #[serde(default)]
        bad_in_cluster: u32,
    },
    /// Which jobs hold GPUs where the job may run.
    CellsHeld {
        /// Jobs and their GPUs there, most GPUs first.
        holders: Vec<(JobKey, u32)>,
        /// Number of jobs not listed.
        more: u32,
    },
    /// The user holds as many of the tenant's cells as one user may.
    UserCells {
        /// The user.
        user: UserId,
        /// GPUs asked for.
        asked: u32,
        /// GPUs the user holds.
        held: u32,
        /// The most GPUs the user may hold.
        most: u32,
    },
    /// What would let the job start.
    WouldStart(Change),
    /// Other jobs are ahead in the queue, and the policy starts jobs strictly in order.
    #[serde(alias = "BehindInLine")]
    BehindInQueue {
        /// The first job ahead of it.
        head: JobKey,
        /// Number of jobs ahead of it.
        ahead: u32,
    },
    /// Free GPUs are reserved for a job that has waited long.
    ReservedFor {
        /// The job.
        job: JobKey,
        /// When it is expected to start.
        expected_start: Option<Time>,
    },
    /// The job is placed, and waits until stopping jobs have vacated its GPUs.
    WaitingForGpus {
        /// GPUs that are not vacated yet.
        busy: u32,
    },
    /// Nothing prevents the job from starting with the next decision.
    NextRound {
        /// When that is.
        at: Option<Time>,
    },
}
