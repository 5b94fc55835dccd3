//! The first step of a decision: who gets in.

use std::borrow::Cow;

use dovetail_model::{Command, JobId, JobSpec, Reason};

use crate::engine::Engine;
use crate::job::Stage;
use crate::parts::{Policy, Verdict};
use crate::state::State;

impl Engine {
    /// Lets held jobs in, first come first served in each lane, then new ones, which queue up behind them.
    pub(crate) fn admit(&mut self) {
        if self.state.held.is_empty() && self.state.inbox.is_empty() {
            return;
        }
        let lanes: Vec<u64> = self.state.held.keys().copied().collect();
        for lane in lanes {
            while let Some(id) = self.state.held.get(&lane).and_then(|l| l.front().copied()) {
                if self.judge(id).is_none() {
                    break;
                }
                self.state
                    .held
                    .get_mut(&lane)
                    .expect("looked at above")
                    .pop_front();
            }
        }
        self.state.held.retain(|_, lane| !lane.is_empty());
        for id in std::mem::take(&mut self.state.inbox) {
            let lane = self.policy.admission.lane(&self.state.known(id).spec);
            let must_queue = self.state.held.contains_key(&lane);
            if must_queue || self.judge(id).is_none() {
                self.state.entry(id).job.stage = Stage::Held;
                self.state.held.entry(lane).or_default().push_back(id);
            }
        }
    }

    /// Lets the job in or turns it away; nothing if it is to be held.
    fn judge(&mut self, id: JobId) -> Option<()> {
        match verdict(&mut self.policy, &self.state, id) {
            Verdict::Admit => {
                let State { jobs, demand, .. } = &mut self.state;
                let entry = jobs[id].as_mut().expect("who asks to be let in is in the table");
                entry.job.stage = Stage::Active;
                demand.add(&entry.job.spec);
                self.state.mark_stale(id);
            }
            Verdict::Reject(reason) => {
                self.state.forget(id, &mut *self.policy.tenancy);
                self.push_command(Command::Reject { job: id, reason });
            }
            Verdict::Hold(_) => return None,
        }
        Some(())
    }
}

/// What admission says of a job now. A job without GPUs, or with bounds that cannot be, never gets in.
pub(crate) fn verdict(policy: &mut Policy, state: &State, id: JobId) -> Verdict {
    let spec = &state.known(id).spec;
    if spec.gpus == 0 || spec.min_gpus == 0 || spec.min_gpus > spec.max_gpus {
        return Verdict::Reject(Reason::Malformed { gpus: spec.gpus });
    }
    // A sizing that does not shrink jobs needs room for all that was asked for.
    let min_gpus = policy.sizing.least(spec);
    let spec = match min_gpus == spec.min_gpus {
        true => Cow::Borrowed(spec),
        false => Cow::Owned(JobSpec {
            min_gpus,
            ..spec.clone()
        }),
    };
    if let Err(reason) = policy.tenancy.ever(&spec) {
        return Verdict::Reject(reason);
    }
    policy.admission.admit(&spec, &state.demand, &state.cluster)
}
