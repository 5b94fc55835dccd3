//! Pods beyond those a gang has to start with. While the gang runs, each of them stands in line for itself, and runs beside
//! it once there is room: it rides on the gang. When the gang is stopped they go, too.

use dovetail_cluster::{Actor, AttemptId, Fact, JobId, JobState};

use super::gang::{Gang, Member};
use super::{Ledger, Reconciler};
use crate::action::{PodId, Removal};
use crate::identity::{GangKey, Identity};

/// Why riders go with their gang.
const STOPPED: &str = "the gang it is part of was stopped";

/// What a rider was bound beside, as it is written on its pod: `17/4/1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    /// The job of its gang.
    pub job: JobId,
    /// The launch of that.
    pub attempt: AttemptId,
    /// Which of those beside it it is, from 1.
    pub number: u32,
}

impl Beside {
    /// As it was written; none if that was not us.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let beside = Self {
            job: parts.next()?.parse().ok()?,
            attempt: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(beside)
    }
}

impl std::fmt::Display for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.job, self.attempt, self.number)
    }
}

fn ride_key(on: &GangKey, number: u32) -> GangKey {
    GangKey {
        namespace: on.namespace.clone(),
        name: format!("{}+{number}", on.name),
        uid: format!("{}+{number}", on.uid),
    }
}

fn launch_is_over() -> Removal {
    Removal {
        reason: "LaunchIsOver",
        message: STOPPED.to_owned(),
        may_wait: false,
        warn_s: 0,
    }
}

impl Gang {
    /// What its job is called.
    pub(super) fn job_name(&self, identity: &Identity) -> String {
        let gang = identity.job_name.clone();
        match &self.rides_on {
            None => gang.unwrap_or_else(|| self.key.to_string()),
            Some(below) => {
                let gang = gang.unwrap_or_else(|| below.to_string());
                format!("{gang} + {}", self.number())
            }
        }
    }

    /// Which of those that ride on its gang it is.
    fn number(&self) -> u32 {
        let number = self.key.name.rsplit('+').next();
        number.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// How many more pods may ride on it. A native group says only with how many it starts.
    fn room_beside(&self) -> usize {
        let Some((size, least)) = self.size else { return 0 };
        if self.key.is_native() {
            return usize::MAX;
        }
        if least >= size {
            return 0;
        }
        let done = self.done().filter(|m| !self.seated(&m.id.uid)).count();
        (size as usize).saturating_sub(self.seats.len() + done + self.riders.len())
    }

    /// Whether a pod waits in it.
    fn has_one_that_waits(&self) -> bool {
        self.members.values().any(Member::waits)
    }
}

impl Reconciler {
    /// The gang that a pod is counted to: its own, or the one it makes alone while it rides on that.
    pub(super) fn gang_or_ride(&mut self, member: &Member) -> GangKey {
        let (uid, own) = (&member.id.uid, &member.identity.key);
        let known = self.pods.get(uid).and_then(|key| self.gangs.get(key));
        if let Some(ride) = known.filter(|g| g.rides_on.as_ref() == Some(own)) {
            return ride.key.clone();
        }
        match member.rides_on.filter(|_| known.is_none() && member.is_there()) {
            Some(on) => self.make_ride(own, ride_key(own, on.number)),
            None => own.clone(),
        }
    }

    /// A gang of one that rides on another.
    fn make_ride(&mut self, on: &GangKey, key: GangKey) -> GangKey {
        let ride = self.gang_entry(&key);
        ride.rides_on = Some(on.clone());
        ride.size = Some((1, 1));
        self.gang_entry(on).riders.insert(key.clone());
        key
    }

    /// Pods of a gang that is up and that have no seat in it stand in line for themselves.
    pub(super) fn let_ride(&mut self, key: &GangKey, ledger: &mut impl Ledger) {
        let gang = &self.gangs[key];
        let mut left = gang.waiting();
        left.retain(|m| !gang.seated(&m.id.uid));
        // Those whose pods were preempted go on with what is made in their place.
        let is_empty = |ride: &&GangKey| self.gangs.get(ride).is_some_and(|g| g.members.is_empty());
        let empty = gang.riders.iter().filter(is_empty).cloned();
        let numbers = 1..=u32::MAX;
        let new = numbers
            .map(|number| ride_key(key, number))
            .filter(|ride| !gang.riders.contains(ride));
        let rides: Vec<GangKey> = empty
            .chain(new.take(gang.room_beside().min(left.len())))
            .take(left.len())
            .collect();
        let left: Vec<Member> = left.into_iter().cloned().collect();
        for (member, ride) in left.into_iter().zip(rides) {
            self.gang_entry(key).members.remove(&member.id.uid);
            let ride = self.make_ride(key, ride);
            self.move_to(&ride, member);
            self.look_at(&ride, ledger);
        }
    }

    fn move_to(&mut self, key: &GangKey, member: Member) {
        self.pods.insert(member.id.uid.clone(), key.clone());
        self.gang_entry(key).members.insert(member.id.uid.clone(), member);
    }

    /// Whether a gang runs, or is about to.
    fn is_up(&self, key: &GangKey, ledger: &impl Ledger) -> bool {
        let job = self.gangs.get(key).and_then(|g| g.job);
        let state = job.and_then(|no| ledger.state().job(no)).map(|job| &job.state);
        matches!(state, Some(JobState::Starting | JobState::Running))
    }

    /// What a pod rides on.
    pub(super) fn beside(&self, ride: &Gang) -> Option<Beside> {
        let below = self.gangs.get(ride.rides_on.as_ref()?)?;
        Some(Beside {
            job: below.job?,
            attempt: below.attempt?,
            number: ride.number(),
        })
    }

    /// A rider without a job goes back to its gang when it is over, or when the gang does not run; whether it did.
    pub(super) fn gets_off(&mut self, key: &GangKey, ledger: &mut impl Ledger) -> bool {
        let Some(ride) = self.gangs.get(key).filter(|g| g.job.is_none()) else {
            return false;
        };
        let Some(below) = ride.rides_on.clone() else {
            return false;
        };
        let up = self.is_up(&below, ledger);
        let off = |m: &&Member| m.phase.is_over() || (m.waits() && !up);
        let off: Vec<Member> = ride.members.values().filter(off).cloned().collect();
        if off.is_empty() {
            return false;
        }
        for member in off {
            self.gang_entry(key).members.remove(&member.id.uid);
            self.move_to(&below, member);
        }
        self.look_at(key, ledger);
        self.look_at(&below, ledger);
        true
    }

    /// Riders of a launch that nobody is left of: whoever led before us died while it was stopped.
    pub(super) fn call_back_the_left(&mut self, ledger: &mut impl Ledger) {
        let left = |(key, below): &(GangKey, GangKey)| {
            let on = self.gangs[key].members.values().find_map(|m| m.rides_on);
            let below = self.gangs.get(below).into_iter().flat_map(|g| g.members.values());
            let mut launches = below.filter_map(|m| m.bound_as.as_ref());
            !launches
                .any(|(job, attempt_id, _)| on.is_some_and(|on| (on.job, on.attempt) == (*job, *attempt_id)))
        };
        let rides = self.gangs.values().filter(|g| g.job.is_some());
        let rides = rides.filter_map(|g| Some((g.key.clone(), g.rides_on.clone()?)));
        let left: Vec<(GangKey, GangKey)> = rides.filter(left).collect();
        for (ride, _) in left {
            self.call_back(&ride, &launch_is_over(), ledger);
        }
    }

    /// A rider is gone.
    pub(super) fn step_down(&mut self, below: &GangKey, ride: &GangKey, ledger: &mut impl Ledger) {
        if let Some(gang) = self.gangs.get_mut(below) {
            gang.riders.remove(ride);
            self.look_at(below, ledger);
        }
    }

    /// Those who ride on a gang that does not run are looked at.
    pub(super) fn look_at_riders(&mut self, key: &GangKey, ledger: &mut impl Ledger) {
        let riders: Vec<GangKey> = self.gangs[key].riders.iter().cloned().collect();
        for ride in riders {
            self.look_at(&ride, ledger);
        }
    }

    /// A rider whose gang was stopped goes where the pods of that go, and is part of it again if it waits; whether that
    /// is so. Those that run when their gang has come to its end run on.
    pub(super) fn goes_with_its_gang(&mut self, key: &GangKey, ledger: &mut impl Ledger) -> bool {
        let ride = &self.gangs[key];
        let Some(below) = ride.rides_on.as_ref().filter(|below| !self.is_up(below, ledger)) else {
            return false;
        };
        let below = self.gangs.get(below).and_then(|g| g.job);
        let on = ride.members.values().find_map(|m| m.rides_on);
        if on.is_some_and(|on| Some(on.job) != below) {
            return false;
        }
        let state = below.and_then(|no| ledger.state().job(no)).map(|job| &job.state);
        let why = match (below, state) {
            (Some(no), Some(JobState::Stopping(_))) => self.removal(no, ledger),
            _ => launch_is_over(),
        };
        self.call_back(key, &why, ledger);
        true
    }

    fn call_back(&mut self, ride: &GangKey, why: &Removal, ledger: &mut impl Ledger) {
        let Some(gang) = self.gangs.get(ride) else { return };
        let there = gang.members.values().filter(|m| m.is_there());
        let there: Vec<PodId> = there.map(|m| m.id.clone()).collect();
        for pod in there {
            self.remove(ride, &pod, why);
        }
        self.withdraw(ride, STOPPED, ledger);
        self.look_at(ride, ledger);
    }

    /// The job of a rider is not to go on.
    fn withdraw(&mut self, ride: &GangKey, why: &str, ledger: &mut impl Ledger) {
        let job = self.gangs.get(ride).and_then(|g| g.job);
        let state = job.and_then(|no| ledger.state().job(no)).map(|job| &job.state);
        let over = matches!(state, None | Some(JobState::Ended(_) | JobState::Stopping(_)));
        if let Some(job) = job.filter(|_| !over) {
            ledger.record(Fact::Cancelled {
                job,
                by: Actor::kubernetes(why),
            });
        }
    }

    /// Pods for the seats that are empty: those that are there, and then those that wait to ride.
    pub(super) fn spare_or_rider(&mut self, key: &GangKey, ledger: &mut impl Ledger) -> Vec<(usize, PodId)> {
        let gang = &self.gangs[key];
        let spare = self.spare(gang);
        let empty = |at: &usize| gang.is_empty_seat(*at) && spare.iter().all(|(taken, _)| taken != at);
        let mut wanted: Vec<_> = (0..gang.seats.len())
            .filter(empty)
            .map(|at| gang.seats[at].needs)
            .collect();
        if wanted.is_empty() || gang.riders.is_empty() {
            return spare;
        }
        let waits = |ride: &&Gang| {
            let job = ride.job.and_then(|no| ledger.state().job(no));
            let in_line = job.is_none_or(|j| matches!(j.state, JobState::Queued | JobState::Held(_)));
            in_line && ride.has_one_that_waits()
        };
        let riders = gang.riders.iter().filter_map(|ride| self.gangs.get(ride));
        let mut chosen = Vec::new();
        for ride in riders.filter(waits) {
            let needs = ride.first().map(|m| m.identity.needs);
            if let Some(at) = wanted.iter().position(|w| Some(*w) == needs) {
                wanted.swap_remove(at);
                chosen.push(ride.key.clone());
            }
        }
        for ride in &chosen {
            self.withdraw(ride, "it took a place in its gang", ledger);
            let gang = self.gang_entry(ride);
            let (job, members) = (gang.job.take(), std::mem::take(&mut gang.members));
            if let Some(no) = job {
                self.jobs.remove(&no);
            }
            for member in members.into_values() {
                self.move_to(key, member);
            }
            self.look_at(ride, ledger);
        }
        self.spare(&self.gangs[key])
    }
}
