//! The text of reasons. This is the only place where reasons become text; readers differ only in the names they give to
//! jobs, nodes, tenants and users.

use std::fmt;

use super::Reason;
use crate::change::Change;
use crate::ids::{GpuTypeId, JobKey, NodeId, TenantId, UserId};
use crate::units::Time;

/// Names of jobs, nodes, tenants and users, as the reader knows them. Every method returns a phrase that fits into a
/// sentence, such as `job 17` or `virtual cluster vision`; by default it is made of the number.
pub trait NameLookup {
    /// Returns the phrase for a job.
    fn job(&self, job: JobKey) -> String {
        format!("job {job}")
    }

    /// Returns the phrase for a node.
    fn node(&self, node: NodeId) -> String {
        format!("node {node}")
    }

    /// Returns the phrase for a tenant.
    fn tenant(&self, tenant: TenantId) -> String {
        format!("tenant {tenant}")
    }

    /// Returns the phrase for a user.
    fn user(&self, user: UserId) -> String {
        format!("user {user}")
    }

    /// Returns the name of a GPU type.
    fn gpu_type(&self, gpu_type: GpuTypeId) -> String {
        gpu_type.to_string()
    }

    /// Returns the phrase for a moment.
    fn time(&self, at: Time) -> String {
        format!("at {:.0} s", at.as_secs_f64())
    }
}

/// Names made of numbers.
struct Numbers;

impl NameLookup for Numbers {}

impl Reason {
    /// Returns the text of the reason, with these names.
    pub fn render(&self, names: &dyn NameLookup) -> String {
        let rendered = Rendered { reason: self, names };
        rendered.to_string()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rendered = Rendered {
            reason: self,
            names: &Numbers,
        };
        rendered.fmt(f)
    }
}

/// A reason with the names to render it with.
struct Rendered<'a> {
    reason: &'a Reason,
    names: &'a dyn NameLookup,
}

impl fmt::Display for Rendered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::NotEnoughFreeGpus { .. }
            | Reason::Fragmented { .. }
            | Reason::NodeConstraint { .. }
            | Reason::NotEnoughCpuOrMemory { .. }
            | Reason::NotEnoughGpuMemory { .. } => self.shortage(f),
            Reason::GpuMemoryNeverFits { .. }
            | Reason::NeverFits { .. }
            | Reason::TasksNeverFit { .. }
            | Reason::Malformed { .. } => self.impossibility(f),
            Reason::LoadLimit { .. }
            | Reason::TenantCap { .. }
            | Reason::UserCap { .. }
            | Reason::TenantQuota { .. }
            | Reason::UserCells { .. } => self.limit(f),
            Reason::CellsInUse { .. }
            | Reason::NoHealthyCell { .. }
            | Reason::CellsOwned { .. }
            | Reason::CellsHeld { .. } => self.cells(f),
            Reason::WouldStart(change) => self.change(change, f),
            Reason::BehindInQueue { .. }
            | Reason::ReservedFor { .. }
            | Reason::WaitingForGpus { .. }
            | Reason::NextRound { .. } => self.turn(f),
            Reason::MissingData { datum, effect } => write!(f, "no {datum} known: {effect}"),
        }
    }
}

impl Rendered<'_> {
    /// Renders what is missing now.
    fn shortage(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::NotEnoughFreeGpus { asked, free } => {
                write!(f, "asks for {}, {free} {} free", gpus(*asked), are(*free))
            }
            Reason::Fragmented { asked, free, best } => write!(
                f,
                "asks for {}; {free} {} free, but at most {best} in one place that the placement accepts",
                gpus(*asked),
                are(*free)
            ),
            Reason::NodeConstraint { asked, nodes: 0, .. } => write!(
                f,
                "asks for {}; no node of its node constraint is up",
                gpus(*asked)
            ),
            Reason::NodeConstraint { asked, nodes, free } => write!(
                f,
                "asks for {}; its node constraint allows {}, on which {} {} free",
                gpus(*asked),
                count(*nodes, "node"),
                gpus(*free),
                are(*free)
            ),
            Reason::NotEnoughCpuOrMemory {
                cpu_milli_per_gpu,
                memory_mib_per_gpu,
            } => write!(
                f,
                "no node has {} CPU cores and {memory_mib_per_gpu} MiB of memory free for each GPU",
                f64::from(*cpu_milli_per_gpu) / 1000.0
            ),
            Reason::NotEnoughGpuMemory {
                asked_mib,
                gpus: asked,
                fitting,
            } => write!(
                f,
                "uses {asked_mib} MiB on each of {}; {fitting} free {} that much memory",
                gpus(*asked),
                if *fitting == 1 { "GPU has" } else { "GPUs have" }
            ),
            _ => Ok(()),
        }
    }

    /// Renders why the job could never run.
    fn impossibility(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::GpuMemoryNeverFits {
                asked_mib,
                largest_mib,
                gpus: asked,
                fitting,
            } => write!(
                f,
                "uses {asked_mib} MiB on each of {}, but only {fitting} {} that much memory; the largest has {largest_mib} MiB",
                gpus(*asked),
                if *fitting == 1 { "GPU has" } else { "GPUs have" }
            ),
            Reason::NeverFits {
                asked,
                largest,
                gpu_type,
            } => {
                write!(f, "asks for {}", gpus(*asked))?;
                if let Some(gpu_type) = gpu_type {
                    write!(f, " of type {}", self.names.gpu_type(*gpu_type))?;
                }
                write!(f, ", but the cluster has only {largest} that it could use")
            }
            Reason::TasksNeverFit {
                tasks,
                gpus_per_task,
                fitting,
                largest_node,
            } => write!(
                f,
                "asks for {} with {} on one node each, but the cluster has room for {fitting}; the largest node has {} that \
                 it could use",
                count(*tasks, "task"),
                gpus(*gpus_per_task),
                gpus(*largest_node)
            ),
            Reason::Malformed { gpus: 0, .. } => write!(f, "asks for 0 GPUs; expected at least 1"),
            Reason::Malformed { min_gpus: 0, .. } => write!(f, "`min_gpus` must be at least 1"),
            Reason::Malformed {
                min_gpus, max_gpus, ..
            } => write!(
                f,
                "`min_gpus` ({min_gpus}) must not exceed `max_gpus` ({max_gpus})"
            ),
            _ => Ok(()),
        }
    }

    /// Renders a limit of admission, of a tenant or of a user.
    fn limit(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::LoadLimit { demand, limit } => write!(
                f,
                "held by admission: admitted jobs ask for {demand} GPUs, the limit is {limit}"
            ),
            Reason::TenantCap { tenant, demand, cap } => write!(
                f,
                "held by admission: {} asks for {demand} GPUs, its limit is {cap}",
                self.names.tenant(*tenant)
            ),
            Reason::UserCap { user, demand, cap } => write!(
                f,
                "held by admission: {} asks for {demand} GPUs, the limit is {cap}",
                self.names.user(*user)
            ),
            Reason::TenantQuota {
                tenant,
                borrows,
                asked,
                held,
                most,
            } => write!(
                f,
                "asks for {}; {} {} {most} and holds {held} of them",
                gpus(*asked),
                self.names.tenant(*tenant),
                if *borrows { "may borrow" } else { "is guaranteed" }
            ),
            Reason::UserCells {
                user,
                asked,
                held,
                most,
            } => write!(
                f,
                "asks for {}; {} may hold {most} and holds {held}",
                gpus(*asked),
                self.names.user(*user)
            ),
            _ => Ok(()),
        }
    }

    /// Renders the state of the cells a job may use.
    fn cells(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::CellsInUse { .. } => self.cells_in_use(f),
            Reason::NoHealthyCell {
                tenant,
                kind,
                free,
                bad,
            } => write!(
                f,
                "{} may use another {kind}, but only nodes that are down or excluded could back it ({free} free, {bad} down)",
                self.names.tenant(*tenant)
            ),
            Reason::CellsOwned {
                tenant,
                kind,
                owned,
                free,
                bad,
                doomed,
                left_in_cluster,
                bad_in_cluster,
            } => {
                write!(
                    f,
                    "{} owns {owned} {kind}, {free} free",
                    self.names.tenant(*tenant)
                )?;
                if_any(f, *bad, "with nodes that are down")?;
                if_any(f, *doomed, "without a healthy node to back them")?;
                if let Some(left) = left_in_cluster {
                    write!(f, "; {left} left in the cluster")?;
                    if_any(f, *bad_in_cluster, "of them with nodes that are down")?;
                }
                Ok(())
            }
            Reason::CellsHeld { holders, more } => {
                let holder =
                    |(job, held): &(JobKey, u32)| format!("{} ({})", self.names.job(*job), gpus(*held));
                let holders: Vec<String> = holders.iter().map(holder).collect();
                write!(f, "held by {}", holders.join(", "))?;
                if_any(f, *more, "more")
            }
            _ => Ok(()),
        }
    }

    fn cells_in_use(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reason::CellsInUse {
            tenant,
            borrows,
            asked,
            available,
            unusable,
            borrowers,
        } = self.reason
        else {
            return Ok(());
        };
        write!(f, "asks for {}; ", gpus(*asked))?;
        let tenant = self.names.tenant(*tenant);
        if *borrowers > 0 {
            let jobs = count(*borrowers, "other job");
            return write!(f, "the cells of {tenant} that have them are borrowed by {jobs}");
        }
        match borrows {
            true => write!(f, "{available} {} idle in all cells", are(*available))?,
            false => write!(
                f,
                "{available} {} idle or borrowed in the cells of {tenant}",
                are(*available)
            )?,
        }
        if_any(f, *unusable, "of them on nodes that are down or excluded")?;
        match available >= asked {
            true => write!(f, ", but not in a shape that it could use"),
            false => Ok(()),
        }
    }

    /// Renders what would let the job start.
    fn change(&self, change: &Change, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match change {
            Change::JobsEnd(jobs) => {
                let jobs: Vec<String> = jobs.iter().map(|j| self.names.job(*j)).collect();
                write!(f, "could start if {} ended", jobs.join(" and "))
            }
            Change::NodesReturn(nodes) => {
                let nodes: Vec<String> = nodes.iter().map(|n| self.names.node(*n)).collect();
                write!(f, "could start if {} came back", nodes.join(" and "))
            }
            Change::MoreCells { asked, owned } => write!(
                f,
                "could start if its tenant owned more than {} of this type: it asks for {asked}",
                gpus(*owned)
            ),
            Change::LargerCells { asked, largest } => write!(
                f,
                "could start in larger cells, or with smaller tasks: {asked} of its GPUs must be in one cell, and the \
                 largest cell has {largest}"
            ),
            Change::HigherLimit => write!(
                f,
                "could start if the limit of its user were higher, or other jobs of the user ended"
            ),
            Change::Unknown => write!(f, "no single change was found that would let it start"),
        }
    }

    /// Renders for which jobs or moments the job waits.
    fn turn(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            Reason::BehindInQueue { head, ahead: 1 } => write!(
                f,
                "{} is ahead of it in the queue and must start first",
                self.names.job(*head)
            ),
            Reason::BehindInQueue { head, ahead } => write!(
                f,
                "{ahead} jobs are ahead of it in the queue and must start first, beginning with {}",
                self.names.job(*head)
            ),
            Reason::ReservedFor { job, expected_start } => {
                write!(f, "free GPUs are reserved for {}", self.names.job(*job))?;
                match expected_start {
                    Some(at) => write!(f, ", expected to start {}", self.names.time(*at)),
                    None => Ok(()),
                }
            }
            Reason::WaitingForGpus { busy } => {
                write!(f, "placed; waits for {} to be vacated", gpus(*busy))
            }
            Reason::NextRound { at: Some(at) } => {
                write!(f, "starts with the next round, {}", self.names.time(*at))
            }
            Reason::NextRound { at: None } => write!(f, "starts with the next decision"),
            _ => Ok(()),
        }
    }
}

/// Writes a count and what it counts, unless it is zero.
fn if_any(f: &mut fmt::Formatter<'_>, number: u32, what: &str) -> fmt::Result {
    match number {
        0 => Ok(()),
        n => write!(f, ", {n} {what}"),
    }
}

fn gpus(number: u32) -> String {
    count(number, "GPU")
}

fn count(number: u32, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

fn are(number: u32) -> &'static str {
    if number == 1 { "is" } else { "are" }
}
