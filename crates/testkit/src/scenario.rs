//! A scenario: a cluster, a policy, jobs and events.

use dovetail_engine::{Clock, Engine, Knowledge, Policy};
use dovetail_model::stages::Stages;
use dovetail_model::{ClusterSpec, JobKey, JobSpec, NodeId, Time, Work};
use dovetail_policies::{Kind, Overrides, build, find_preset, registry};
use dovetail_workload::{JobLabel, Names, TraceJob, Workload};

/// A policy as users write it: a preset and replaced parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyText {
    /// The preset, with knobs.
    pub preset: String,
    /// The replaced parts.
    pub overrides: Overrides,
}

impl PolicyText {
    /// Returns a preset without replaced parts.
    pub fn preset(name: &str) -> Self {
        Self {
            preset: name.to_owned(),
            overrides: Overrides::default(),
        }
    }

    /// Whether jobs alternate after a short time. With slow starts such jobs would make no progress, because a time slice
    /// may be no longer than a start.
    pub fn takes_turns(&self) -> bool {
        let name = self.preset.split(':').next().unwrap_or_default();
        let preset = find_preset(name).map_or("", |preset| preset.order);
        let order = self.overrides.order.as_deref();
        let alternating = ["las", "tiresias"];
        order.is_some_and(|order| alternating.iter().any(|name| order.starts_with(name)))
            || registry::build(Kind::Order, registry::ORDERS, order.unwrap_or(preset))
                .is_ok_and(|order| order.depends_on_all_jobs())
    }

    /// Whether CPU and memory are given by need, for which jobs have sensitivities.
    pub fn sizes_by_need(&self) -> bool {
        let sizing = self.overrides.sizing.as_deref().unwrap_or_default();
        let by_need = ["proportional", "greedy", "tune", "opt"];
        let name = sizing.split(':').next().unwrap_or_default();
        by_need.contains(&name)
    }

    /// Builds the policy, and returns what it must know about remaining work.
    ///
    /// # Panics
    /// Panics if the text is invalid.
    pub fn build(&self) -> (Policy, Knowledge) {
        build(&self.preset, &self.overrides).unwrap_or_else(|e| panic!("{e}"))
    }
}

/// A job of a story: its true properties, and what the scheduler knows about its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoryJob {
    /// The true properties. The label is the job's name.
    pub job: TraceJob,
    /// The work that the scheduler assumes.
    pub expected: Option<Work>,
    /// The stages of an iteration; jobs with stages can share GPUs.
    pub stages: Option<Stages>,
    /// What the scheduler knows a restart to cost. In a story it takes no time.
    pub restart_cost: Option<Time>,
}

impl StoryJob {
    /// Returns the job as it is submitted.
    pub fn spec(&self, id: JobKey) -> JobSpec {
        let job = &self.job;
        JobSpec {
            tenant: job.tenant,
            user: job.user,
            priority: job.priority,
            min_gpus: job.min_gpus,
            max_gpus: job.max_gpus,
            gpu_type: job.gpu_type,
            model: job.model,
            cpu_milli_per_gpu: job.cpu_milli_per_gpu,
            memory_mib_per_gpu: job.memory_mib_per_gpu,
            gpu_memory_mib: job.gpu_memory_mib,
            scaling: job.scaling.clone(),
            submit: job.submit,
            expected: self.expected,
            stages: self.stages,
            sensitivity: job.sensitivity.clone(),
            restart_cost: self.restart_cost,
            ..JobSpec::new(id, job.gpus)
        }
    }

    /// Returns the job of a trace.
    fn trace_job(&self) -> TraceJob {
        let mut job = self.job.clone();
        if let Some(stages) = self.stages {
            job.iterations = Some((job.work.0 / u64::from(stages.iteration_us.max(1))).max(1));
            let millis = |us: &u32| (f64::from(*us) / 1000.0).to_string().into();
            job.extra = Some(stages.times_us[..3].iter().map(millis).collect());
        }
        job
    }

    /// Returns its name.
    pub fn name(&self) -> String {
        self.job.label.to_string()
    }
}

/// An event of a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoryEvent {
    /// A job is submitted.
    Submit(JobKey),
    /// The owner of a job cancels it.
    Cancel(JobKey),
    /// A job fails, if it is running.
    Fail(JobKey),
    /// A node is lost, with everything on it.
    NodeDown(NodeId),
    /// A node returns.
    NodeUp(NodeId),
    /// A node is drained.
    Drain(NodeId),
    /// A draining node accepts jobs again.
    Resume(NodeId),
    /// The explanation of a job is added to the trace.
    Explain(JobKey),
}

/// How the fake cluster behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Behaviour {
    /// Time from a launch until the job makes progress.
    pub start_delay: Time,
    /// Time from a stop command until the GPUs are free.
    pub stop_delay: Time,
    /// Seed by which commands and answers are delayed, repeated and reordered.
    pub chaos: Option<u64>,
    /// Whether, with chaos, every second job that reports progress behaves like the next job of the story from then on.
    pub profiles_change: bool,
}

/// A cluster, a policy, jobs and events. Parsed from and printed as a story.
#[derive(Clone, PartialEq, Eq)]
pub struct Scenario {
    /// The nodes.
    pub cluster: ClusterSpec,
    /// The policy.
    pub policy: PolicyText,
    /// When decisions are taken.
    pub clock: Clock,
    /// How the fake cluster behaves.
    pub behaviour: Behaviour,
    /// The jobs, in order of submission.
    pub jobs: Vec<StoryJob>,
    /// Names of tenants, users and GPU types.
    pub names: Names,
    /// The events, in order of time.
    pub events: Vec<(Time, StoryEvent)>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            cluster: ClusterSpec::bare("gpu"),
            policy: PolicyText::preset("fifo"),
            clock: Clock::Events,
            behaviour: Behaviour::default(),
            jobs: Vec::new(),
            names: Names::default(),
            events: Vec::new(),
        }
    }
}

impl Scenario {
    /// Returns a scenario with jobs on a cluster under a policy, and no other events.
    pub fn plain(cluster: ClusterSpec, policy: PolicyText, jobs: Vec<TraceJob>) -> Self {
        let mut scenario = Self {
            cluster,
            policy,
            ..Self::default()
        };
        scenario.names.gpu_types = scenario.cluster.gpu_types.clone();
        for job in jobs {
            scenario.submit(job);
        }
        scenario
    }

    /// Adds a job whose true work the scheduler knows.
    pub fn submit(&mut self, job: TraceJob) {
        let id = JobKey(self.jobs.len() as u32);
        self.events.push((job.submit, StoryEvent::Submit(id)));
        let expected = Some(job.work);
        self.jobs.push(StoryJob {
            job,
            expected,
            stages: None,
            restart_cost: None,
        });
    }

    /// Returns an engine with all nodes up and no jobs.
    pub fn engine(&self) -> Engine {
        Engine::with_cluster(self.policy.build().0, self.clock, &self.cluster)
    }

    /// Returns the jobs as a workload for the simulator. Stages are put into the columns that traces have for them.
    pub fn workload(&self) -> Workload {
        Workload {
            source: "a story".to_owned(),
            jobs: self.jobs.iter().map(StoryJob::trace_job).collect(),
            names: self.names.clone(),
            extra_columns: (0..3).map(|i| format!("resource_time_{i}")).collect(),
            ..Workload::default()
        }
    }

    /// Returns the job with this name.
    pub fn find(&self, name: &str) -> Option<JobKey> {
        let label = JobLabel::from_text(name);
        let position = self.jobs.iter().position(|j| j.job.label == label);
        position.map(|i| JobKey(i as u32))
    }
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n{self}")
    }
}
