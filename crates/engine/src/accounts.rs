//! Planning anew where tenants have limits: account by account, those who own before those who borrow.

use std::collections::BTreeMap;

use dovetail_model::{Allocation, JobId};

use crate::line::Rank;
use crate::parts::Claim;
use crate::replan::select;
use crate::round::Round;

/// Jobs of one account, best first, and what of them should run.
#[derive(Debug, Default)]
struct Account {
    line: Vec<Rank>,
    chosen: Vec<Claim>,
    rigid: bool,
}

impl Round<'_> {
    /// Sizes and groups are made inside each account, for what it may hold: nobody shares GPUs with another tenant, and
    /// nobody is sized by what others own. All borrowers step aside while the owners are placed, and have their own places
    /// back where these are still free.
    pub(crate) fn replan_accounts(&mut self, line: &[Rank]) {
        let (mut owners, mut borrowers) = self.accounts(line);
        let mut before = BTreeMap::new();
        for account in borrowers.values() {
            before.extend(self.clear_all_but(&[], &account.line));
        }
        for account in owners.values_mut() {
            self.choose(account, u32::MAX);
            before.extend(self.clear_all_but(&account.chosen, &account.line));
        }
        for account in owners.values() {
            self.start_claims(&account.chosen, &before);
        }
        for account in owners.values().filter(|a| a.rigid) {
            self.start_whoever_fits(&account.line);
        }
        let free = self.state.cluster.free_gpus(None);
        for account in borrowers.values_mut() {
            self.choose(account, free);
        }
        let chosen = in_line(line, borrowers.values().flat_map(|a| a.chosen.iter().cloned()));
        self.start_claims(&chosen, &before);
        let rigid: Vec<Rank> = borrowers
            .values()
            .filter(|a| a.rigid)
            .flat_map(|a| a.line.iter().copied())
            .collect();
        self.start_returned(rigid, &before);
    }

    /// The accounts of those who use what is theirs, and of those who borrow.
    fn accounts(&self, line: &[Rank]) -> (BTreeMap<u64, Account>, BTreeMap<u64, Account>) {
        let (mut owners, mut borrowers) = (BTreeMap::new(), BTreeMap::new());
        for rank in line {
            let spec = &self.state.known(rank.job).spec;
            let accounts: &mut BTreeMap<u64, Account> = match self.tenancy.class(spec) {
                0 => &mut owners,
                _ => &mut borrowers,
            };
            let account = accounts.entry(self.tenancy.account(spec)).or_default();
            account.line.push(*rank);
        }
        (owners, borrowers)
    }

    /// What of an account should run, on so many GPUs at most.
    fn choose(&mut self, account: &mut Account, most: u32) {
        let Some(first) = account.line.first() else {
            return;
        };
        let spec = &self.state.known(first.job).spec;
        let all = self.state.cluster.total_gpus(None) + self.held_on_closed_nodes(&account.line);
        let room = self.tenancy.most(spec).min(all).min(most);
        let claims;
        (claims, account.rigid) = self.size_and_group(&account.line, room);
        account.chosen = select(claims, room);
    }

    /// Starts whoever still finds a place: what was chosen by number need not have fitted.
    fn start_whoever_fits(&mut self, line: &[Rank]) {
        for rank in line {
            let job = self.state.known(rank.job);
            if job.allocation.is_some() {
                continue;
            }
            let ask = self.sizing.ask(job, &self.state.cluster);
            let place = self.tenancy.place(job, &ask, &self.state.cluster, self.placement);
            if let Ok(place) = place {
                self.draft
                    .assign(self.state, self.tenancy, rank.job, place, false);
            }
        }
    }

    /// The same for borrowers, on their own GPUs where these are still free.
    fn start_returned(&mut self, mut line: Vec<Rank>, before: &BTreeMap<JobId, Allocation>) {
        line.sort_unstable();
        for rank in &line {
            let job = self.state.known(rank.job);
            if let (None, Some(own)) = (&job.allocation, before.get(&rank.job))
                && self.state.cluster.is_free(own)
                && self.tenancy.may_use(job, own)
            {
                self.draft
                    .assign(self.state, self.tenancy, rank.job, own.clone(), false);
            }
        }
        self.start_whoever_fits(&line);
    }
}

/// Claims of several accounts in the order of their first members.
fn in_line(line: &[Rank], claims: impl Iterator<Item = Claim>) -> Vec<Claim> {
    let places: BTreeMap<JobId, usize> = line.iter().enumerate().map(|(i, r)| (r.job, i)).collect();
    let mut all: Vec<Claim> = claims.collect();
    all.sort_by_key(|c| places.get(&c.members[0]).copied());
    all
}
