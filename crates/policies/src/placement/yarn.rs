//! The placement that Muri's simulator calls yarn: the first node with room, or whole idle nodes and one more for the rest.

use dovetail_engine::cluster::Cluster;
use dovetail_engine::{Ask, Part, Placement};
use dovetail_model::{Allocation, Reason};

use super::{no_place, share, usable};
use crate::registry::Entry;

pub(super) const ENTRY: Entry<dyn Placement> = Entry {
    name: "yarn",
    what: "the first node with room; wider jobs get idle nodes and one more for the rest",
    source: "Muri (SIGCOMM'22), scheme yarn",
    key: "lowest node; a job wider than a node takes only idle nodes, and one with room for the rest",
    companions: &[],
    knobs: &[],
    build: |_| Ok(Box::new(Yarn)),
};

/// First fit by node.
#[derive(Debug, Clone)]
struct Yarn;

impl Part for Yarn {
    fn name(&self) -> String {
        "yarn".to_owned()
    }
}

impl Placement for Yarn {
    fn place(&mut self, ask: &Ask, cluster: &Cluster) -> Result<Allocation, Reason> {
        if ask.gpus_per_task > 1 {
            return super::bundles::on_fewest(ask, cluster)
                .ok_or_else(|| no_place(ask, cluster, cluster.most_free(ask.gpu_type)));
        }
        let mut left = ask.gpus;
        let mut allocation = Allocation::default();
        // Whole idle nodes first, while more is needed than one of them has.
        for (id, node) in cluster.nodes_with_any_free() {
            if left >= node.spec.gpus && ask.gpus > node.spec.gpus && usable(node, ask) == node.spec.gpus {
                allocation.shares.push(share(id, node, node.spec.gpus, ask));
                left -= node.spec.gpus;
            }
        }
        if left > 0 {
            let taken = |id| allocation.shares.iter().any(|s| s.node == id);
            let last = cluster
                .nodes_with_any_free()
                .find(|(id, node)| usable(node, ask) >= left && !taken(*id));
            match last {
                Some((id, node)) => allocation.shares.push(share(id, node, left, ask)),
                None => return Err(no_place(ask, cluster, cluster.most_free(ask.gpu_type))),
            }
            allocation.shares.sort_unstable_by_key(|s| s.node);
        }
        Ok(allocation)
    }
}

#[cfg(test)]
mod tests {
    use dovetail_engine::{Clock, Engine, Policy};
    use dovetail_model::{ClusterSpec, Command, Event, JobKey, JobSpec, Time};

    use crate::{Overrides, build};

    /// The nodes that each of these jobs gets on three nodes of eight GPUs; none if it waits.
    fn nodes(widths: &[u32]) -> Vec<Vec<(u32, u32)>> {
        let over = Overrides {
            placement: Some("yarn".to_owned()),
            ..Overrides::default()
        };
        let (policy, _): (Policy, _) = build("fifo-backfill", &over).unwrap();
        let mut engine = Engine::with_cluster(policy, Clock::Events, &ClusterSpec::uniform(3, 8));
        for (i, gpus) in widths.iter().enumerate() {
            engine.handle(
                Time::ZERO,
                Event::Submitted(JobSpec::new(JobKey(i as u32), *gpus)),
            );
        }
        let mut got = vec![Vec::new(); widths.len()];
        while let Some(command) = engine.poll() {
            if let Command::Launch { job, allocation, .. } = command {
                got[job.0 as usize] = allocation
                    .shares
                    .iter()
                    .map(|s| (s.node.0, s.gpus.count()))
                    .collect();
            }
        }
        got
    }

    #[test]
    fn narrow_jobs_take_the_first_node_with_room_and_wide_ones_idle_nodes() {
        assert_eq!(nodes(&[5, 4, 3]), [vec![(0, 5)], vec![(1, 4)], vec![(0, 3)]]);
        assert_eq!(nodes(&[1, 16]), [vec![(0, 1)], vec![(1, 8), (2, 8)]]);
        assert_eq!(nodes(&[1, 12]), [vec![(0, 1)], vec![(0, 4), (1, 8)]]);
        assert_eq!(nodes(&[1, 9, 16]), [vec![(0, 1)], vec![(0, 1), (1, 8)], vec![]]);
        assert_eq!(
            nodes(&[5, 5, 5, 8]),
            [vec![(0, 5)], vec![(1, 5)], vec![(2, 5)], vec![]]
        );
    }
}
