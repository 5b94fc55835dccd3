//! `reproduce lab6-*`: the five experiments of Lab 6 on OpenPAI with HiveD, with its two clusters and eight jobs.

use std::path::Path;

use dovetail_model::Time;
use dovetail_workload::{PaiJob, read_openpai};

use super::submissions::Submission;
use super::timeline::{Segment, Timeline, clock};
use crate::data::data_folder;
use crate::{Options, Report, ReproduceError, Statement};

const TWO_TENANTS: &str = "lab6-config-A-two-vcs.yaml";
const ONE_TENANT: &str = "lab6-config-B-one-vc.yaml";
/// Number of jobs that the lab defines.
const LAB_JOBS: u32 = 8;
/// Duration of one epoch of MNIST, which the lab does not state. The `sleep` of a job's commands is added.
const EPOCH_MINUTES: i64 = 2;

/// The jobs of the lab.
struct LabJobs(Vec<PaiJob>);

impl LabJobs {
    fn read(folder: &Path) -> Result<Self, ReproduceError> {
        let path = folder.join("lab6-jobs.json");
        let jobs = read_openpai(&path)?;
        let is_missing = |number: &u32| !jobs.iter().any(|job| job.name == job_name(*number));
        match (0..LAB_JOBS).find(is_missing) {
            None => Ok(Self(jobs)),
            Some(number) => Err(ReproduceError::MissingLabJob {
                path,
                job: job_name(number),
            }),
        }
    }

    /// Submits the job with this number at a minute.
    fn submit(&self, minute: i64, user: &'static str, number: u32) -> Submission {
        self.submit_changed(minute, user, number, |_| {})
    }

    /// Submits the job with this number at a minute, after changing it.
    fn submit_changed(
        &self,
        minute: i64,
        user: &'static str,
        number: u32,
        change: impl Fn(&mut PaiJob),
    ) -> Submission {
        let found = self.0.iter().find(|job| job.name == job_name(number));
        let mut job = found.expect("all jobs of the lab were found").clone();
        change(&mut job);
        Submission {
            at: minutes(minute),
            user,
            job,
        }
    }
}

fn job_name(number: u32) -> String {
    format!("job-config-{number}")
}

fn minutes(n: i64) -> Time {
    Time::from_secs(n * 60)
}

/// Runs submissions on a cluster of the lab.
fn run(
    options: &Options,
    config: &str,
    submissions: impl Fn(&LabJobs) -> Vec<Submission>,
) -> Result<Timeline, ReproduceError> {
    let folder = data_folder(options, "hived")?;
    let jobs = LabJobs::read(&folder)?;
    Timeline::run(
        &folder.join("configs").join(config),
        &submissions(&jobs),
        minutes(EPOCH_MINUTES),
    )
}

fn report(timeline: &Timeline, statements: Vec<Statement>, more_notes: &[&str]) -> Report {
    let mut notes = vec![format!(
        "one epoch takes {EPOCH_MINUTES} minutes plus the job's `sleep`; a stopped job starts from scratch; every instance \
         runs to its end"
    )];
    notes.extend(more_notes.iter().map(|note| (*note).to_owned()));
    Report {
        table: timeline.table(),
        statements,
        notes,
        figures: vec![timeline.figure()],
        data: timeline.to_json(),
    }
}

/// Experiment 1: four users share a virtual cluster of one machine.
pub(crate) fn vc_safety(options: &Options) -> Result<Report, ReproduceError> {
    let users = ["alice", "bob", "carol", "dan"];
    let timeline = run(options, TWO_TENANTS, |jobs| {
        users.iter().map(|user| jobs.submit(0, user, 0)).collect()
    })?;
    let segments = timeline.segments(|_| true);
    let is_in_turn = segments.windows(2).all(|pair| pair[0].end == pair[1].start);
    let nodes: Vec<&str> = segments.iter().map(|segment| segment.node.as_str()).collect();
    let starts: Vec<String> = segments.iter().map(|segment| clock(segment.start)).collect();
    let names_holder = |user: &&str| {
        let job = format!("{user}~job-config-0");
        let reasons = timeline.waiting_reasons(&job);
        reasons
            .first()
            .is_some_and(|reason| reason.contains("vc1") && reason.contains("alice~job-config-0"))
    };
    let statements = vec![
        Statement::new(
            format!(
                "one of the four jobs runs at a time, each starts when the previous one ends: at {}",
                starts.join(", ")
            ),
            segments.len() == 4 && is_in_turn && segments[0].start == Time::ZERO,
        ),
        Statement::new(
            "all run on hostname-dan, which vc1 owns; hostname-carol of the other virtual cluster stays idle although jobs \
             wait",
            nodes == ["hostname-dan"; 4],
        ),
        Statement::new(
            "the explanation of a waiting job names the one machine of vc1 and the job that holds it",
            users[1..].iter().all(names_holder),
        ),
    ];
    Ok(report(&timeline, statements, &[]))
}

/// Experiment 2: a job of higher priority is submitted to a full virtual cluster.
pub(crate) fn preemption(options: &Options) -> Result<Report, ReproduceError> {
    let timeline = run(options, TWO_TENANTS, |jobs| {
        vec![jobs.submit(0, "alice", 1), jobs.submit(3, "bob", 2)]
    })?;
    let low = timeline.segments_of("alice~job-config-1");
    let high = timeline.segments_of("bob~job-config-2");
    let ([first, second], [prod]) = (&low[..], &high[..]) else {
        let failed = Statement::new("job-config-1 runs twice, job-config-2 once", false);
        return Ok(report(&timeline, vec![failed], &[]));
    };
    let run_time = minutes(EPOCH_MINUTES + 5);
    let statements = vec![
        Statement::new(
            format!(
                "job-config-2 (prod) does not wait until job-config-1 (test) ends: it is submitted and starts at {}",
                clock(prod.start)
            ),
            prod.start == minutes(3) && first.end == minutes(3),
        ),
        Statement::new(
            format!(
                "job-config-1 is queued again and restarts as attempt 2 at {}, when job-config-2 ends",
                clock(second.start)
            ),
            second.start == prod.end && timeline.attempts("alice~job-config-1") == 2,
        ),
        Statement::new(
            format!(
                "it starts from scratch: its run of {} ends at {}, and the first {} are lost",
                clock(run_time),
                clock(second.end),
                clock(first.end - first.start)
            ),
            second.end - second.start == run_time && prod.end - prod.start == run_time,
        ),
    ];
    Ok(report(&timeline, statements, &[]))
}

/// Experiment 3: an opportunistic job borrows an idle machine.
pub(crate) fn opportunistic(options: &Options) -> Result<Report, ReproduceError> {
    let timeline = run(options, TWO_TENANTS, |jobs| {
        vec![
            jobs.submit(0, "alice", 3),
            jobs.submit(1, "bob", 4),
            jobs.submit_changed(3, "carol", 1, |job| job.virtual_cluster = "default".to_owned()),
        ]
    })?;
    let guaranteed = timeline.segments_of("alice~job-config-3");
    let borrower = timeline.segments_of("bob~job-config-4");
    let owner = timeline.segments_of("carol~job-config-1");
    let ([guaranteed], [borrowed, later], [owner]) = (&guaranteed[..], &borrower[..], &owner[..]) else {
        let failed = Statement::new(
            "job-config-4 runs twice, job-config-3 and job-config-1 once",
            false,
        );
        return Ok(report(&timeline, vec![failed], &[]));
    };
    let is_on = |segment: &Segment, host: &str| segment.node == host;
    let statements = vec![
        Statement::new(
            "job-config-4 (oppo) of vc1 starts immediately, on hostname-carol, which belongs to another virtual cluster and \
             is idle",
            borrowed.start == minutes(1)
                && is_on(borrowed, "hostname-carol")
                && is_on(guaranteed, "hostname-dan"),
        ),
        Statement::new(
            format!(
                "when the owner submits a job, at {}, job-config-4 is stopped and the owner gets its machine immediately",
                clock(owner.start)
            ),
            owner.start == minutes(3) && is_on(owner, "hostname-carol") && borrowed.end == minutes(3),
        ),
        Statement::new(
            format!(
                "job-config-4 waits while no machine is idle, and starts on hostname-dan at {}, when job-config-3 ends",
                clock(later.start)
            ),
            later.start == guaranteed.end
                && is_on(later, "hostname-dan")
                && timeline.attempts("bob~job-config-4") == 2,
        ),
        Statement::new(
            "job-config-3 (prod) is never stopped",
            timeline.attempts("alice~job-config-3") == 1,
        ),
    ];
    let note = "carol's job is job-config-1 (test), submitted to the virtual cluster default";
    Ok(report(&timeline, statements, &[note]))
}

/// Experiment 4: the instances of a gang start together or not at all.
pub(crate) fn gang(options: &Options) -> Result<Report, ReproduceError> {
    let timeline = run(options, ONE_TENANT, |jobs| {
        vec![jobs.submit(0, "alice", 5), jobs.submit(1, "bob", 6)]
    })?;
    let first = timeline.segments_of("alice~job-config-5");
    let gang = timeline.segments_of("bob~job-config-6");
    let mut nodes: Vec<&str> = gang.iter().map(|segment| segment.node.as_str()).collect();
    nodes.sort_unstable();
    let statements = vec![
        Statement::new(
            "no instance of job-config-6 starts while only one of two machines is idle",
            gang.iter().all(|segment| segment.start >= first[0].end),
        ),
        Statement::new(
            format!(
                "both start together at {}, when job-config-5 ends, one on each machine",
                clock(gang[0].start)
            ),
            gang.iter().all(|segment| segment.start == first[0].end)
                && nodes == ["hostname-carol", "hostname-dan"],
        ),
    ];
    Ok(report(&timeline, statements, &[]))
}

/// Experiment 5: instances start independently, also more of them than there are machines.
pub(crate) fn incremental(options: &Options) -> Result<Report, ReproduceError> {
    let four = |job: &mut PaiJob| job.roles[0].instances = 4;
    let timeline = run(options, ONE_TENANT, |jobs| {
        vec![
            jobs.submit(0, "alice", 5),
            jobs.submit(6, "bob", 7),
            jobs.submit_changed(10, "carol", 7, four),
            jobs.submit_changed(10, "dan", 6, four),
        ]
    })?;
    let first = timeline.segments_of("alice~job-config-5");
    let bob = [0, 1].map(|i| timeline.segments_of(&format!("bob~job-config-7/train-{i}")));
    let carol = timeline.segments(|name| name.starts_with("carol~"));
    let starts: Vec<Time> = carol.iter().map(|segment| segment.start).collect();
    let start_texts: Vec<String> = starts.iter().map(|time| clock(*time)).collect();
    let statements = vec![
        Statement::new(
            format!(
                "instance 0 of job-config-7 starts immediately, at {}, on the idle machine",
                clock(bob[0][0].start)
            ),
            bob[0][0].start == minutes(6) && bob[0][0].node != first[0].node,
        ),
        Statement::new(
            format!(
                "instance 1 waits until job-config-5 ends, at {}, and gets its machine",
                clock(bob[1][0].start)
            ),
            bob[1][0].start == first[0].end && bob[1][0].node == first[0].node,
        ),
        Statement::new(
            format!(
                "four independent instances are accepted: two run, two wait and start when machines become idle, at {}",
                start_texts.join(", ")
            ),
            starts == [10, 10, 12, 12].map(minutes),
        ),
        Statement::new(
            "four instances as a gang are rejected immediately: the virtual cluster owns two",
            timeline.is_rejected("dan~job-config-6"),
        ),
    ];
    let note = "carol's and dan's jobs are job-config-7 and job-config-6 with four instances";
    Ok(report(&timeline, statements, &[note]))
}
