//! Planning where tenants have limits: account by account, guaranteed jobs before opportunistic ones.

use std::collections::BTreeMap;

use dovetail_model::JobKey;

use super::{Replan, Selection};
use crate::parts::{Claim, JobClass};
use crate::queue_key::Rank;

/// Jobs of one account, in queue order, and which of them should run.
#[derive(Debug, Default)]
struct Account {
    queue: Vec<Rank>,
    selection: Selection,
}

impl Replan<'_, '_> {
    /// Plans each account for what it may hold, so that no job shares GPUs with another tenant or is sized by what others
    /// own. All opportunistic jobs are set aside while the guaranteed ones are placed, and return to their GPUs where
    /// these are still free.
    pub(super) fn run_by_account(&mut self, queue: &[Rank]) {
        let (mut guaranteed, mut opportunistic) = self.accounts(queue);
        for account in opportunistic.values() {
            self.release_all_but(&[], &account.queue);
        }
        for account in guaranteed.values_mut() {
            self.select_account(account, u32::MAX);
            self.release_all_but(&account.selection.chosen, &account.queue);
        }
        for account in guaranteed.values() {
            self.start_claims(&account.selection.chosen);
        }
        for account in guaranteed.values().filter(|a| a.selection.rigid) {
            self.start_fitting(&account.queue);
        }
        let free = self.planner.state.cluster.free_gpus(None);
        for account in opportunistic.values_mut() {
            self.select_account(account, free);
        }
        let chosen = opportunistic
            .values()
            .flat_map(|a| a.selection.chosen.iter().cloned());
        self.start_claims(&in_queue_order(queue, chosen));
        let rigid = opportunistic.values().filter(|a| a.selection.rigid);
        let mut rigid: Vec<Rank> = rigid.flat_map(|a| a.queue.iter().copied()).collect();
        rigid.sort_unstable();
        self.return_jobs(&rigid);
        self.start_fitting(&rigid);
    }

    /// Returns the accounts of guaranteed and of opportunistic jobs.
    fn accounts(&self, queue: &[Rank]) -> (BTreeMap<u64, Account>, BTreeMap<u64, Account>) {
        let (mut guaranteed, mut opportunistic) = (BTreeMap::new(), BTreeMap::new());
        let limit = &*self.planner.steps.limit;
        for rank in queue {
            let spec = &self.planner.job(rank.job).spec;
            let accounts: &mut BTreeMap<u64, Account> = match limit.class(spec) {
                JobClass::Guaranteed => &mut guaranteed,
                JobClass::Opportunistic => &mut opportunistic,
            };
            let account = accounts.entry(limit.account(spec)).or_default();
            account.queue.push(*rank);
        }
        (guaranteed, opportunistic)
    }

    /// Selects which jobs of an account run, on at most `max_gpus` GPUs.
    fn select_account(&mut self, account: &mut Account, max_gpus: u32) {
        let Some(first) = account.queue.first() else {
            return;
        };
        let spec = &self.planner.job(first.job).spec;
        let cluster = self.planner.state.cluster.total_gpus(None) + self.held_on_closed_nodes(&account.queue);
        let limit = self.planner.steps.limit.max_gpus(spec);
        account.selection = self.select(&account.queue, limit.min(cluster).min(max_gpus));
    }

    /// Starts every job that still has a placement: claims were selected by their number of GPUs alone, and some may not
    /// have fitted.
    fn start_fitting(&mut self, queue: &[Rank]) {
        for rank in queue {
            if self.planner.job(rank.job).allocation.is_some() {
                continue;
            }
            let ask = self.planner.ask(rank.job);
            if let Ok(place) = self.planner.place(rank.job, &ask) {
                self.planner.assign(rank.job, place, false);
            }
        }
    }

    /// Returns jobs to the GPUs they held, where these are still free.
    fn return_jobs(&mut self, queue: &[Rank]) {
        for rank in queue {
            if self.planner.job(rank.job).allocation.is_none()
                && let Some(held) = self.before.get(&rank.job)
                && self.planner.may_return_to(rank.job, held)
            {
                self.planner.assign(rank.job, held.clone(), false);
            }
        }
    }
}

/// Sorts claims of several accounts by the rank of their first members.
fn in_queue_order(queue: &[Rank], claims: impl Iterator<Item = Claim>) -> Vec<Claim> {
    let ranks: BTreeMap<JobKey, usize> = queue.iter().enumerate().map(|(i, r)| (r.job, i)).collect();
    let mut all: Vec<Claim> = claims.collect();
    all.sort_by_key(|c| ranks.get(&c.members[0]).copied());
    all
}
