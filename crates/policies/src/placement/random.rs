//! Random: nodes in random order, by a seeded generator that is part of the state.

use dovetail_engine::cluster::{Cluster, NodeState};
use dovetail_engine::{Ask, LoadError, Part, Placement};
use dovetail_model::{Allocation, NodeId, Reason};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::{no_place, take_in_order};
use crate::knobs::Knob;
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Placement> = Entry {
    name: "random",
    what: "nodes in random order",
    source: "baseline",
    key: "a seeded shuffle of the nodes with free GPUs",
    companions: &[],
    knobs: &[Knob {
        name: "seed",
        default: "1",
        what: "seed of the shuffle; a whole number",
    }],
    build: |knobs| {
        let seed = knobs.get("seed", "a whole number")?;
        Ok(Box::new(Random {
            generator: ChaCha8Rng::seed_from_u64(seed),
            name: knobs.name(),
        }))
    },
};

/// A random order of nodes.
#[derive(Debug, Clone)]
struct Random {
    generator: ChaCha8Rng,
    name: String,
}

impl Part for Random {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn save(&self) -> Value {
        serde_json::to_value(&self.generator).unwrap_or(Value::Null)
    }

    fn load(&mut self, saved: &Value) -> Result<(), LoadError> {
        self.generator = serde_json::from_value(saved.clone()).map_err(|e| LoadError::new("random", e))?;
        Ok(())
    }
}

impl Placement for Random {
    fn place(&mut self, ask: &Ask, cluster: &Cluster) -> Result<Allocation, Reason> {
        let mut nodes: Vec<(NodeId, &NodeState)> = cluster.nodes_with_any_free().collect();
        for i in (1..nodes.len()).rev() {
            let j = (self.generator.next_u64() % (i as u64 + 1)) as usize;
            nodes.swap(i, j);
        }
        take_in_order(nodes.into_iter(), ask)
            .ok_or_else(|| no_place(ask, cluster, cluster.most_free(ask.gpu_type)))
    }
}
