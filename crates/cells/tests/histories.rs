//! Random histories on small clusters: requests, releases, failures, claims that are met or dropped, new configurations.
//! After each step every virtual cluster can get the cells it owns; at intervals all counts are checked.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use dovetail_cells::{
    CellType, Cells, ChainId, Config, GroupId, GroupState, MachineId, MachineSet, Outcome, PhysicalCell,
    PlacementError, PlacementOptions, Pod, PodSet, Request, SlotId, Target, VcId, VirtualCells,
    VirtualCluster,
};

/// Steps of the normal test run, over all seeds.
const STEPS: u64 = 1_000_000;

/// A small random number generator: the same seed gives the same history.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// Returns a random configuration of the same machines: two leaf types, three virtual clusters, sometimes a pinned cell.
fn config(dice: &mut Dice) -> Config {
    let mut config = Config::default();
    let kinds = [
        ("SWITCH", "GPU", 2, false),
        ("NODE", "SWITCH", 2, true),
        ("PAIR", "NODE", 2, false),
        ("RACK", "PAIR", 2, false),
        ("SHARE-NODE", "SHARE", 3, true),
        ("POOL", "SHARE-NODE", 4, false),
    ];
    for (name, child, children, is_node) in kinds {
        let child = child.to_owned();
        config.cell_types.insert(
            name.to_owned(),
            CellType {
                child,
                children,
                is_node,
            },
        );
    }
    let node = |name: String| PhysicalCell {
        address: Some(name),
        ..PhysicalCell::default()
    };
    let mut pins = Vec::new();
    let racks = 1 + dice.below(2);
    for rack in 0..racks {
        let pairs = (0..2).map(|pair| PhysicalCell {
            children: (0..2).map(|n| node(format!("m{rack}-{pair}-{n}"))).collect(),
            ..PhysicalCell::default()
        });
        let mut top = PhysicalCell {
            cell_type: Some("RACK".to_owned()),
            children: pairs.collect(),
            ..PhysicalCell::default()
        };
        if dice.one_in(3) {
            let name = format!("pin{rack}");
            top.children[1].children[1].pinned = Some(name.clone());
            pins.push(name);
        }
        config.physical_cells.push(top);
    }
    let mut lone = node("lone".to_owned());
    lone.cell_type = Some("NODE".to_owned());
    config.physical_cells.push(lone);
    config.physical_cells.push(PhysicalCell {
        cell_type: Some("POOL".to_owned()),
        children: (0..4).map(|n| node(format!("m0-{}-{}", n / 2, n % 2))).collect(),
        ..PhysicalCell::default()
    });
    let paths = [
        "RACK",
        "RACK.PAIR",
        "RACK.PAIR.NODE",
        "RACK.PAIR.NODE",
        "RACK.PAIR.NODE.SWITCH",
        "RACK.PAIR.NODE.SWITCH.GPU",
        "NODE",
        "NODE.SWITCH",
        "POOL.SHARE-NODE",
        "POOL.SHARE-NODE.SHARE",
    ];
    for vc in ["a", "b", "c"] {
        config
            .virtual_clusters
            .insert(vc.to_owned(), VirtualCluster::default());
    }
    if dice.one_in(2) {
        config.virtual_clusters.get_mut("b").unwrap().leaves_per_user = Some(6);
    }
    let names: Vec<String> = config.virtual_clusters.keys().cloned().collect();
    for pin in pins {
        let owner = &names[dice.below(3) as usize];
        config.virtual_clusters.get_mut(owner).unwrap().pinned.push(pin);
    }
    // Give cells to virtual clusters as long as they fit.
    for _ in 0..12 {
        let owner = &names[dice.below(3) as usize];
        let path = paths[dice.below(paths.len() as u64) as usize].to_owned();
        let mut more = config.clone();
        let cells = VirtualCells { path, number: 1 };
        more.virtual_clusters.get_mut(owner).unwrap().cells.push(cells);
        if more.compile().is_ok() {
            config = more;
        }
    }
    config
}

fn random_request(dice: &mut Dice, cells: &mut Cells, key: u64) -> Request {
    let layout = cells.layout();
    let vc = VcId(dice.below(layout.vcs.len() as u64) as u32);
    let pins: Vec<_> = layout.vcs[vc.index()].pinned.values().copied().collect();
    let leaf = dice.below(layout.leaf_types.len() as u64) as u32;
    let target = match dice.below(8) {
        0 => Target::Any,
        1 | 2 if !pins.is_empty() => Target::Pinned(pins[0]),
        _ => Target::Leaf(dovetail_cells::LeafType(leaf)),
    };
    let pods = |dice: &mut Dice| {
        let number = 1 + dice.below(3);
        let same = 1 + dice.below(4) as u32;
        (0..number)
            .map(|_| {
                if dice.one_in(3) {
                    1 + dice.below(4) as u32
                } else {
                    same
                }
            })
            .collect::<Vec<_>>()
    };
    let mut pod_sets = vec![PodSet {
        target,
        pods: pods(dice),
    }];
    if dice.one_in(10) {
        pod_sets.push(PodSet {
            target: Target::Leaf(dovetail_cells::LeafType(1 - leaf)),
            pods: pods(dice),
        });
    }
    let user = dice.one_in(2).then(|| format!("user{}", dice.below(3)));
    Request {
        key,
        vc,
        user: user.map(|u| cells.user_id(&u)),
        priority: [-1, -1, 0, 1, 2, 5][dice.below(6) as usize],
        lazy: dice.one_in(2),
        may_span_chains: dice.one_in(4),
        pod_sets,
    }
}

struct History {
    dice: Dice,
    cells: Cells,
    key: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let mut cells = Cells::new(config(&mut dice).compile().unwrap().layout);
        cells.set_repromotion(dice.one_in(2));
        Self {
            dice,
            cells,
            key: 0,
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn any_group(&mut self) -> Option<GroupId> {
        let groups: Vec<GroupId> = self.cells.groups().map(|(id, _)| id).collect();
        (!groups.is_empty()).then(|| groups[self.dice.below(groups.len() as u64) as usize])
    }

    /// Returns a few random slots of any virtual cluster, possibly repeated; mostly none.
    fn any_slots(&mut self) -> Vec<SlotId> {
        let slots = self.cells.layout().slots.len() as u64;
        if slots == 0 || !self.dice.one_in(3) {
            return Vec::new();
        }
        let number = self.dice.below(5);
        (0..number)
            .map(|_| SlotId(self.dice.below(slots) as u32))
            .collect()
    }

    fn request(&mut self, thorough: bool) {
        self.key += 1;
        let request = random_request(&mut self.dice, &mut self.cells, self.key);
        let machines = self.cells.layout().machines.len();
        let mut suggested = MachineSet::new(machines);
        for at in 0..machines {
            if !self.dice.one_in(4) {
                suggested.insert(MachineId(at as u32));
            }
        }
        let cost = |id: GroupId, _: &dovetail_cells::Group| u64::from(id.0 % 5) * 100;
        let slots = self.any_slots();
        let options = PlacementOptions {
            machines: self.dice.one_in(5).then_some(&suggested),
            preemption_cost: self.dice.one_in(2).then_some(&cost),
            slots: &slots,
        };
        let commit = !self.dice.one_in(4);
        let before = (thorough || !commit && self.dice.one_in(8)).then(|| self.cells.clone());
        let what = match self.cells.try_place(&request, &options) {
            Ok(placement) => {
                let is_placed = *placement.outcome() == Outcome::Placed;
                let group = placement.group();
                assert_eq!(group.leaves(), request.leaves(), "a group is placed as a whole");
                if let Outcome::Preempting { victims } = placement.outcome() {
                    for victim in victims {
                        let victim = placement.cells().group(*victim).unwrap();
                        assert!(
                            victim.effective_priority() < request.priority,
                            "only lower priorities are preempted"
                        );
                    }
                }
                if commit {
                    placement.commit();
                }
                match (commit, is_placed) {
                    (false, _) => "dropped",
                    (true, true) => "placed",
                    (true, false) => "claimed",
                }
            }
            Err(PlacementError::Refused(_)) => "refused",
            Err(PlacementError::Wait(_)) => "waits",
        };
        if let Some(before) = before.filter(|_| !matches!(what, "placed" | "claimed")) {
            assert!(
                self.cells.is_same_as(&before),
                "a placement that was rolled back left a trace ({what})"
            );
        }
        self.count(what);
    }

    /// Releases a group and puts it back on the same leaves.
    fn put_back(&mut self) {
        let Some(id) = self.any_group() else { return };
        let group = self.cells.group(id).unwrap().clone();
        if group.state != GroupState::Allocated || group.downgraded.is_some() {
            return;
        }
        let request = Request {
            key: group.key,
            vc: group.vc,
            user: group.user,
            priority: group.priority,
            lazy: group.lazy,
            may_span_chains: false,
            pod_sets: Vec::new(),
        };
        let healthy =
            (0..self.cells.layout().machines.len()).all(|m| self.cells.is_healthy(MachineId(m as u32)));
        let none_downgraded = self.cells.groups().all(|(_, g)| g.downgraded.is_none());
        let slot = |cells: &Cells, p: &Pod| cells.slot_of(p.chain, *p.leaves.first()?);
        let slots: Vec<Option<SlotId>> = group.pods.iter().map(|p| slot(&self.cells, p)).collect();
        self.cells.release(id);
        let mut pods = group.pods.clone();
        let with_slots = self.dice.one_in(2);
        if !with_slots {
            pods.iter_mut().for_each(|p| p.home = None);
        }
        let found = match with_slots && group.priority >= 0 {
            true => self.cells.occupy_in_slots(&request, &pods, &slots),
            false => self.cells.occupy(&request, &pods),
        };
        match found {
            Some(id) => {
                let now = self.cells.group(id).unwrap();
                assert!(now.downgraded.is_none() && now.leaves() == group.leaves());
                if healthy && none_downgraded && with_slots && group.priority >= 0 {
                    let now: Vec<Option<SlotId>> = pods.iter().map(|p| slot(&self.cells, p)).collect();
                    assert_eq!(now, slots, "the group is in other slots than before");
                }
                self.count("put back");
            }
            None => assert!(
                !(healthy && none_downgraded && with_slots),
                "a group that was just released cannot be put back"
            ),
        }
    }

    fn step(&mut self, thorough: bool) {
        match self.dice.below(40) {
            0..=17 => self.request(thorough),
            18..=29 => {
                if let Some(id) = self.any_group() {
                    self.cells.release(id);
                    self.count("released");
                }
            }
            30..=32 => {
                // The victims of a preempting group are released, so its claim is met.
                let claims = |g: &&(GroupId, GroupState)| g.1 == GroupState::Preempting;
                let groups: Vec<_> = self.cells.groups().map(|(id, g)| (id, g.state)).collect();
                if let Some((id, _)) = groups.iter().find(claims) {
                    for victim in self.cells.victims(*id) {
                        self.cells.release(victim);
                    }
                    assert!(self.cells.proceed(*id), "a group without victims must start");
                    self.count("proceeded");
                }
            }
            33..=37 => {
                let machine = MachineId(self.dice.below(self.cells.layout().machines.len() as u64) as u32);
                let healthy = !self.cells.is_healthy(machine) || self.dice.one_in(3);
                self.cells.set_health(machine, healthy);
                self.count(if healthy { "recovered" } else { "failed" });
            }
            38 => {
                // A caller rolls back several steps.
                let before = self.cells.clone();
                let savepoint = self.cells.savepoint();
                for _ in 0..self.dice.below(4) {
                    if self.dice.one_in(2) {
                        self.request(false);
                    } else if let Some(id) = self.any_group() {
                        self.cells.release(id);
                    }
                }
                self.cells.rollback(savepoint);
                self.cells.commit_all();
                assert!(self.cells.is_same_as(&before), "a rollback left a trace");
                self.count("rolled back");
            }
            _ if self.dice.one_in(2) => self.put_back(),
            _ => {
                if self.dice.one_in(10) {
                    let layout = config(&mut self.dice).compile().unwrap().layout;
                    let before = self.cells.groups().count();
                    let (cells, groups) = self.cells.reconfigured(layout);
                    assert_eq!(groups.len(), before, "every group is reported");
                    self.cells = cells;
                    self.count("reconfigured");
                }
            }
        }
    }
}

/// Runs one history.
fn run(seed: u64, steps: u64) -> (Cells, BTreeMap<&'static str, u64>) {
    let mut history = History::new(seed);
    for at in 0..steps {
        let thorough = at % 50 == 0;
        history.step(thorough);
        for chain in 0..history.cells.layout().chains.len() {
            let slack = history.cells.slack_of(ChainId(chain as u32));
            assert!(
                slack.iter().all(|s| *s >= 0),
                "seed {seed} step {at}: a virtual cluster cannot get its cells: slack {slack:?}"
            );
        }
        if thorough && let Err(what) = history.cells.check() {
            panic!("seed {seed} step {at}: {what}");
        }
    }
    if let Err(what) = history.cells.check() {
        panic!("seed {seed}: {what}");
    }
    (history.cells, history.counts)
}

/// Returns the factor for the number of steps; `DOVETAIL_HISTORY_SCALE=10` gives a long run.
fn scale() -> u64 {
    std::env::var("DOVETAIL_HISTORY_SCALE")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1)
}

/// Downgrading others for one machine of a group, under a new configuration, used to unbind the cell that had just been
/// bound for another of its machines.
#[test]
fn a_group_that_is_carried_over_keeps_the_cells_bound_for_it() {
    run(962, 5_000);
}

#[test]
fn every_virtual_cluster_can_always_get_the_cells_it_owns() {
    let each = 5_000;
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..STEPS * scale() / each {
        for (what, number) in run(seed, each).1 {
            *counts.entry(what).or_default() += number;
        }
    }
    println!("{counts:?}");
    let all = [
        "placed",
        "claimed",
        "dropped",
        "waits",
        "refused",
        "released",
        "proceeded",
        "failed",
        "recovered",
        "rolled back",
        "reconfigured",
        "put back",
    ];
    for what in all {
        assert!(
            counts.get(what).is_some_and(|n| *n > 100),
            "{what} happened too rarely: {counts:?}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_cells() {
    for seed in 0..20 {
        let (a, b) = (run(seed, 2_000), run(seed, 2_000));
        assert_eq!(a.1, b.1);
        assert!(a.0.is_same_as(&b.0));
    }
}
