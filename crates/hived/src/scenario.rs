//! Recorded scenarios of HiveD: its inputs, its answers, and its state after each step. A replay compares Dovetail's
//! answers and states with them.

use dovetail_cells::{Cells, Inconsistency, Layout};
use serde::Deserialize;
use serde_json::Value;

use crate::answer::{Answer, Phase, UserError};
use crate::compare::{Mismatch, compare_result, compare_state};
use crate::config::ConfigError;
use crate::exceptions::{EXCEPTIONS, Exception};
use crate::pod_spec::PodSpec;
use crate::scheduler::GroupScheduler;

/// A scenario.
#[derive(Debug, Clone, Deserialize)]
pub struct Scenario {
    /// Name of the scenario, `group/name`.
    pub name: String,
    /// Description of the scenario.
    #[serde(default)]
    pub note: String,
    /// Name of the configuration that the scenario starts with.
    pub config: String,
    /// Steps of the scenario.
    pub steps: Vec<Step>,
}

/// One step, with what HiveD answered.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Step {
    /// `schedule`, `delete`, `badNode`, `healthyNode`, `restart` or `init`.
    pub op: String,
    /// The pod.
    pub pod: String,
    /// The request of the pod.
    pub spec: Option<PodSpec>,
    /// Whether Kubernetes only asks.
    pub phase: Option<Phase>,
    /// Machines that Kubernetes suggests; `None` for all.
    pub suggested_nodes: Option<Vec<String>>,
    /// Whether a pod that can start is started.
    pub commit: Option<bool>,
    /// The machine.
    pub node: String,
    /// The configuration after a restart.
    pub config: String,
    /// HiveD's answer.
    pub result: Value,
    /// Whether HiveD's answers varied.
    pub nondeterministic: bool,
    /// All answers of HiveD if they varied.
    pub observed_results: Vec<Value>,
    /// HiveD's state after the step, as far as it did not vary.
    pub state: Value,
    /// Whether parts of the state varied.
    pub state_nondeterministic: Value,
}

/// The answer to a step; `None` for a step that asks nothing.
pub type StepResult = Option<Result<Answer, UserError>>;

/// Result of replaying a scenario.
#[derive(Debug, Clone, Default)]
pub struct ScenarioReport {
    /// Steps that were compared.
    pub steps: usize,
    /// Steps that agree exactly.
    pub exact: usize,
    /// Steps that agree except for the choice among equal cells.
    pub symmetric: usize,
    /// Steps at which Dovetail differs on purpose, with the reason.
    pub exceptions: Vec<(usize, &'static str)>,
    /// The first step that does not agree.
    pub mismatch: Option<(usize, Mismatch)>,
}

/// A scenario that cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// HiveD refuses the first configuration, but Dovetail accepts it.
    #[error("the configuration is accepted, although HiveD refuses it")]
    ConfigAccepted,
    /// A step names a machine that does not exist.
    #[error("machine {0:?} does not exist")]
    UnknownMachine(String),
    /// A step has an unknown `op`.
    #[error("unknown op {0:?}; expected schedule, delete, badNode, healthyNode or restart")]
    UnknownOp(String),
    /// A count does not agree with the state it follows from.
    #[error("step {step}: {error}")]
    Inconsistent {
        /// The step.
        step: usize,
        /// The count.
        error: Inconsistency,
    },
    /// The scheduler under test failed.
    #[error(transparent)]
    Target(#[from] Box<dyn std::error::Error + Send + Sync>),
}

/// Loads the configuration of a name.
pub type ConfigLoader<'a> = dyn FnMut(&str) -> Result<Layout, ScenarioError> + 'a;

/// Sees each step after it was taken: its number, the scheduler, the step and the answer.
pub type Observer<'a> = dyn FnMut(usize, &GroupScheduler, &Step, Option<&Result<Answer, UserError>>) + 'a;

/// A scheduler that takes the steps of a scenario.
pub trait ScenarioTarget {
    /// Takes a step. Returns the answer if the step asks something.
    ///
    /// # Errors
    /// When the step cannot be taken.
    fn step(&mut self, at: usize, step: &Step) -> Result<StepResult, ScenarioError>;

    /// Calls `see` with the current groups and cells.
    fn inspect(&self, see: &mut dyn FnMut(&GroupScheduler));
}

/// Takes the steps in process.
struct InProcess<'a> {
    scheduler: GroupScheduler,
    configs: &'a mut ConfigLoader<'a>,
}

impl ScenarioTarget for InProcess<'_> {
    fn step(&mut self, _at: usize, step: &Step) -> Result<StepResult, ScenarioError> {
        let scheduler = &mut self.scheduler;
        match step.op.as_str() {
            "schedule" => {
                let mut spec = step.spec.clone().unwrap_or_default();
                // All pods of the scenarios are in the namespace `test`.
                spec.affinity_group = Some(spec.group_or_own(&format!("test/{}", step.pod)));
                let phase = step.phase.unwrap_or(Phase::Filtering);
                let suggested = step.suggested_nodes.as_deref();
                let commit = step.commit.unwrap_or(true);
                let answer = scheduler.schedule(&step.pod, &spec, phase, suggested, commit);
                return Ok(Some(answer));
            }
            "delete" => scheduler.delete(&step.pod),
            "badNode" | "healthyNode" => {
                if !scheduler.set_health(&step.node, step.op == "healthyNode") {
                    return Err(ScenarioError::UnknownMachine(step.node.clone()));
                }
            }
            "restart" => {
                let layout = (self.configs)(&step.config)?;
                scheduler.set_all_healthy();
                scheduler.reconfigure(layout);
            }
            "init" => return Err(ScenarioError::ConfigAccepted),
            other => return Err(ScenarioError::UnknownOp(other.to_owned())),
        }
        Ok(None)
    }

    fn inspect(&self, see: &mut dyn FnMut(&GroupScheduler)) {
        see(&self.scheduler);
    }
}

impl Scenario {
    /// Replays all steps in process and compares.
    ///
    /// # Errors
    /// When the scenario cannot be replayed.
    pub fn replay<'a>(
        &self,
        configs: &'a mut ConfigLoader<'a>,
        observer: &mut Observer<'_>,
    ) -> Result<ScenarioReport, ScenarioError> {
        let layout = match (configs(&self.config), self.is_refused_at_start()) {
            (Err(_), true) => {
                return Ok(ScenarioReport {
                    steps: 1,
                    exact: 1,
                    ..ScenarioReport::default()
                });
            }
            (layout, _) => layout?,
        };
        let mut cells = Cells::new(layout);
        cells.set_repromotion(false);
        let scheduler = GroupScheduler::new(cells);
        self.replay_with(&mut InProcess { scheduler, configs }, observer)
    }

    /// Whether HiveD refuses its configuration.
    pub fn is_refused_at_start(&self) -> bool {
        self.steps.first().is_some_and(|step| step.op == "init")
    }

    /// Replays all steps on any target and compares.
    ///
    /// # Errors
    /// When the scenario cannot be replayed.
    pub fn replay_with(
        &self,
        target: &mut dyn ScenarioTarget,
        observer: &mut Observer<'_>,
    ) -> Result<ScenarioReport, ScenarioError> {
        let mut report = ScenarioReport::default();
        let mut state_differs = false;
        for (at, step) in self.steps.iter().enumerate() {
            let answer = target.step(at, step)?;
            report.steps += 1;
            let exception = EXCEPTIONS
                .iter()
                .find(|e| e.scenario == self.name && e.step == at);
            if let Some(exception) = exception {
                state_differs |= exception.state_differs;
                report.exceptions.push((at, exception.reason));
            }
            let mut outcome = Ok(Ok(true));
            target.inspect(&mut |scheduler| {
                observer(at, scheduler, step, answer.as_ref());
                outcome = match scheduler.cells().check() {
                    Err(error) => Err(ScenarioError::Inconsistent { step: at, error }),
                    Ok(()) => Ok(compare(scheduler, step, &answer, exception, state_differs)),
                };
            });
            match outcome? {
                Ok(true) => report.exact += 1,
                Ok(false) => report.symmetric += 1,
                Err(mismatch) => {
                    report.mismatch = Some((at, mismatch));
                    break;
                }
            }
        }
        Ok(report)
    }
}

/// Compares answer and state of a step. Returns whether they agree exactly.
fn compare(
    scheduler: &GroupScheduler,
    step: &Step,
    answer: &StepResult,
    exception: Option<&Exception>,
    state_differs: bool,
) -> Result<bool, Mismatch> {
    let is_exact = match exception {
        Some(exception) => Mismatch::unless_equal("result.kind", &exception.kind, &kind(answer))?,
        None => compare_result(scheduler, step, answer)?,
    };
    if state_differs {
        return Ok(is_exact);
    }
    Ok(compare_state(scheduler, step)? && is_exact)
}

/// Returns HiveD's word for an answer.
pub(crate) fn kind(answer: &StepResult) -> &'static str {
    match answer {
        None => "ok",
        Some(Ok(Answer::Bind { .. })) => "bind",
        Some(Ok(Answer::Preempt { .. })) => "preempt",
        Some(Ok(Answer::Wait { .. })) => "wait",
        Some(Err(_)) => "user-error",
    }
}
