//! Blox's scattered placement with its quirk: nodes by id, from each up to the *whole* need, and success only if the sum
//! equals the need exactly. Four GPUs on nodes with 3 and 3 free are refused.

use dovetail_engine::cluster::Cluster;
use dovetail_engine::{Ask, Part, Placement};
use dovetail_model::{Allocation, Reason};

use super::{share, usable};
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Placement> = Entry {
    name: "blox-scatter",
    what: "as in Blox: nodes in order, and only if their free GPUs add up exactly",
    source: "Blox (EuroSys'24), scattered placement",
    key: "lowest nodes whose min(free, need) sum to the need",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(BloxScatter)),
};

/// Blox's scattered placement.
#[derive(Debug, Clone)]
struct BloxScatter;

impl Part for BloxScatter {
    fn name(&self) -> String {
        "blox-scatter".to_owned()
    }
}

impl Placement for BloxScatter {
    fn place(&mut self, ask: &Ask, cluster: &Cluster) -> Result<Allocation, Reason> {
        if ask.gpus_per_task > 1 {
            return super::take_in_order(cluster.nodes_with_any_free(), ask)
                .ok_or_else(|| super::no_place(ask, cluster, cluster.most_free(ask.gpu_type)));
        }
        let mut sum = 0;
        let mut allocation = Allocation::default();
        for (id, node) in cluster.nodes_with_any_free() {
            let here = usable(node, ask).min(ask.gpus);
            if here == 0 {
                continue;
            }
            sum += here;
            allocation.shares.push(share(id, node, here, ask));
            if sum >= ask.gpus {
                break;
            }
        }
        if sum == ask.gpus {
            return Ok(allocation);
        }
        Err(super::no_place(ask, cluster, cluster.most_free(ask.gpu_type)))
    }
}
