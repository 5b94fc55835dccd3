//! The public interface: one call for each operation on cells and groups.

use crate::adopt::{RunningPod, adopt};
use crate::check::{Inconsistency, Recount};
use crate::explain::{Explainer, Explanation};
use crate::group::{GroupId, GroupState, Pod};
use crate::health::set_health;
use crate::layout::{Layout, MachineId, SlotId};
use crate::ledger::Ledger;
use crate::lifecycle::GroupLifecycle;
use crate::occupy::{occupy, preferred_slots};
use crate::place::{Placer, TentativePlacement};
use crate::reconfigure::{Migration, ReconfiguredGroup};
use crate::request::{PlacementError, PlacementOptions, Request};
use crate::restore::{PreferredSlots, restore_all};
use crate::undo::Savepoint;

/// All cells, all virtual clusters and all groups that hold or claim cells.
#[derive(Debug, Clone)]
pub struct Cells {
    pub(crate) ledger: Ledger,
    /// Whether downgraded groups get their place back when there is room.
    pub(crate) repromote: bool,
}

impl Cells {
    /// Returns the cells of a layout, all free and all machines healthy.
    pub fn new(layout: Layout) -> Self {
        Self {
            ledger: Ledger::new(layout),
            repromote: true,
        }
    }

    /// Sets whether downgraded groups get their place back when there is room; on by default.
    pub fn set_repromotion(&mut self, on: bool) {
        self.repromote = on;
    }

    /// Returns the id of a user, adding the user if it is new.
    pub fn user_id(&mut self, name: &str) -> u32 {
        self.ledger.groups.user_id(name)
    }

    /// Finds a place for a whole group. Nothing is changed unless the placement is committed.
    ///
    /// # Errors
    /// Why there is no place.
    pub fn try_place(
        &mut self,
        request: &Request,
        options: &PlacementOptions<'_>,
    ) -> Result<TentativePlacement<'_>, PlacementError> {
        request
            .validate(self.ledger.layout())
            .map_err(PlacementError::Refused)?;
        self.check_user_limit(request).map_err(PlacementError::Wait)?;
        let start = self.ledger.log.position();
        let mut placer = Placer {
            ledger: &mut self.ledger,
            request,
            options,
        };
        match placer.place() {
            Ok((group, outcome)) => Ok(TentativePlacement::new(self, start, group, outcome)),
            Err(wait) => {
                self.ledger.rollback(start);
                Err(PlacementError::Wait(wait))
            }
        }
    }

    /// Gives a group exactly these leaves, if all are free and, for a guaranteed group, if all virtual clusters can still
    /// get the cells they own. A pod without a home gets the smallest suitable cell. Returns `None`, with nothing changed,
    /// if it is not possible.
    pub fn occupy(&mut self, request: &Request, pods: &[Pod]) -> Option<GroupId> {
        let id = occupy(&mut self.ledger, request, pods, PreferredSlots::new())?;
        self.ledger.log.trim();
        Some(id)
    }

    /// Like [`Cells::occupy`], but prefers these slots for the cells of the pods. A group that is put back gets the same
    /// slots again.
    pub fn occupy_in_slots(
        &mut self,
        request: &Request,
        pods: &[Pod],
        slots: &[Option<SlotId>],
    ) -> Option<GroupId> {
        let preferred = preferred_slots(self.ledger.layout(), pods, slots);
        let id = occupy(&mut self.ledger, request, pods, preferred)?;
        self.ledger.log.trim();
        Some(id)
    }

    /// Adds a running group. Leaves that do not exist or belong to another group are left out. A guaranteed group gets
    /// its place in its virtual cluster if possible, downgrading lower priorities if necessary; otherwise it becomes a
    /// borrower.
    pub fn adopt(&mut self, request: &Request, chain: &str, pods: &[RunningPod<'_>]) -> GroupId {
        let id = adopt(&mut self.ledger, request, chain, pods);
        self.ledger.log.trim();
        id
    }

    /// Starts a preempting group if all its victims are gone. Returns whether it holds its cells now.
    pub fn proceed(&mut self, id: GroupId) -> bool {
        match self.group(id).map(|g| g.state) {
            Some(GroupState::Preempting) if self.victims(id).is_empty() => {
                let ledger = &mut self.ledger;
                GroupLifecycle { ledger, id }.convert_claims();
                self.ledger.set_group_state(id, GroupState::Allocated, None);
                self.ledger.log.trim();
                true
            }
            Some(GroupState::Allocated | GroupState::BeingPreempted) => true,
            Some(GroupState::Preempting) | None => false,
        }
    }

    /// Removes a group that has ended or gives up its claim. Its cells are free again, except those that others claim.
    pub fn release(&mut self, id: GroupId) {
        if self.group(id).is_none() {
            return;
        }
        let ledger = &mut self.ledger;
        GroupLifecycle { ledger, id }.release();
        self.restore_downgraded();
        self.ledger.log.trim();
    }

    /// Sets whether a machine is healthy. Groups on it keep their cells.
    pub fn set_health(&mut self, machine: MachineId, healthy: bool) {
        set_health(&mut self.ledger, machine, healthy);
        self.restore_downgraded();
        self.ledger.log.trim();
    }

    /// Restores downgraded groups that have room, unless that is switched off.
    pub(crate) fn restore_downgraded(&mut self) {
        if self.repromote {
            restore_all(&mut self.ledger);
        }
    }

    /// Returns the same groups under a new configuration. Machines keep their health by name.
    pub fn reconfigured(&self, layout: Layout) -> (Cells, Vec<ReconfiguredGroup>) {
        Migration::new(self, layout).run()
    }

    /// Returns a point to roll back to. From now on all changes can be undone until [`Cells::commit_all`].
    pub fn savepoint(&mut self) -> Savepoint {
        self.ledger.log.keep();
        self.ledger.log.position()
    }

    /// Reverts all changes since a savepoint.
    pub fn rollback(&mut self, to: Savepoint) {
        self.ledger.rollback(to);
    }

    /// Makes all changes so far final and stops keeping them undoable.
    pub fn commit_all(&mut self) {
        self.ledger.log.clear();
    }

    /// Explains why a group waits. Returns `None` if it can start, or if the request can never be met.
    pub fn explain(&self, request: &Request, options: &PlacementOptions<'_>) -> Option<Explanation> {
        Explainer {
            cells: self,
            request,
            options,
        }
        .explain()
    }

    /// Returns a smallest set of bad machines whose repair lets a group start without preempting any other, or `None` if
    /// repairs alone do not help.
    pub fn repairs_for(&self, request: &Request, options: &PlacementOptions<'_>) -> Option<Vec<MachineId>> {
        Explainer {
            cells: self,
            request,
            options,
        }
        .repairs()
    }

    /// Recounts everything that is maintained incrementally.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self) -> Result<(), Inconsistency> {
        Recount::new(&self.ledger).run()
    }

    /// Whether two states are equal: cells, indexes, groups and their ids.
    pub fn is_same_as(&self, other: &Cells) -> bool {
        let (a, b) = (&self.ledger, &other.ledger);
        a.occupancy.is_same_as(&b.occupancy) && a.groups.is_same_as(&b.groups)
    }
}
