//! Why not. Every refusal is one of these values; the CLI, the page and the metrics render the same one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::ids::{GpuTypeId, JobId, NodeId, TenantId, UserId};
use crate::units::Time;

/// Why a job does not run (yet).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// Fewer GPUs are free than the gang needs.
    NotEnoughFreeGpus {
        /// GPUs asked for.
        asked: u32,
        /// GPUs free now.
        free: u32,
    },
    /// Enough GPUs are free, but not in a place that the placement accepts.
    Fragmented {
        /// GPUs asked for.
        asked: u32,
        /// GPUs free now, all over the cluster.
        free: u32,
        /// The most that one acceptable place has free.
        best: u32,
    },
    /// GPUs may be free, but not on the nodes to which it is confined.
    Fenced {
        /// GPUs asked for.
        asked: u32,
        /// Nodes it may be on that are up.
        nodes: u32,
        /// GPUs free there, of the kind it wants.
        free: u32,
    },
    /// The GPUs would do, but no node has CPU and memory for them.
    NotEnoughCpuOrMemory {
        /// CPU wanted beside each GPU, in milli-cores.
        cpu_milli_per_gpu: u32,
        /// Memory wanted beside each GPU, in MiB.
        memory_mib_per_gpu: u64,
    },
    /// GPUs are free, but too few of them have the memory it fills.
    NotEnoughGpuMemory {
        /// Memory it fills on each GPU, in MiB.
        asked_mib: u64,
        /// GPUs asked for.
        gpus: u32,
        /// Free GPUs with so much memory.
        fitting: u32,
    },
    /// No GPU, or too few of them, could ever hold it.
    GpuMemoryNeverFits {
        /// Memory it fills on each GPU, in MiB.
        asked_mib: u64,
        /// The memory of the largest GPU it could use, in MiB.
        largest_mib: u64,
        /// GPUs asked for.
        gpus: u32,
        /// GPUs with so much memory.
        fitting: u32,
    },
    /// The cluster is too small for it, even empty.
    NeverFits {
        /// GPUs asked for.
        asked: u32,
        /// The most there are, of the kind it wants.
        largest: u32,
        /// The kind it wants.
        gpu_type: Option<GpuTypeId>,
    },
    /// It asks for nothing or for something that cannot be.
    Malformed {
        /// GPUs asked for.
        gpus: u32,
    },
    /// Admission holds it: the jobs already let in ask for too much.
    LoadLimit {
        /// GPUs asked for by all jobs that were let in.
        demand: u64,
        /// The limit.
        limit: u64,
    },
    /// Its tenant has reached its cap.
    TenantCap {
        /// The tenant.
        tenant: TenantId,
        /// GPUs asked for by the tenant's jobs that were let in.
        demand: u64,
        /// The cap.
        cap: u64,
    },
    /// Its tenant holds too much already, of what is its own or of what it may borrow.
    TenantQuota {
        /// The tenant.
        tenant: TenantId,
        /// Whether the job borrows.
        borrows: bool,
        /// GPUs asked for.
        asked: u32,
        /// GPUs held by jobs of the tenant that borrow, or by those that do not.
        held: u32,
        /// The most they may hold.
        most: u32,
    },
    /// The cells its tenant owns, or all cells if it borrows, have no place for it.
    CellsInUse {
        /// The tenant.
        tenant: TenantId,
        /// Whether the job borrows.
        borrows: bool,
        /// GPUs asked for.
        asked: u32,
        /// GPUs that are free or lent where it may go.
        available: u32,
        /// Borrowers that would have to go for it; then there is a place.
        lent_to: u32,
    },
    /// What its tenant owns of one kind of cell where it may go.
    CellsOwned {
        /// The tenant.
        tenant: TenantId,
        /// The kind of cell.
        kind: String,
        /// Cells it owns.
        owned: u32,
        /// Of those, without anything of its own in them.
        free: u32,
        /// Of those, with machines that are down.
        bad: u32,
        /// Of those, with nothing but machines that are down left for them.
        doomed: u32,
    },
    /// Who holds GPUs where it may go.
    CellsHeld {
        /// Jobs and their GPUs there, most first.
        holders: Vec<(JobId, u32)>,
        /// Jobs that are not named.
        more: u32,
    },
    /// Its user holds as much of the tenant's cells as one user may.
    UserCells {
        /// The user.
        user: UserId,
        /// GPUs asked for.
        asked: u32,
        /// GPUs the user holds.
        held: u32,
        /// The most the user may hold.
        most: u32,
    },
    /// What would let it start.
    WouldStart(Change),
    /// Its user has reached a cap.
    UserCap {
        /// The user.
        user: UserId,
        /// GPUs asked for by the user's jobs that were let in.
        demand: u64,
        /// The cap.
        cap: u64,
    },
    /// Jobs ahead of it in line come first, and the policy does not let it pass them.
    BehindInLine {
        /// The first job that waits ahead of it.
        head: JobId,
        /// How many wait ahead of it.
        ahead: u32,
    },
    /// GPUs are kept for a large job that has waited long.
    ReservedFor {
        /// That job.
        job: JobId,
        /// When it is expected to start.
        expected_start: Option<Time>,
    },
    /// It is placed, and waits for the jobs on its GPUs to stop.
    WaitingForGpus {
        /// How many of its GPUs are not free yet.
        busy: u32,
    },
    /// Nothing stands in its way: it starts with the next decision.
    NextRound {
        /// When that is.
        at: Option<Time>,
    },
}

/// What is not there: nothing is said of zero.
fn lacking(f: &mut fmt::Formatter<'_>, number: u32, what: &str) -> fmt::Result {
    match number {
        0 => Ok(()),
        n => write!(f, ", {n} {what}"),
    }
}

/// What things are called by whoever reads it.
pub trait Words {
    /// A job.
    fn job(&self, job: JobId) -> String {
        job.to_string()
    }

    /// A node.
    fn node(&self, node: NodeId) -> String {
        node.to_string()
    }

    /// A tenant.
    fn tenant(&self, tenant: TenantId) -> String {
        tenant.to_string()
    }

    /// A user.
    fn user(&self, user: UserId) -> String {
        user.to_string()
    }

    /// A moment.
    fn time(&self, at: Time) -> String {
        format!("at {:.0} s", at.as_secs_f64())
    }
}

/// Things are called by their numbers.
struct Numbers;

impl Words for Numbers {}

struct InWords<'a> {
    reason: &'a Reason,
    words: &'a dyn Words,
}

impl Reason {
    /// The reason in words of the reader.
    pub fn in_words(&self, words: &dyn Words) -> String {
        InWords { reason: self, words }.to_string()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = &Numbers;
        InWords { reason: self, words }.fmt(f)
    }
}

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::NotEnoughFreeGpus { asked, free } => write!(f, "asks for {asked} GPUs, {free} are free"),
            Reason::Fragmented { asked, free, best } => {
                write!(
                    f,
                    "asks for {asked} GPUs; {free} are free, but at most {best} in one acceptable place"
                )
            }
            Reason::Fenced { asked, nodes: 0, .. } => {
                write!(f, "asks for {asked} GPUs; no node that is up may take it")
            }
            Reason::Fenced { asked, nodes, free } => {
                let nodes = if *nodes == 1 {
                    "1 node".to_owned()
                } else {
                    format!("{nodes} nodes")
                };
                let free = if *free == 1 {
                    "1 GPU is".to_owned()
                } else {
                    format!("{free} GPUs are")
                };
                write!(
                    f,
                    "asks for {asked} GPUs; {nodes} may take it, and {free} free there"
                )
            }
            Reason::NotEnoughCpuOrMemory {
                cpu_milli_per_gpu,
                memory_mib_per_gpu,
            } => write!(
                f,
                "no node has {} cores and {} MiB free beside each GPU",
                f64::from(*cpu_milli_per_gpu) / 1000.0,
                memory_mib_per_gpu
            ),
            Reason::NotEnoughGpuMemory {
                asked_mib,
                gpus,
                fitting,
            } => write!(
                f,
                "fills {asked_mib} MiB on each of {gpus} GPUs; {fitting} free GPUs have so much memory"
            ),
            Reason::GpuMemoryNeverFits {
                asked_mib,
                largest_mib,
                gpus,
                fitting,
            } => write!(
                f,
                "fills {asked_mib} MiB on each of {gpus} GPUs, but only {fitting} GPUs have so much memory; the largest has \
                 {largest_mib} MiB"
            ),
            Reason::NeverFits { asked, largest, .. } => {
                write!(
                    f,
                    "asks for {asked} GPUs, but the cluster has only {largest} it could use"
                )
            }
            Reason::Malformed { gpus: 0 } => write!(f, "asks for 0 GPUs; a job needs at least one"),
            Reason::Malformed { gpus } => write!(f, "asks for {gpus} GPUs, but its least and most cannot be"),
            Reason::LoadLimit { demand, limit } => {
                write!(
                    f,
                    "held by admission: jobs let in ask for {demand} GPUs, the limit is {limit}"
                )
            }
            Reason::TenantCap { tenant, demand, cap } => {
                write!(
                    f,
                    "held by admission: tenant {tenant} asks for {demand} GPUs, its cap is {cap}",
                    tenant = self.words.tenant(*tenant)
                )
            }
            Reason::TenantQuota {
                tenant,
                borrows,
                asked,
                held,
                most,
            } => {
                let what = if *borrows { "may borrow" } else { "is guaranteed" };
                write!(
                    f,
                    "asks for {asked} GPUs; tenant {tenant} {what} {most} and holds {held} of them",
                    tenant = self.words.tenant(*tenant)
                )
            }
            Reason::CellsInUse {
                tenant,
                asked,
                lent_to: lent_to @ 1..,
                ..
            } => write!(
                f,
                "asks for {asked} GPUs; the cells of tenant {tenant} that have them are lent to {lent_to} other jobs",
                tenant = self.words.tenant(*tenant)
            ),
            Reason::CellsInUse {
                tenant,
                borrows,
                asked,
                available,
                ..
            } => {
                write!(f, "asks for {asked} GPUs; ")?;
                match borrows {
                    true => write!(f, "{available} are idle in all cells")?,
                    false => write!(
                        f,
                        "{available} are idle or lent in the cells of tenant {tenant}",
                        tenant = self.words.tenant(*tenant)
                    )?,
                }
                let shape = if available >= asked {
                    ", but not in one shape it could use"
                } else {
                    ""
                };
                write!(f, "{shape}")
            }
            Reason::CellsOwned {
                tenant,
                kind,
                owned,
                free,
                bad,
                doomed,
            } => {
                write!(
                    f,
                    "tenant {tenant} owns {owned} {kind}, {free} free",
                    tenant = self.words.tenant(*tenant)
                )?;
                lacking(f, *bad, "with machines that are down")?;
                lacking(f, *doomed, "with no machine left for them")
            }
            Reason::CellsHeld { holders, more } => {
                let held = |(job, gpus): &(JobId, u32)| format!("job {} ({gpus} GPUs)", self.words.job(*job));
                let names: Vec<String> = holders.iter().map(held).collect();
                write!(f, "held by {}", names.join(", "))?;
                lacking(f, *more, "more")
            }
            Reason::UserCells {
                user,
                asked,
                held,
                most,
            } => write!(
                f,
                "asks for {asked} GPUs; user {user} may hold {most} and holds {held}",
                user = self.words.user(*user)
            ),
            Reason::WouldStart(change) => change.write(f, self.words),
            Reason::UserCap { user, demand, cap } => {
                write!(
                    f,
                    "held by admission: user {user} asks for {demand} GPUs, the cap is {cap}",
                    user = self.words.user(*user)
                )
            }
            Reason::BehindInLine { head, ahead: 1 } => {
                write!(
                    f,
                    "job {head} is ahead in line, and it may not pass it",
                    head = self.words.job(*head)
                )
            }
            Reason::BehindInLine { head, ahead } => {
                write!(
                    f,
                    "{ahead} jobs are ahead in line, job {head} first, and it may not pass them",
                    head = self.words.job(*head)
                )
            }
            Reason::ReservedFor {
                job,
                expected_start: Some(at),
            } => {
                write!(
                    f,
                    "GPUs are kept for job {job}, expected to start {}",
                    self.words.time(*at),
                    job = self.words.job(*job)
                )
            }
            Reason::ReservedFor {
                job,
                expected_start: None,
            } => write!(f, "GPUs are kept for job {job}", job = self.words.job(*job)),
            Reason::WaitingForGpus { busy } => write!(f, "placed; waits for {busy} GPUs to be given up"),
            Reason::NextRound { at: Some(at) } => {
                write!(f, "starts with the next round, {}", self.words.time(*at))
            }
            Reason::NextRound { at: None } => write!(f, "starts with the next decision"),
        }
    }
}
