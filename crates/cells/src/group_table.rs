//! The table of groups, with the counts that follow from it: leaves by user, and downgraded groups.

use std::collections::{BTreeMap, BTreeSet};

use crate::NONE;
use crate::group::{Downgrade, Group, GroupId, GroupState, Pod};
use crate::layout::{VcId, VcSpec};
use crate::request::WaitReason;

/// All groups that hold or claim cells.
#[derive(Debug, Clone)]
pub(crate) struct GroupTable {
    entries: Vec<Option<Group>>,
    /// Ids without a group; the last one is used next.
    vacant: Vec<u32>,
    next_sequence: u64,
    /// Downgraded groups of each virtual cluster, as (sequence, id).
    pub(crate) downgraded: Vec<BTreeSet<(u64, u32)>>,
    /// Leaves at guaranteed priorities, by virtual cluster and user.
    by_user: BTreeMap<(u32, u32), u32>,
    user_ids: BTreeMap<String, u32>,
    user_names: Vec<String>,
}

impl GroupTable {
    pub(crate) fn new(virtual_clusters: usize) -> Self {
        Self {
            entries: Vec::new(),
            vacant: Vec::new(),
            next_sequence: 0,
            downgraded: vec![BTreeSet::new(); virtual_clusters],
            by_user: BTreeMap::new(),
            user_ids: BTreeMap::new(),
            user_names: Vec::new(),
        }
    }

    pub(crate) fn get(&self, id: GroupId) -> Option<&Group> {
        self.entries.get(id.index())?.as_ref()
    }

    /// Returns a group that holds or claims a leaf.
    pub(crate) fn at(&self, id: u32) -> &Group {
        self.get(GroupId(id)).expect("a group on a leaf exists")
    }

    /// Returns the current priority of the owner of a leaf; `None` for [`NONE`].
    pub(crate) fn priority_of(&self, owner: u32) -> Option<i16> {
        (owner != NONE).then(|| self.at(owner).effective_priority())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        let all = self.entries.iter().enumerate();
        all.filter_map(|(at, g)| Some((GroupId(at as u32), g.as_ref()?)))
    }

    /// Whether all groups, their ids and their counts are equal.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.entries == other.entries
            && self.vacant == other.vacant
            && self.downgraded == other.downgraded
            && self.by_user == other.by_user
    }

    /// Returns the id of a user, adding the user if it is new.
    pub(crate) fn user_id(&mut self, name: &str) -> u32 {
        if let Some(known) = self.user_ids.get(name) {
            return *known;
        }
        let next = self.user_names.len() as u32;
        self.user_ids.insert(name.to_owned(), next);
        self.user_names.push(name.to_owned());
        next
    }

    pub(crate) fn user_names(&self) -> &[String] {
        &self.user_names
    }

    /// Checks that a user may hold `asked` more leaves at a priority in a virtual cluster.
    pub(crate) fn check_user_limit(
        &self,
        (vc, spec): (VcId, &VcSpec),
        user: Option<u32>,
        priority: i16,
        asked: u32,
    ) -> Result<(), WaitReason> {
        let Some(user) = user.filter(|_| priority >= 0) else {
            return Ok(());
        };
        let own = spec.user_limits.get(&self.user_names[user as usize]).copied();
        let Some(limit) = own.or(spec.leaves_per_user) else {
            return Ok(());
        };
        let held = self.by_user.get(&(vc.0, user)).copied().unwrap_or(0);
        if held + asked > limit {
            return Err(WaitReason::UserLimit { limit, held, asked });
        }
        Ok(())
    }

    pub(crate) fn by_user(&self) -> &BTreeMap<(u32, u32), u32> {
        &self.by_user
    }

    /// Returns the ids that are reused, and all ids without a group.
    pub(crate) fn vacant_ids(&self) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let unused = (0..self.entries.len() as u32).filter(|g| self.entries[*g as usize].is_none());
        (self.vacant.iter().copied().collect(), unused.collect())
    }

    /// Adds a group. Returns its id, and whether the table grew for it.
    pub(crate) fn add(&mut self, mut group: Group) -> (GroupId, bool) {
        group.sequence = self.next_sequence;
        self.next_sequence += 1;
        let vacant = self.vacant.pop();
        let id = GroupId(vacant.unwrap_or(self.entries.len() as u32));
        if vacant.is_none() {
            self.entries.push(None);
        }
        self.entries[id.index()] = Some(group);
        self.count(id, true);
        (id, vacant.is_none())
    }

    /// Reverts [`Self::add`].
    pub(crate) fn undo_add(&mut self, id: GroupId, grew: bool) {
        self.count(id, false);
        self.entries[id.index()] = None;
        if grew {
            self.entries.pop();
        } else {
            self.vacant.push(id.0);
        }
        self.next_sequence -= 1;
    }

    /// Removes a group that has no leaves any more.
    pub(crate) fn remove(&mut self, id: GroupId) -> Group {
        self.count(id, false);
        self.vacant.push(id.0);
        self.entries[id.index()].take().expect("the group exists")
    }

    /// Reverts [`Self::remove`].
    pub(crate) fn undo_remove(&mut self, id: GroupId, group: Group) {
        self.vacant.pop();
        self.entries[id.index()] = Some(group);
        self.count(id, true);
    }

    pub(crate) fn push_pod(&mut self, id: GroupId, pod: Pod) {
        self.edit(id, |group| group.pods.push(pod));
    }

    pub(crate) fn pop_pod(&mut self, id: GroupId) {
        self.edit(id, |group| {
            group.pods.pop();
        });
    }

    /// Sets the state of a group; returns what it was.
    pub(crate) fn set_state(
        &mut self,
        id: GroupId,
        state: GroupState,
        downgraded: Option<Downgrade>,
    ) -> (GroupState, Option<Downgrade>) {
        self.edit(id, |group| {
            (
                std::mem::replace(&mut group.state, state),
                std::mem::replace(&mut group.downgraded, downgraded),
            )
        })
    }

    /// Changes a group and keeps the counts up to date.
    fn edit<R>(&mut self, id: GroupId, change: impl FnOnce(&mut Group) -> R) -> R {
        self.count(id, false);
        let group = self.entries[id.index()].as_mut().expect("the group exists");
        let result = change(group);
        self.count(id, true);
        result
    }

    /// Adds a group to the counts that follow from it, or subtracts it.
    fn count(&mut self, id: GroupId, add: bool) {
        let group = self.entries[id.index()].as_ref().expect("the group exists");
        if group.downgraded.is_some() {
            let downgraded = &mut self.downgraded[group.vc.index()];
            let entry = (group.sequence, id.0);
            if add {
                downgraded.insert(entry);
            } else {
                downgraded.remove(&entry);
            }
        }
        if let Some(user) = group.user.filter(|_| group.effective_priority() >= 0) {
            let held = self.by_user.entry((group.vc.0, user)).or_insert(0);
            let leaves = group.leaves();
            *held = if add { *held + leaves } else { *held - leaves };
            if *held == 0 {
                self.by_user.remove(&(group.vc.0, user));
            }
        }
    }
}
