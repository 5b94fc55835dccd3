//! Building a plan on an emptied cluster, for disciplines that keep an order of their own.

use dovetail_model::{Allocation, JobId, Reason};

use crate::job::Job;
use crate::parts::{Ask, Claim};
use crate::replan::resized;
use crate::round::Round;

impl Round<'_> {
    /// Takes the GPUs of everyone away, in the draft. Who gets the same ones again never notices.
    pub fn clear(&mut self) {
        for holder in self.holders() {
            self.draft.unassign(self.state, self.tenancy, holder.job);
        }
    }

    /// What the grouping makes of these jobs in this order, each at its own size.
    pub fn claims(&mut self, line: &[JobId]) -> Vec<Claim> {
        let gpus = self.state.cluster.total_gpus(None);
        let state = &*self.state;
        let sized: Vec<(&Job, u32)> = line
            .iter()
            .map(|id| state.known(*id))
            .map(|job| (job, self.sizing.ask(job, &state.cluster).gpus))
            .collect();
        self.grouping.see(&state.cluster);
        self.grouping.group(&sized, gpus, state.now)
    }

    /// Puts all members of a claim, none of which holds GPUs, on one set of GPUs.
    ///
    /// # Errors
    /// Says why there is no place.
    pub fn put(&mut self, claim: &Claim) -> Result<(), Reason> {
        let first = self.state.known(claim.members[0]);
        let fills = |m: &JobId| self.state.known(*m).spec.gpu_memory_mib;
        let ask = Ask {
            gpus: claim.gpus,
            gpus_per_task: self.bundle(claim),
            gpu_memory_mib: claim.members.iter().map(fills).sum(),
            ..self.sizing.ask(first, &self.state.cluster)
        };
        let place = self
            .tenancy
            .place(first, &ask, &self.state.cluster, self.placement)?;
        for (i, member) in claim.members.iter().enumerate() {
            let share = resized(
                &place,
                &self.sizing.ask(self.state.known(*member), &self.state.cluster),
            );
            let fence = self.state.known(*member).spec.fence;
            if i == 0 || self.state.cluster.admits(&share, fence) {
                self.put_on(*member, share, i > 0);
            }
        }
        Ok(())
    }

    /// The bundle that suits all members of a claim: all of it on one node where nothing less does.
    pub(crate) fn bundle(&self, claim: &Claim) -> u32 {
        let each = claim
            .members
            .iter()
            .map(|m| self.state.known(*m).spec.gpus_per_task);
        each.fold(1, |all, one| {
            let (all, one) = (u64::from(all), u64::from(one.max(1)));
            let common = all / common_divisor(all, one) * one;
            u32::try_from(common).unwrap_or(u32::MAX).min(claim.gpus.max(1))
        })
    }

    /// Puts a job that holds nothing on these GPUs; with `share`, others may be there already.
    pub fn put_on(&mut self, job: JobId, place: Allocation, share: bool) {
        self.draft.assign(self.state, self.tenancy, job, place, share);
    }
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
