//! Whether pods may be on every node that has GPUs for them.

use std::collections::BTreeMap;

use super::gangs::Member;
use super::nodes::{Seen, gpu_type};
use crate::fit::Wants;

/// What was found out since the nodes changed last: pods by the thousand want the same.
#[derive(Debug, Default)]
pub(crate) struct Welcomes(Vec<Welcome>);

#[derive(Debug)]
struct Welcome {
    kind: Option<String>,
    wants: Wants,
    verdict: Result<(), String>,
}

/// So many are remembered.
const MOST: usize = 64;

impl Welcomes {
    /// The nodes have changed.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Pods that want only some of the nodes with their kind of GPU cannot be served yet, and are told so.
    pub(crate) fn may_go_anywhere(
        &mut self,
        member: &Member,
        nodes: &BTreeMap<String, Seen>,
    ) -> Result<(), String> {
        let kind = &member.identity.gpu_type;
        let known = self.0.iter().find(|w| w.kind == *kind && w.wants == member.wants);
        if let Some(known) = known {
            return known.verdict.clone();
        }
        let verdict = look(member, nodes);
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push(Welcome {
            kind: kind.clone(),
            wants: member.wants.clone(),
            verdict: verdict.clone(),
        });
        verdict
    }
}

fn look(member: &Member, nodes: &BTreeMap<String, Seen>) -> Result<(), String> {
    let kind = member.identity.gpu_type.as_ref();
    for (name, node) in nodes.iter().filter(|(_, n)| n.id.is_some()) {
        let fits = kind.is_none_or(|kind| *kind == gpu_type(&node.labels));
        let refuses = || member.wants.against(name, &node.labels, &node.taints);
        if let Some(why) = fits.then(refuses).flatten() {
            return Err(format!(
                "node {name} has GPUs for it but must not take it ({why}); select nodes by the label of their kind of GPU, \
                 or tolerate the taint"
            ));
        }
    }
    Ok(())
}
