//! `reproduce lab6-*`: the five experiments of Lab 6 on OpenPAI with HiveD, from its two clusters and eight jobs.

use std::path::Path;

use dovetail_model::Time;
use dovetail_workload::{PaiJob, read_openpai};

use super::super::{Claim, Outcome, data};
use super::story::{Piece, Story, clock, minutes};
use crate::args::ReproduceArgs;
use crate::failure::{Blame, Failure};

const TWO_TENANTS: &str = "lab6-config-A-two-vcs.yaml";
const ONE_TENANT: &str = "lab6-config-B-one-vc.yaml";
/// How long one epoch of MNIST takes. The lab does not say; `sleep` in a job's commands comes on top.
const TRAINS_MINUTES: i64 = 2;

/// A job that somebody submits.
pub(super) struct Submission {
    pub(super) at: Time,
    pub(super) user: &'static str,
    pub(super) job: PaiJob,
}

/// The jobs of the lab, by number.
struct Jobs(Vec<PaiJob>);

impl Jobs {
    fn read(folder: &Path) -> Result<Self, Failure> {
        let file = folder.join("lab6-jobs.json");
        let jobs = read_openpai(&file).or_request()?;
        if let Some(missing) = (0..8).find(|n| !jobs.iter().any(|j| j.name == name(*n))) {
            return Err(Failure::request(format!(
                "{}: there is no {}; expected the eight jobs of the lab",
                file.display(),
                name(missing)
            )));
        }
        Ok(Self(jobs))
    }

    /// Somebody submits the job with this number at so many minutes, changed if the lab says so.
    fn submit(
        &self,
        minute: i64,
        user: &'static str,
        number: u32,
        change: impl Fn(&mut PaiJob),
    ) -> Submission {
        let found = self.0.iter().find(|j| j.name == name(number));
        let mut job = found.expect("all eight are there").clone();
        change(&mut job);
        Submission {
            at: minutes(minute),
            user,
            job,
        }
    }
}

fn name(number: u32) -> String {
    format!("job-config-{number}")
}

fn unchanged(_: &mut PaiJob) {}

/// Tells the story of these submissions on a cluster of the lab.
fn tell(
    args: &ReproduceArgs,
    config: &str,
    submissions: impl Fn(&Jobs) -> Vec<Submission>,
) -> Result<Story, Failure> {
    let folder = data(args, "hived")?;
    let jobs = Jobs::read(&folder)?;
    Story::tell(
        &folder.join("configs").join(config),
        &submissions(&jobs),
        minutes(TRAINS_MINUTES),
    )
}

fn outcome(story: &Story, claims: Vec<Claim>, more: &[&str]) -> Outcome {
    let mut notes = vec![format!(
        "one epoch takes {TRAINS_MINUTES} minutes, and `sleep` comes on top; a job that is stopped starts from scratch; \
         every instance runs to its end"
    )];
    notes.extend(more.iter().map(|n| (*n).to_owned()));
    Outcome {
        table: story.table(),
        claims,
        notes,
        figures: vec![story.figure()],
        data: story.json(),
    }
}

/// Experiment 1: four users, one virtual cluster of one machine.
pub(in super::super) fn vc_safety(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let users = ["alice", "bob", "carol", "dan"];
    let story = tell(args, TWO_TENANTS, |jobs| {
        users
            .iter()
            .map(|user| jobs.submit(0, user, 0, unchanged))
            .collect()
    })?;
    let mut pieces: Vec<Piece> = story.pieces(|_| true);
    pieces.sort_by_key(|p| p.start);
    let in_turn = pieces.windows(2).all(|w| w[0].end == w[1].start);
    let nodes: Vec<&str> = pieces.iter().map(|p| p.node.as_str()).collect();
    let starts: Vec<String> = pieces.iter().map(|p| clock(p.start)).collect();
    let claims = vec![
        Claim::new(
            format!(
                "one of the four runs at a time: each starts when the one before ends, at {}",
                starts.join(", ")
            ),
            pieces.len() == 4 && in_turn && pieces[0].start == Time::ZERO,
        ),
        Claim::new(
            "all run on hostname-dan, which vc1 owns; hostname-carol of the other virtual cluster stays idle although jobs \
             wait",
            nodes == ["hostname-dan"; 4],
        ),
        Claim::new(
            "whoever waits is told that the one machine of vc1 is held, and by whom",
            users[1..].iter().all(|user| {
                let waits = story.waits(&format!("{user}~job-config-0"));
                waits
                    .first()
                    .is_some_and(|w| w.contains("vc1") && w.contains("alice~job-config-0"))
            }),
        ),
    ];
    Ok(outcome(&story, claims, &[]))
}

/// Experiment 2: a job of higher priority comes to a full virtual cluster.
pub(in super::super) fn preemption(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let story = tell(args, TWO_TENANTS, |jobs| {
        vec![
            jobs.submit(0, "alice", 1, unchanged),
            jobs.submit(3, "bob", 2, unchanged),
        ]
    })?;
    let (low, high) = (story.of("alice~job-config-1"), story.of("bob~job-config-2"));
    let [first, again] = &low[..] else {
        return Ok(outcome(
            &story,
            vec![Claim::new("job-config-1 runs twice", false)],
            &[],
        ));
    };
    let whole = minutes(TRAINS_MINUTES + 5);
    let claims = vec![
        Claim::new(
            format!(
                "job-config-2 (prod) does not wait for job-config-1 (test) to end: it comes and starts at {}",
                clock(high[0].start)
            ),
            high.len() == 1 && high[0].start == minutes(3) && first.end == minutes(3),
        ),
        Claim::new(
            format!(
                "job-config-1 is retried by itself: it waits and starts again at {}, when job-config-2 ends, as attempt 2",
                clock(again.start)
            ),
            again.start == high[0].end && story.attempts("alice~job-config-1") == 2,
        ),
        Claim::new(
            format!(
                "it starts from scratch: {} of work take it until {}, and the first {} are lost",
                clock(whole),
                clock(again.end),
                clock(first.end - first.start)
            ),
            again.end - again.start == whole && high[0].end - high[0].start == whole,
        ),
    ];
    Ok(outcome(&story, claims, &[]))
}

/// Experiment 3: a job that borrows.
pub(in super::super) fn opportunistic(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let story = tell(args, TWO_TENANTS, |jobs| {
        vec![
            jobs.submit(0, "alice", 3, unchanged),
            jobs.submit(1, "bob", 4, unchanged),
            jobs.submit(3, "carol", 1, |job| job.virtual_cluster = "default".to_owned()),
        ]
    })?;
    let (own, lent, owner) = (
        story.of("alice~job-config-3"),
        story.of("bob~job-config-4"),
        story.of("carol~job-config-1"),
    );
    let [borrowed, later] = &lent[..] else {
        return Ok(outcome(
            &story,
            vec![Claim::new("job-config-4 runs twice", false)],
            &[],
        ));
    };
    let on = |piece: &Piece, host: &str| piece.node == host;
    let claims = vec![
        Claim::new(
            "job-config-4 (oppo) of vc1 starts at once, on hostname-carol, which belongs to another virtual cluster and is idle",
            borrowed.start == minutes(1) && on(borrowed, "hostname-carol") && on(&own[0], "hostname-dan"),
        ),
        Claim::new(
            format!(
                "when the owner comes, at {}, job-config-4 is stopped and the owner has its machine at once",
                clock(owner[0].start)
            ),
            owner.len() == 1
                && owner[0].start == minutes(3)
                && on(&owner[0], "hostname-carol")
                && borrowed.end == minutes(3),
        ),
        Claim::new(
            format!(
                "job-config-4 waits while no machine is idle, and starts on hostname-dan at {}, when job-config-3 ends",
                clock(later.start)
            ),
            later.start == own[0].end && on(later, "hostname-dan") && story.attempts("bob~job-config-4") == 2,
        ),
        Claim::new("job-config-3 (prod) is never disturbed", own.len() == 1),
    ];
    Ok(outcome(
        &story,
        claims,
        &["carol's job is job-config-1 (test) sent to the virtual cluster default"],
    ))
}

/// Experiment 4: all instances or none.
pub(in super::super) fn gang(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let story = tell(args, ONE_TENANT, |jobs| {
        vec![
            jobs.submit(0, "alice", 5, unchanged),
            jobs.submit(1, "bob", 6, unchanged),
        ]
    })?;
    let (first, both) = (story.of("alice~job-config-5"), story.of("bob~job-config-6"));
    let mut nodes: Vec<&str> = both.iter().map(|p| p.node.as_str()).collect();
    nodes.sort_unstable();
    let claims = vec![
        Claim::new(
            "no instance of job-config-6 starts while only one of two machines is free, idle as it is",
            both.iter().all(|p| p.start >= first[0].end),
        ),
        Claim::new(
            format!(
                "both start together at {}, when job-config-5 ends, one on each machine",
                clock(both[0].start)
            ),
            both.iter().all(|p| p.start == first[0].end) && nodes == ["hostname-carol", "hostname-dan"],
        ),
    ];
    Ok(outcome(&story, claims, &[]))
}

/// Experiment 5: instances on their own, also more of them than there are machines.
pub(in super::super) fn incremental(args: &ReproduceArgs) -> Result<Outcome, Failure> {
    let four = |job: &mut PaiJob| job.roles[0].instances = 4;
    let story = tell(args, ONE_TENANT, |jobs| {
        vec![
            jobs.submit(0, "alice", 5, unchanged),
            jobs.submit(6, "bob", 7, unchanged),
            jobs.submit(10, "carol", 7, four),
            jobs.submit(10, "dan", 6, four),
        ]
    })?;
    let first = story.of("alice~job-config-5");
    let bob = [0, 1].map(|i| story.of(&format!("bob~job-config-7/train-{i}")));
    let mut carol = story.pieces(|name| name.starts_with("carol~"));
    carol.sort_by_key(|p| p.start);
    let starts: Vec<Time> = carol.iter().map(|p| p.start).collect();
    let shown: Vec<String> = starts.iter().map(|t| clock(*t)).collect();
    let claims = vec![
        Claim::new(
            format!(
                "instance 0 of job-config-7 starts at once, at {}, on the machine that is free",
                clock(bob[0][0].start)
            ),
            bob[0][0].start == minutes(6) && bob[0][0].node != first[0].node,
        ),
        Claim::new(
            format!(
                "instance 1 waits until job-config-5 ends, at {}, and takes its machine",
                clock(bob[1][0].start)
            ),
            bob[1][0].start == first[0].end && bob[1][0].node == first[0].node,
        ),
        Claim::new(
            format!(
                "four instances on their own are taken: two run, two wait and start as machines become free, at {}",
                shown.join(", ")
            ),
            starts == [10, 10, 12, 12].map(minutes),
        ),
        Claim::new(
            "four instances as a gang are refused at once: the virtual cluster owns two",
            story.refusal("dan~job-config-6").is_some(),
        ),
    ];
    Ok(outcome(
        &story,
        claims,
        &["carol's and dan's jobs are job-config-7 and job-config-6 with four instances"],
    ))
}
