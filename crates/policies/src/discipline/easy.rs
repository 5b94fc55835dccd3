//! EASY backfill: the first job that does not fit gets a reservation; others may pass it only if they do not delay it.
//!
//! The expected ends of running jobs determine when the head of the queue can start (the shadow time) and how many GPUs it
//! will leave free then. A job behind it starts if it is expected to end by the shadow time, or fits into the GPUs that the
//! head leaves. Where run times are unknown (a live job without an estimate) there is no shadow time: the head may be passed
//! over for `patience`, and after that it blocks the queue.

use dovetail_engine::cluster::NodeState;
use dovetail_engine::{Candidate, Cluster, Discipline, Need, NeedSet, Part, Round};
use dovetail_model::{JobKey, JobSpec, Rate, Time};

use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Discipline> = Entry {
    name: "easy",
    what: "backfill with a reservation for the head of the queue, so that large gangs do not starve",
    source: "Lifka 1995 (EASY), Mu'alem and Feitelson 2001",
    key: "a job passes the head only if it ends before the head can start, or leaves it enough GPUs",
    companions: &[],
    knobs: &[
        Knob {
            name: "patience",
            default: "1h",
            what: "how long the head may be passed over if run times are unknown; a span",
        },
        Knob {
            name: "depth",
            default: "200",
            what: "number of jobs behind the head that are considered; a whole number",
        },
    ],
    build: |knobs| {
        let depth = knobs.get("depth", "a whole number")?;
        Ok(Box::new(Easy {
            patience: knobs.span("patience")?,
            depth,
            name: knobs.name(),
        }))
    },
};

/// EASY backfill.
#[derive(Debug, Clone)]
struct Easy {
    patience: Time,
    depth: usize,
    name: String,
}

impl Part for Easy {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn needs(&self) -> NeedSet {
        [Need::RemainingTime, Need::Rate].into()
    }

    fn without(&self, need: Need) -> &'static str {
        match need {
            Need::RemainingTime => "started early only on GPUs that the head of the queue leaves free",
            _ => need.without(),
        }
    }
}

/// When the head can start, and how many GPUs it leaves free then.
#[derive(Debug, Clone, Copy)]
struct Shadow {
    at: Time,
    spare: u32,
}

impl Discipline for Easy {
    fn walk(&mut self, round: &mut Round<'_>) {
        let mut started = Vec::new();
        while let Some(head) = round.next_queued() {
            if round.start(&head).is_ok() {
                started.push(head.job);
                continue;
            }
            let due = round.job(head.job).waiting_since + self.patience;
            match shadow(round, &head, started) {
                Some(shadow) => {
                    round.reserve_for(&head, Some(shadow.at));
                    self.fill_around(round, shadow);
                }
                None if round.now() < due => {
                    round.wake_at(due);
                    round.pass_over(&head);
                    super::backfill::fill(round);
                }
                None => round.reserve_for(&head, None),
            }
            return;
        }
    }

    fn needs_holders(&self) -> bool {
        true
    }

    fn preempts(&self) -> bool {
        false
    }
}

impl Easy {
    /// Starts jobs behind the head that do not delay it.
    fn fill_around(&self, round: &mut Round<'_>, mut shadow: Shadow) {
        for _ in 0..self.depth {
            let Some(candidate) = round.next_fitting() else {
                return;
            };
            let job = round.job(candidate.job);
            let gpus = job.spec.gpus;
            let in_time = job
                .remaining(round.now())
                .is_some_and(|w| round.now() + Rate::FULL.time_for(w) <= shadow.at);
            if !in_time && gpus > shadow.spare {
                continue;
            }
            match round.start(&candidate) {
                Ok(()) if !in_time => shadow.spare -= gpus,
                Ok(()) => {}
                Err(_) => round.pass_over(&candidate),
            }
        }
    }
}

/// Returns the number of free GPUs on nodes that the job may run on.
fn free_within(spec: &JobSpec, cluster: &Cluster) -> u32 {
    let open = cluster.nodes_with_any_free().map(|(_, node)| node);
    let is_usable =
        |n: &&NodeState| spec.gpu_type.is_none_or(|t| n.spec.gpu_type == t) && n.admits(spec.constraint);
    open.filter(is_usable).map(|n| n.free_gpus).sum()
}

/// Returns when enough GPUs for the head are expected to be free, from the expected ends of all holders, including the jobs that
/// were started in this walk; `None` if it cannot be predicted.
fn shadow(round: &Round<'_>, head: &Candidate, started: Vec<JobKey>) -> Option<Shadow> {
    let spec = &round.job(head.job).spec;
    let mut free = match spec.constraint {
        None => round.cluster().free_gpus(spec.gpu_type),
        Some(_) => free_within(spec, round.cluster()),
    };
    let of_kind = |job: &dovetail_engine::Job| {
        let node = job
            .allocation
            .as_ref()
            .and_then(|a| round.cluster().node(a.shares[0].node));
        let is_kind = |n: &NodeState| spec.gpu_type.is_none_or(|t| n.spec.gpu_type == t);
        match node {
            Some(node) => is_kind(node) && node.admits(spec.constraint),
            None => spec.gpu_type.is_none() && spec.constraint.is_none(),
        }
    };
    let mut ends: Vec<(Time, u32)> = round
        .holders()
        .iter()
        .map(|rank| rank.job)
        .chain(started)
        .map(|job| round.job(job))
        .filter(|job| of_kind(job))
        .filter_map(|job| Some((job.expected_end(round.now())?, job.width())))
        .collect();
    ends.sort_unstable();
    for (at, gpus) in ends {
        free += gpus;
        if free >= spec.gpus {
            return Some(Shadow {
                at,
                spare: free - spec.gpus,
            });
        }
    }
    None
}
