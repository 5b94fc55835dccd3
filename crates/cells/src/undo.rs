//! Taking steps back: a decision that is not kept leaves no trace.

use crate::group::{Downgrade, Group, GroupId, GroupState, Pod};
use crate::layout::{ChainId, SlotId};
use crate::leaves::Write;
use crate::state::{Cells, Mark, Step};

impl Cells {
    /// A point to go back to. From now on steps are kept until [`Cells::seal`].
    pub fn checkpoint(&mut self) -> Mark {
        self.kept = true;
        Mark(self.log.len())
    }

    /// Goes back to a point.
    pub fn rollback(&mut self, mark: Mark) {
        let mut writes: Vec<Write> = Vec::new();
        let mut of = None;
        while self.log.len() > mark.0 {
            let Some(step) = self.log.pop() else { break };
            if let Step::Leaf {
                chain,
                leaf,
                using,
                holding,
            } = step
            {
                if of != Some(chain) {
                    self.flush(&mut of, &mut writes);
                    of = Some(chain);
                }
                writes.push((leaf, using, holding));
            } else {
                self.flush(&mut of, &mut writes);
                self.undo(step);
            }
        }
        self.flush(&mut of, &mut writes);
        self.loosened.clear();
    }

    /// Makes everything so far final.
    pub fn seal(&mut self) {
        self.kept = false;
        self.log.clear();
    }

    /// After a change that is meant: forgets how to undo it, unless somebody may want to.
    pub(crate) fn settled(&mut self) {
        if !self.kept {
            self.log.clear();
        }
    }

    fn flush(&mut self, of: &mut Option<ChainId>, writes: &mut Vec<Write>) {
        if let Some(chain) = of.take() {
            let length = self.log.len();
            self.write(chain, writes);
            self.log.truncate(length);
            writes.clear();
        }
    }

    fn undo(&mut self, step: Step) {
        let length = self.log.len();
        match step {
            Step::Leaf { .. } => {}
            Step::Bound(slot) => self.unbind(slot),
            Step::Unbound(slot, cell) => self.bind(slot, cell),
            Step::Doomed(slot, was) => self.doom(slot, was),
            Step::Added(id, grown) => {
                self.count_group(id, false);
                self.groups[id.index()] = None;
                if grown {
                    self.groups.pop();
                } else {
                    self.vacant.push(id.0);
                }
                self.sequence -= 1;
            }
            Step::Marked(id, state, downgraded) => self.mark_group(id, state, downgraded),
            Step::Removed(id, group) => {
                self.vacant.pop();
                self.groups[id.index()] = Some(*group);
                self.count_group(id, true);
            }
            Step::Pod(id) => {
                self.count_group(id, false);
                self.edit(id).pods.pop();
                self.count_group(id, true);
            }
        }
        self.log.truncate(length);
    }

    pub(crate) fn edit(&mut self, id: GroupId) -> &mut Group {
        self.groups[id.index()].as_mut().expect("the group exists")
    }

    /// A new group without pods.
    pub(crate) fn add_group(&mut self, mut group: Group) -> GroupId {
        group.sequence = self.sequence;
        self.sequence += 1;
        let vacant = self.vacant.pop();
        let id = GroupId(vacant.unwrap_or(self.groups.len() as u32));
        if vacant.is_none() {
            self.groups.push(None);
        }
        self.groups[id.index()] = Some(group);
        self.count_group(id, true);
        self.log.push(Step::Added(id, vacant.is_none()));
        id
    }

    pub(crate) fn add_pod(&mut self, id: GroupId, pod: Pod) {
        self.count_group(id, false);
        self.edit(id).pods.push(pod);
        self.count_group(id, true);
        self.log.push(Step::Pod(id));
    }

    pub(crate) fn mark_group(&mut self, id: GroupId, state: GroupState, downgraded: Option<Downgrade>) {
        self.count_group(id, false);
        let group = self.edit(id);
        let step = Step::Marked(id, group.state, group.downgraded);
        group.state = state;
        group.downgraded = downgraded;
        self.count_group(id, true);
        self.log.push(step);
    }

    /// Takes out a group that has no leaves any more.
    pub(crate) fn remove_group(&mut self, id: GroupId) {
        self.count_group(id, false);
        let group = self.groups[id.index()].take().expect("the group exists");
        self.vacant.push(id.0);
        self.log.push(Step::Removed(id, Box::new(group)));
    }

    /// Counts a group in or out of what follows from it: leaves by user, downgraded groups.
    fn count_group(&mut self, id: GroupId, add: bool) {
        let group = self.groups[id.index()].as_ref().expect("the group exists");
        let waiting = &mut self.downgraded[group.vc.index()];
        if group.downgraded.is_some() {
            let entry = (group.sequence, id.0);
            if add {
                waiting.insert(entry);
            } else {
                waiting.remove(&entry);
            }
        }
        if let Some(user) = group.user.filter(|_| group.effective() >= 0) {
            let held = self.by_user.entry((group.vc.0, user)).or_insert(0);
            let leaves = group.leaves();
            *held = if add { *held + leaves } else { *held - leaves };
            if *held == 0 {
                self.by_user.remove(&(group.vc.0, user));
            }
        }
    }

    pub(crate) fn doom(&mut self, slot: SlotId, doomed: bool) {
        let spec = &self.layout.slots[slot.index()];
        let state = &mut self.slots[slot.index()];
        self.log.push(Step::Doomed(slot, state.doomed));
        if state.doomed == doomed {
            return;
        }
        state.doomed = doomed;
        let at = &mut self.views[spec.view.index()].doomed_at[spec.level];
        let count = &mut self.chains[spec.chain.index()].doomed;
        if doomed {
            at.insert(slot.0);
            *count += 1;
        } else {
            at.remove(&slot.0);
            *count -= 1;
        }
    }
}
