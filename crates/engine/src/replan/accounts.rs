//! Planning where tenants have limits: account by account, guaranteed jobs before opportunistic ones.

use std::collections::{BTreeMap, BTreeSet};

use dovetail_model::JobKey;

use super::{Replan, Selection};
use crate::parts::{Claim, JobClass};
use crate::planner::same_gpus;
use crate::queue_key::Rank;

/// Jobs of one account, in the order in which they are served, and which of them should run.
#[derive(Debug, Default)]
struct Account {
    queue: Vec<Rank>,
    selection: Selection,
}

/// Accounts of one class.
type Accounts = BTreeMap<u64, Account>;

impl Replan<'_, '_> {
    /// Plans each account for what it may hold, so that no job shares GPUs with another tenant or is sized by what others
    /// own. All opportunistic jobs are set aside while the guaranteed ones are placed.
    pub(super) fn run_by_account(&mut self, queue: &[Rank]) {
        let (mut guaranteed, mut opportunistic) = self.accounts(queue);
        for account in opportunistic.values() {
            self.release_all_but(&[], &account.queue);
        }
        self.plan_guaranteed(&mut guaranteed);
        self.plan_opportunistic(&mut opportunistic);
    }

    fn plan_guaranteed(&mut self, accounts: &mut Accounts) {
        let total = self.planner.state.cluster.total_gpus(None);
        for account in accounts.values_mut() {
            let gpus = total + self.held_on_closed_nodes(&account.queue);
            self.select_account(account, gpus);
            self.release_all_but(&account.selection.chosen, &account.queue);
        }
        for account in accounts.values() {
            self.start_claims(&account.selection.chosen);
        }
        for account in accounts.values().filter(|a| a.selection.rigid) {
            self.start_fitting(&account.queue);
        }
    }

    /// Plans opportunistic jobs on what is left. They do not preempt one another: those that held GPUs return to them where
    /// these are still free, and a plan that resizes or groups them again is discarded if one of them would lose its GPUs.
    fn plan_opportunistic(&mut self, accounts: &mut Accounts) {
        let returned = self.return_jobs(&all_jobs(accounts.values()));
        let mark = self.planner.draft.mark();
        for account in accounts.values_mut() {
            account
                .queue
                .sort_by_key(|rank| (!returned.contains(&rank.job), *rank));
            let gpus = self.planner.state.cluster.free_gpus(None) + self.held_gpus(&account.queue, |_| true);
            self.select_account(account, gpus);
        }
        for account in accounts.values() {
            self.release_all_but(&account.selection.chosen, &account.queue);
        }
        self.start_opportunistic(accounts, &returned);
        let lost = |id: &JobKey| self.planner.job(*id).allocation.is_none();
        if returned.iter().any(lost) {
            self.planner.rollback(mark);
            self.plan_around(accounts, &returned);
        }
    }

    /// Plans the opportunistic jobs that did not return to their GPUs, on what those that did leave.
    fn plan_around(&mut self, accounts: &mut Accounts, returned: &BTreeSet<JobKey>) {
        let free = self.planner.state.cluster.free_gpus(None);
        for account in accounts.values_mut() {
            let limit = self.limit_of(account);
            let left = limit.saturating_sub(self.held_gpus(&account.queue, |_| true));
            account.queue.retain(|rank| !returned.contains(&rank.job));
            account.selection = self.select(&account.queue, left.min(free));
        }
        self.start_opportunistic(accounts, returned);
    }

    /// Starts the selected claims of all accounts, those with a job that ran before first, and then every job that fits.
    fn start_opportunistic(&mut self, accounts: &Accounts, returned: &BTreeSet<JobKey>) {
        let chosen = accounts.values().flat_map(|a| a.selection.chosen.iter());
        let mut chosen: Vec<Claim> = chosen.cloned().collect();
        chosen.sort_by_key(|claim| {
            let ran_before = claim.members.iter().any(|id| returned.contains(id));
            (!ran_before, self.planner.state.rank(claim.members[0]))
        });
        self.start_claims(&chosen);
        self.start_fitting(&all_jobs(accounts.values().filter(|a| a.selection.rigid)));
    }

    /// Returns the accounts of guaranteed and of opportunistic jobs.
    fn accounts(&self, queue: &[Rank]) -> (Accounts, Accounts) {
        let (mut guaranteed, mut opportunistic) = (Accounts::new(), Accounts::new());
        let limit = &*self.planner.steps.limit;
        for rank in queue {
            let spec = &self.planner.job(rank.job).spec;
            let accounts = match limit.class(spec) {
                JobClass::Guaranteed => &mut guaranteed,
                JobClass::Opportunistic => &mut opportunistic,
            };
            let account = accounts.entry(limit.account(spec)).or_default();
            account.queue.push(*rank);
        }
        (guaranteed, opportunistic)
    }

    /// Selects which jobs of an account run, on at most `gpus` GPUs.
    fn select_account(&mut self, account: &mut Account, gpus: u32) {
        let gpus = gpus.min(self.limit_of(account));
        account.selection = self.select(&account.queue, gpus);
    }

    /// Returns the most GPUs that the jobs of an account may hold together.
    fn limit_of(&self, account: &Account) -> u32 {
        let first = account.queue.first();
        first.map_or(0, |rank| {
            self.planner
                .steps
                .limit
                .max_gpus(&self.planner.job(rank.job).spec)
        })
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

    /// Returns jobs to the GPUs they held, where these are still free or only jobs are there that shared them before.
    /// Returns the jobs that have GPUs now.
    fn return_jobs(&mut self, queue: &[Rank]) -> BTreeSet<JobKey> {
        let mut returned: BTreeSet<JobKey> = BTreeSet::new();
        for rank in queue {
            let Some(held) = self.before.get(&rank.job) else {
                continue;
            };
            let shares = returned.iter().any(|other| self.shared_before(*other, rank.job));
            if shares || self.planner.may_return_to(rank.job, held) {
                self.planner.assign(rank.job, held.clone(), shares);
                returned.insert(rank.job);
            }
        }
        returned
    }

    /// Whether two jobs shared the same GPUs before this plan.
    fn shared_before(&self, a: JobKey, b: JobKey) -> bool {
        let held = |job| self.before.get(&job);
        matches!((held(a), held(b)), (Some(a), Some(b)) if same_gpus(a, b))
    }
}

/// Returns the jobs of these accounts, in queue order.
fn all_jobs<'a>(accounts: impl Iterator<Item = &'a Account>) -> Vec<Rank> {
    let mut all: Vec<Rank> = accounts.flat_map(|a| a.queue.iter().copied()).collect();
    all.sort_unstable();
    all
}
