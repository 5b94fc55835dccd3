//! Jobs that were sent through the book: it knows them, with a number, before their pods are there.

use dovetail_cluster::{Fact, Hold, JobId, JobState};
use dovetail_model::Time;

use super::gang::Member;
use super::{Ledger, Reconciler};
use crate::identity::{GangKey, Size};
use crate::past::PastJob;

impl Reconciler {
    /// A gang that is whole says that it is this job, which the book knows.
    pub(super) fn join(&mut self, key: &GangKey, no: JobId, ledger: &mut impl Ledger) {
        let Some(job) = ledger.state().job(no) else { return };
        if job.state.has_ended() {
            // What its owner still makes of it is not started.
            return;
        }
        let gang = &self.gangs[key];
        let user = gang.first().map(|m| m.identity.user.as_str());
        let waits = matches!(job.state, JobState::Held(Hold::Workload | Hold::User(_)));
        if !waits || self.jobs.contains_key(&no) || user != Some(job.user.as_str()) {
            let why = format!(
                "annotation {}: job {no} is another one; leave it out",
                crate::words::NUMBER
            );
            self.gang_entry(key).refused = Some(why);
            return;
        }
        self.gang_entry(key).job = Some(no);
        self.jobs.insert(no, key.clone());
        self.look_at(key, ledger);
    }

    /// Gangs that wait and have a number, those with the smallest first.
    pub(super) fn numbered(&mut self) -> Vec<(JobId, GangKey)> {
        let mut found = Vec::new();
        for gang in self.gangs.values_mut() {
            let Some(first) = gang.waiting().first().map(|m| m.identity.clone()) else {
                continue;
            };
            let bound = gang
                .members
                .values()
                .any(|m| m.is_there() && m.bound_as.is_some());
            if let (Some(no), Size::Known(size, least), false) = (first.number, first.size, bound) {
                gang.size = Some((size, least));
                found.push((no, gang.key.clone()));
            }
        }
        found.sort();
        found.reverse();
        found
    }

    /// Those of them that came before this number are in the book before it, because numbers there only grow. They stand in line
    /// when everything that runs has its place.
    pub(super) fn announce_before(
        &mut self,
        waiting: &mut Vec<(JobId, GangKey)>,
        limit: JobId,
        ledger: &mut impl Ledger,
    ) {
        while let Some((no, key)) = waiting.pop_if(|(no, _)| *no < limit) {
            self.past_before(no, ledger);
            self.announce(&key, no, ledger);
        }
        self.past_before(limit, ledger);
    }

    /// Jobs that are over are known from their objects; the book hears of them when pods are listed.
    pub fn note_past(&mut self, jobs: Vec<PastJob>) {
        self.past = jobs.into_iter().map(|job| (job.number, job)).collect();
    }

    /// When jobs that are over have started, as far as their pods are still there.
    pub(super) fn date_past(&mut self) {
        for member in self.gangs.values().flat_map(|g| g.members.values()) {
            let past = member.identity.number.and_then(|no| self.past.get_mut(&no));
            if let (Some(past), Some(started)) = (past, member.started) {
                let started = Time(started);
                past.started = Some(past.started.map_or(started, |before| before.min(started)));
            }
        }
    }

    fn past_before(&mut self, limit: JobId, ledger: &mut impl Ledger) {
        let later = self.past.split_off(&limit);
        for (job, past) in std::mem::replace(&mut self.past, later) {
            ledger.record(Fact::FoundEnded {
                job,
                user: past.user,
                request: Box::new(past.request),
                submitted: past.submitted,
                started: past.started,
                ended: past.ended,
                end: past.end,
            });
        }
    }

    /// A gang that is whole was sent under this number to a scheduler that is gone.
    fn announce(&mut self, key: &GangKey, no: JobId, ledger: &mut impl Ledger) {
        let gang = &self.gangs[key];
        let Some(members) = gang.those_who_go().filter(|_| no >= ledger.state().next_job()) else {
            return;
        };
        let members: Vec<&Member> = members.iter().collect();
        // On which nodes it may be is said when it stands in line.
        let Ok((user, request)) = self.request(gang, &members, None, ledger) else {
            return;
        };
        ledger.record(Fact::Announced {
            job: no,
            user,
            request: Box::new(request),
            key: None,
        });
        self.gang_entry(key).job = Some(no);
        self.jobs.insert(no, key.clone());
    }
}
