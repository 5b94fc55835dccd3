//! Scenario files: what was done to HiveD, what it answered, and its state after each step.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::compare::{Mismatch, compare_result, compare_state};
use super::extender::{Answer, Extender, Member, Phase, PodGroup, PodSpec, UserError};
use crate::layout::Layout;
use crate::state::Cells;

/// A scenario.
#[derive(Debug, Clone, Deserialize)]
pub struct Scenario {
    /// Its name, `group/name`.
    pub name: String,
    /// What it is about.
    #[serde(default)]
    pub note: String,
    /// The configuration it starts with.
    pub config: String,
    /// What happens.
    pub steps: Vec<Step>,
}

/// One step: what is done, and what HiveD answered.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Step {
    /// `schedule`, `delete`, `badNode`, `healthyNode`, `restart` or `init`.
    pub op: String,
    /// The pod.
    pub pod: String,
    /// What the pod asks for.
    pub spec: Option<PodSpec>,
    /// Whether Kubernetes only asks.
    pub phase: Option<Phase>,
    /// The machines Kubernetes suggests; all if there is none.
    pub suggested_nodes: Option<Vec<String>>,
    /// Whether a pod that can start is counted as started.
    pub commit: Option<bool>,
    /// The machine.
    pub node: String,
    /// The configuration to go on with.
    pub config: String,
    /// What HiveD answered.
    pub result: Value,
    /// HiveD did not always answer the same.
    pub nondeterministic: bool,
    /// Everything it answered then.
    pub observed_results: Vec<Value>,
    /// Its state after the step, as far as that was always the same.
    pub state: Value,
    /// Whether parts of the state were not.
    pub state_nondeterministic: Value,
}

/// A step at which Dovetail means to differ from HiveD.
#[derive(Debug, Clone, Copy)]
pub struct Exception {
    /// The scenario.
    pub scenario: &'static str,
    /// The step, from 0.
    pub step: usize,
    /// What Dovetail answers.
    pub kind: &'static str,
    /// Whether the state differs from this step on.
    pub state_differs: bool,
    /// Why.
    pub why: &'static str,
}

/// Every step of the published scenarios at which Dovetail means to differ.
pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        scenario: "unit/02-suggested-nodes",
        step: 9,
        kind: "wait",
        state_differs: true,
        why: "when a preemption is given up its victim is whole again; HiveD leaves it BeingPreempted",
    },
    Exception {
        scenario: "unit/04-stateful-preemption",
        step: 9,
        kind: "ok",
        state_differs: true,
        why: "when a preemption is given up its victim is whole again; HiveD leaves it BeingPreempted",
    },
    Exception {
        scenario: "weakness/greedy-gap",
        step: 1,
        kind: "bind",
        state_differs: true,
        why: "the group fits (3 | 2+2); HiveD's single sweep over machines does not find it",
    },
    Exception {
        scenario: "weakness/lazy-preempt-side-effect",
        step: 2,
        kind: "preempt",
        state_differs: true,
        why: "an attempt that is not carried out leaves no trace; HiveD's downgrades its victim for good",
    },
    Exception {
        scenario: "weakness/pod-of-being-preempted-gang",
        step: 2,
        kind: "wait",
        state_differs: false,
        why: "a late pod of a group that is being stopped waits; HiveD crashes",
    },
    Exception {
        scenario: "weakness/cancelled-preemption-state",
        step: 2,
        kind: "ok",
        state_differs: true,
        why: "when a preemption is given up its victim is whole again; HiveD leaves it BeingPreempted",
    },
    Exception {
        scenario: "weakness/cancelled-preemption-state",
        step: 3,
        kind: "bind",
        state_differs: true,
        why: "so the late pod of the former victim gets its place; HiveD crashes",
    },
];

/// How a scenario went.
#[derive(Debug, Clone, Default)]
pub struct Played {
    /// Steps that were compared.
    pub steps: usize,
    /// Steps that agreed to the last leaf.
    pub exact: usize,
    /// Steps that agreed except for which of several equal cells were chosen.
    pub symmetric: usize,
    /// Steps at which Dovetail means to differ, and does.
    pub exceptions: Vec<(usize, &'static str)>,
    /// The first step that does not agree.
    pub mismatch: Option<(usize, Mismatch)>,
}

/// Sees a step after it was played: its number, the cells, the step, and the answer if there is one.
pub type Watch<'a> = dyn FnMut(usize, &Extender, &Step, Option<&Result<Answer, UserError>>) + 'a;

/// Takes the steps of a scenario: in process, or wherever else there is something that behaves as HiveD should.
pub trait Player {
    /// Takes a step; says what it came to if it asks for something.
    ///
    /// # Errors
    /// A sentence when the step cannot be taken.
    fn step(&mut self, at: usize, step: &Step) -> Result<StepResult, String>;

    /// Shows the groups and cells as they are now.
    fn look(&self, see: &mut dyn FnMut(&Extender));
}

/// Plays in process.
struct InProcess<'a> {
    extender: Extender,
    configs: &'a mut dyn FnMut(&str) -> Result<Layout, String>,
}

impl Player for InProcess<'_> {
    fn step(&mut self, _at: usize, step: &Step) -> Result<StepResult, String> {
        play_step(&mut self.extender, step, self.configs)
    }

    fn look(&self, see: &mut dyn FnMut(&Extender)) {
        see(&self.extender);
    }
}

impl Scenario {
    /// Plays all steps and compares. `configs` gives the compiled configuration of a name, or what is wrong with it;
    /// `watch` sees every step after it was played, and what it came to.
    ///
    /// # Errors
    /// A sentence when the scenario itself cannot be played.
    pub fn play(
        &self,
        configs: &mut dyn FnMut(&str) -> Result<Layout, String>,
        watch: &mut Watch<'_>,
    ) -> Result<Played, String> {
        let layout = match (configs(&self.config), self.is_refused_at_start()) {
            (Err(_), true) => {
                return Ok(Played {
                    steps: 1,
                    exact: 1,
                    ..Played::default()
                });
            }
            (Err(what), false) => return Err(what),
            (Ok(layout), _) => layout,
        };
        let mut cells = Cells::new(layout);
        cells.set_repromotion(false);
        let extender = Extender::new(cells);
        self.play_with(&mut InProcess { extender, configs }, watch)
    }

    /// Whether its configuration is one that HiveD refuses.
    pub fn is_refused_at_start(&self) -> bool {
        self.steps.first().is_some_and(|step| step.op == "init")
    }

    /// The same with any player.
    ///
    /// # Errors
    /// A sentence when the scenario itself cannot be played.
    pub fn play_with(&self, player: &mut dyn Player, watch: &mut Watch<'_>) -> Result<Played, String> {
        let mut played = Played::default();
        let mut differs = false;
        for (at, step) in self.steps.iter().enumerate() {
            let ours = player.step(at, step)?;
            played.steps += 1;
            let exception = EXCEPTIONS
                .iter()
                .find(|e| e.scenario == self.name && e.step == at);
            if let Some(exception) = exception {
                differs |= exception.state_differs;
                played.exceptions.push((at, exception.why));
            }
            let mut seen = Ok(Ok(true));
            player.look(&mut |extender| {
                watch(at, extender, step, ours.as_ref());
                if let Err(what) = extender.cells().check() {
                    seen = Err(format!("step {at}: the books do not agree: {what}"));
                    return;
                }
                let compared = match exception {
                    Some(exception) => Mismatch::unless_equal("result.kind", &exception.kind, &kind(&ours)),
                    None => compare_result(extender, step, &ours),
                };
                seen = Ok(compared.and_then(|exact| {
                    if differs {
                        return Ok(exact);
                    }
                    Ok(compare_state(extender, step)? && exact)
                }));
            });
            match seen? {
                Ok(true) => played.exact += 1,
                Ok(false) => played.symmetric += 1,
                Err(mismatch) => {
                    played.mismatch = Some((at, mismatch));
                    break;
                }
            }
        }
        Ok(played)
    }
}

/// What a step came to; nothing for a step that asks for nothing.
pub type StepResult = Option<Result<Answer, UserError>>;

/// HiveD's word for what a step came to.
pub(crate) fn kind(ours: &StepResult) -> &'static str {
    match ours {
        None => "ok",
        Some(Ok(Answer::Bind { .. })) => "bind",
        Some(Ok(Answer::Preempt { .. })) => "preempt",
        Some(Ok(Answer::Wait { .. })) => "wait",
        Some(Err(_)) => "user-error",
    }
}

fn play_step(
    extender: &mut Extender,
    step: &Step,
    configs: &mut dyn FnMut(&str) -> Result<Layout, String>,
) -> Result<StepResult, String> {
    match step.op.as_str() {
        "schedule" => {
            let mut spec = step.spec.clone().unwrap_or_default();
            // All pods of the scenarios live in one namespace.
            spec.affinity_group.get_or_insert_with(|| PodGroup {
                name: format!("test/{}", step.pod),
                members: vec![Member {
                    pod_number: 1,
                    leaf_cell_number: spec.leaf_cell_number,
                }],
            });
            let phase = step.phase.unwrap_or(Phase::Filtering);
            let suggested = step.suggested_nodes.as_deref();
            let keep = step.commit.unwrap_or(true);
            Ok(Some(extender.schedule(&step.pod, &spec, phase, suggested, keep)))
        }
        "delete" => {
            extender.delete(&step.pod);
            Ok(None)
        }
        "badNode" | "healthyNode" => {
            if extender.set_health(&step.node, step.op == "healthyNode") {
                Ok(None)
            } else {
                Err(format!("there is no machine {:?}", step.node))
            }
        }
        "restart" => {
            let layout = configs(&step.config)?;
            extender.all_healthy();
            extender.reconfigure(layout);
            Ok(None)
        }
        "init" => Err("the configuration is accepted, although HiveD refuses it".to_owned()),
        other => Err(format!(
            "unknown op {other:?}; expected schedule, delete, badNode, healthyNode or restart"
        )),
    }
}

/// So many of each.
pub(crate) fn tally<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counted = BTreeMap::new();
    for item in items {
        *counted.entry(item).or_default() += 1;
    }
    counted
}
