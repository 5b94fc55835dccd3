//! Saving an engine, building it again, and looking into it.

use dovetail_model::{Command, JobId, Time};
use serde::{Serialize, Serializer};

use crate::crowd::Crowd;
use crate::engine::{Engine, Snapshot};
use crate::job::Job;
use crate::parts::Policy;

impl Engine {
    /// Everything it takes to build this engine again.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: self.state.clone(),
            books: self.books.clone(),
            commands: self.commands.clone(),
            parts: self.policy.parts().map(|(_, part)| part.save()),
        }
    }

    /// The engine a snapshot was taken of. `policy` must be made of the same parts.
    ///
    /// # Errors
    /// Says which part does not understand its saved state.
    pub fn restore(snapshot: Snapshot, mut policy: Policy) -> Result<Self, String> {
        policy.load(&snapshot.parts)?;
        let mut engine = Self {
            state: snapshot.state,
            policy,
            books: snapshot.books,
            commands: snapshot.commands,
        };
        engine.state.suit(&engine.policy);
        engine.state.rebuild(&*engine.policy.tenancy);
        engine.tell_tenancy();
        Ok(engine)
    }
}

impl Serialize for Engine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.snapshot().serialize(serializer)
    }
}

/// What a driver may look at.
impl Engine {
    /// The moment of the last fact.
    pub fn now(&self) -> Time {
        self.state.now
    }

    /// The nodes.
    pub fn cluster(&self) -> &crate::cluster::Cluster {
        &self.state.cluster
    }

    /// A job, while it lives.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.state.job(id)
    }

    /// All jobs that live, in order of submission.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.state.jobs()
    }

    /// Jobs that live and are not meant to hold GPUs, and the GPUs they ask for.
    pub fn idle(&self) -> (u32, u64) {
        (self.state.idle_jobs, self.state.idle_gpus)
    }

    /// Jobs that are meant to hold GPUs.
    pub fn holding(&self) -> u32 {
        self.state.holding_jobs
    }

    /// How crowded it is, now and so far.
    pub fn crowd(&self) -> Crowd {
        self.state.crowd()
    }

    /// How many decisions were taken.
    pub fn decisions(&self) -> u64 {
        self.books.decisions
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}

impl Engine {
    pub(crate) fn push_command(&mut self, command: Command) {
        self.commands.push_back(command);
    }
}

impl Engine {
    /// What was measured of jobs that share GPUs, for groupings that weigh pairs.
    pub fn set_slowdowns(&mut self, slowdowns: dovetail_model::Slowdowns) {
        self.state.slowdowns = slowdowns;
    }

    /// The tree above the nodes, for placements that look at racks.
    pub fn set_zones(&mut self, zones: dovetail_model::IdVec<dovetail_model::ZoneId, dovetail_model::Zone>) {
        self.state.cluster.zones = zones;
    }
}
