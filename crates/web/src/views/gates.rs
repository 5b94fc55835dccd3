//! How jobs behind stage gates take turns: as planned, and as measured.

use dovetail_cluster::JobId;
use dovetail_cluster::state::{Attempt, ClusterState, JobRecord};
use dovetail_model::phase_plan::{PhasePlan, PlannedMember, StepStage};
use dovetail_model::{InterleavingTerms, Stages, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How jobs on the same GPUs take turns, stage by stage. In each period, each of them does one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatesView {
    /// The period according to the plan, in microseconds.
    #[schemars(with = "i64")]
    pub planned_period: Time,
    /// The measured period, in microseconds.
    #[schemars(with = "Option<i64>")]
    pub measured_period: Option<Time>,
    /// How long the job waits at gates in each step, in microseconds.
    #[schemars(with = "i64")]
    pub wait_per_step: Time,
    /// What the jobs would reach one after the other; none if the stages of one of them are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GatedGroupView>,
}

/// The jobs of a group behind stage gates. An efficiency is the mean utilization of the four resources storage, CPU, GPU and
/// network by the stages of the plan, from 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatedGroupView {
    /// Time in which each job does one step if they run one after the other, in microseconds.
    #[schemars(with = "i64")]
    pub in_turn_period: Time,
    /// Efficiency with the planned period.
    pub planned_efficiency: f64,
    /// Efficiency with the measured period.
    pub measured_efficiency: Option<f64>,
    /// Efficiency one after the other.
    pub in_turn_efficiency: f64,
    /// The jobs, in the order in which they are offset.
    pub members: Vec<GatedJobView>,
}

/// A job behind stage gates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatedJobView {
    /// Its number.
    pub job: JobId,
    /// Its name.
    pub name: String,
    /// Its stages that take time: `data`, `gpu` and `net`.
    pub stages: Vec<GatedStageView>,
}

/// A stage of a job behind stage gates. Times are in microseconds; those of a beginning count from that of the cycle, and can
/// exceed its period, because a step may extend into the next cycle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatedStageView {
    /// `data`, `gpu` or `net`.
    pub stage: String,
    /// When it begins according to the plan.
    #[schemars(with = "i64")]
    pub planned_begin: Time,
    /// How long it takes according to the plan.
    #[schemars(with = "i64")]
    pub planned: Time,
    /// When it begins in a measured period.
    #[schemars(with = "Option<i64>")]
    pub measured_begin: Option<Time>,
    /// How long it took, as the job reports it.
    #[schemars(with = "Option<i64>")]
    pub measured: Option<Time>,
}

impl GatesView {
    /// Returns how the stages of an attempt take turns with those of others, if they do.
    pub(crate) fn new(state: &ClusterState, job: &JobRecord, attempt: &Attempt) -> Option<Self> {
        let gates = attempt.gates()?;
        let measured_period = (gates.measured_period > Time::ZERO).then_some(gates.measured_period);
        let partners = gates.partners().iter().map(|id| state.job(*id));
        let members: Option<Vec<&JobRecord>> = std::iter::once(Some(job)).chain(partners).collect();
        let group = members.and_then(|members| GatedGroupView::new(&members, measured_period));
        Some(Self {
            planned_period: gates.planned_period,
            measured_period,
            wait_per_step: attempt.stages.as_ref()?.gate_time,
            group,
        })
    }
}

impl GatedGroupView {
    fn new(members: &[&JobRecord], measured_period: Option<Time>) -> Option<Self> {
        let terms = members.iter().map(|job| job.attempt()?.interleaving);
        let terms: Vec<InterleavingTerms> = terms.collect::<Option<_>>()?;
        let ordering = terms.iter().map(|terms| terms.ordering).min()?;
        let stages: Vec<(JobId, Stages)> = members
            .iter()
            .zip(&terms)
            .map(|(job, t)| (job.id, t.stages))
            .collect();
        let plan = PhasePlan::new(&stages, ordering)?;
        let measured = measured_period.map(|period| MeasuredPlan::new(&plan, members, period));
        let used: u64 = terms.iter().map(|terms| terms.stages.sum_us()).sum();
        let in_turn_us: f64 = terms
            .iter()
            .map(|terms| f64::from(terms.stages.iteration_us))
            .sum();
        let efficiency = |period_us: f64| used as f64 / (4.0 * period_us.max(1.0));
        let view = |member: &PlannedMember| {
            let job = members.iter().find(|job| job.id == member.id)?;
            let stage = |stage| GatedStageView::new(member, measured.as_ref(), stage);
            Some(GatedJobView {
                job: job.id,
                name: job.request.name.clone(),
                stages: StepStage::ALL.into_iter().filter_map(stage).collect(),
            })
        };
        Some(Self {
            in_turn_period: micros(in_turn_us),
            planned_efficiency: efficiency(plan.period_us()),
            measured_efficiency: measured_period.map(|period| efficiency(period.0 as f64)),
            in_turn_efficiency: efficiency(in_turn_us),
            members: plan.members().iter().map(view).collect::<Option<_>>()?,
        })
    }
}

/// The plan with the durations that the jobs report, spread over the measured period.
struct MeasuredPlan {
    plan: PhasePlan,
    /// The measured period as a multiple of the one that follows from these durations.
    stretch: f64,
}

impl MeasuredPlan {
    fn new(plan: &PhasePlan, members: &[&JobRecord], period: Time) -> Self {
        let plan = plan.retimed(|id| {
            let job = members.iter().find(|job| job.id == id)?;
            let reported = job.attempt()?.stages.as_ref()?;
            let part = |time: Time| u32::try_from(time.0).unwrap_or(0);
            let (data, gpu, net) = (job.progress.data_time, reported.gpu_time, reported.network_time);
            (gpu > Time::ZERO).then(|| [part(data), part(gpu), part(net)])
        });
        let stretch = period.0 as f64 / plan.period_us().max(1.0);
        Self { plan, stretch }
    }
}

impl GatedStageView {
    /// Returns a stage of a member; none if it takes no time.
    fn new(member: &PlannedMember, measured: Option<&MeasuredPlan>, stage: StepStage) -> Option<Self> {
        let retimed = measured.and_then(|measured| {
            let member = measured.plan.members().iter().find(|m| m.id == member.id)?;
            Some((member.begin_us(stage) * measured.stretch, member.time_us(stage)))
        });
        let longest = member.time_us(stage).max(retimed.map_or(0.0, |(_, time)| time));
        let name = match stage {
            StepStage::Data => "data",
            StepStage::Gpu => "gpu",
            StepStage::Network => "net",
        };
        (longest > 0.0).then(|| Self {
            stage: name.to_owned(),
            planned_begin: micros(member.begin_us(stage)),
            planned: micros(member.time_us(stage)),
            measured_begin: retimed.map(|(begin, _)| micros(begin)),
            measured: retimed.map(|(_, time)| micros(time)),
        })
    }
}

fn micros(us: f64) -> Time {
    Time(us.round().min(1e15) as i64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dovetail_cluster::{Capabilities, Fact, GateReport, JobRequest, PolicyText, StageReport, StageTimes};
    use dovetail_engine::Clock;
    use dovetail_model::{NodeId, NodeSpec};

    use super::*;

    fn submitted(job: JobId, name: &str, data_ms: i64, gpu_ms: i64) -> Fact {
        let request = JobRequest {
            name: name.to_owned(),
            command: vec!["true".to_owned()],
            expected: Some(Time::from_secs(3_600)),
            stages: Some(StageTimes {
                data: Time(data_ms * 1_000),
                gpu: Time(gpu_ms * 1_000),
                net: Time::ZERO,
            }),
            ..JobRequest::default()
        };
        Fact::Submitted {
            job,
            user: "ann".to_owned(),
            request: Arc::new(request),
            key: None,
        }
    }

    fn started(job: JobId) -> Fact {
        Fact::TaskStarted {
            job,
            attempt: 1,
            node: NodeId(0),
            sharing: "time slices".to_owned(),
            remarks: Vec::new(),
        }
    }

    fn reported(job: JobId, partner: JobId, (data_ms, gpu_ms): (i64, i64), measured_ms: i64) -> Fact {
        Fact::Progressed {
            job,
            attempt: 1,
            step: 9,
            total_steps: 1_000,
            step_time: Time(measured_ms * 1_000),
            data_time: Time(data_ms * 1_000),
            checkpoint_step: 0,
            stages: Some(Box::new(StageReport {
                gpu_time: Time(gpu_ms * 1_000),
                network_time: Time::ZERO,
                gate_time: Time(10_000),
                gates: GateReport::new(Time(100_000), Time(measured_ms * 1_000), vec![partner]),
            })),
        }
    }

    /// Two jobs on one GPU under a policy that interleaves their stages.
    fn sharing() -> ClusterState {
        let policy = PolicyText {
            policy: "muri-s".to_owned(),
            ..PolicyText::default()
        };
        let mut state = ClusterState::new(policy, Clock::Events)
            .unwrap()
            .on(Capabilities::ALL)
            .unwrap();
        let joined = Fact::NodeJoined {
            node: NodeId(0),
            spec: Box::new(NodeSpec::plain("node".to_owned(), 1)),
            gpu_type: "virtual".to_owned(),
            rack: "rack".to_owned(),
            address: String::new(),
            identity: 1,
        };
        let facts = [
            joined,
            submitted(1, "loads", 80, 20),
            submitted(2, "computes", 20, 80),
            started(1),
            started(2),
        ];
        for (second, fact) in (1_000..).zip(&facts) {
            state.apply(Time::from_secs(second), fact);
        }
        state
    }

    #[test]
    fn a_group_has_its_cycle_as_planned_and_as_measured() {
        let mut state = sharing();
        let view = |state: &ClusterState| {
            let job = state.job(1).unwrap();
            GatesView::new(state, job, job.attempt().unwrap())
        };
        assert_eq!(view(&state), None);
        state.apply(Time::from_secs(2_000), &reported(2, 1, (20, 90), 0));
        state.apply(Time::from_secs(2_001), &reported(1, 2, (80, 20), 0));
        let group = view(&state).unwrap().group.unwrap();
        assert_eq!((group.planned_efficiency, group.in_turn_efficiency), (0.5, 0.25));
        assert_eq!(
            (group.measured_efficiency, group.in_turn_period),
            (None, Time(200_000))
        );
        assert!(
            group
                .members
                .iter()
                .flat_map(|m| &m.stages)
                .all(|stage| stage.measured.is_none())
        );
        // A cycle of 125 ms instead of the 110 ms that follow from the stages.
        state.apply(Time::from_secs(2_002), &reported(1, 2, (80, 20), 125));
        let gates = view(&state).unwrap();
        assert_eq!(
            (gates.measured_period, gates.wait_per_step),
            (Some(Time(125_000)), Time(10_000))
        );
        let group = gates.group.unwrap();
        assert_eq!(group.measured_efficiency, Some(0.4));
        let stage = |name: &str, planned: (i64, i64), measured: (i64, i64)| GatedStageView {
            stage: name.to_owned(),
            planned_begin: Time(planned.0),
            planned: Time(planned.1),
            measured_begin: Some(Time(measured.0)),
            measured: Some(Time(measured.1)),
        };
        assert_eq!(
            (group.members[0].job, group.members[0].name.as_str()),
            (1, "loads")
        );
        assert_eq!(
            group.members[0].stages,
            [
                stage("data", (0, 80_000), (0, 80_000)),
                stage("gpu", (80_000, 20_000), (102_273, 20_000))
            ]
        );
        assert_eq!(
            group.members[1].stages,
            [
                stage("data", (80_000, 20_000), (102_273, 20_000)),
                stage("gpu", (100_000, 80_000), (125_000, 90_000))
            ]
        );
    }
}
