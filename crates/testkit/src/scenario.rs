//! A scenario: a cluster, a policy, jobs, and what happens to them.

use dovetail_engine::{Clock, Engine, Knowledge, Policy};
use dovetail_model::stages::Stages;
use dovetail_model::{ClusterSpec, JobId, JobSpec, NodeId, Time, Work};
use dovetail_policies::{Overrides, build};
use dovetail_workload::{JobLabel, Names, TraceJob, Workload};

/// A policy as people write it: a preset and what is replaced in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyText {
    /// The preset, with knobs.
    pub preset: String,
    /// What is replaced.
    pub overrides: Overrides,
}

impl PolicyText {
    /// A preset as it is.
    pub fn preset(name: &str) -> Self {
        Self {
            preset: name.to_owned(),
            overrides: Overrides::default(),
        }
    }

    /// Whether jobs take turns so short that slow starts would eat them: with a quantum no longer than a start, nothing
    /// ever gets done.
    pub fn takes_turns(&self) -> bool {
        let order = self.overrides.order.as_deref().unwrap_or_default();
        let by_turns = ["las", "tiresias", "themis"];
        by_turns.iter().any(|name| order.starts_with(name)) || self.preset.starts_with("themis")
    }

    /// Whether CPU and memory are given by need: jobs have curves then.
    pub fn sizes_by_need(&self) -> bool {
        let sizing = self.overrides.sizing.as_deref().unwrap_or_default();
        let by_need = ["proportional", "greedy", "tune", "opt"];
        let name = sizing.split(':').next().unwrap_or_default();
        by_need.contains(&name)
    }

    /// Builds it, with what it must know of remaining work.
    ///
    /// # Panics
    /// Says what is wrong with the text.
    pub fn build(&self) -> (Policy, Knowledge) {
        build(&self.preset, &self.overrides).unwrap_or_else(|e| panic!("{e}"))
    }
}

/// A job of a story: the truth, and what the scheduler is told of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoryJob {
    /// The truth. The label is the job's name.
    pub job: TraceJob,
    /// What the scheduler is told of the work.
    pub expected: Option<Work>,
    /// The stages of an iteration: who has them can share GPUs.
    pub stages: Option<Stages>,
}

impl StoryJob {
    /// As it is submitted.
    pub fn spec(&self, id: JobId) -> JobSpec {
        let job = &self.job;
        JobSpec {
            tenant: job.tenant,
            user: job.user,
            priority: job.priority,
            min_gpus: job.min_gpus,
            max_gpus: job.max_gpus,
            gpu_type: job.gpu_type,
            cpu_milli_per_gpu: job.cpu_milli_per_gpu,
            memory_mib_per_gpu: job.memory_mib_per_gpu,
            gpu_memory_mib: job.gpu_memory_mib,
            scaling: job.scaling,
            submit: job.submit,
            expected: self.expected,
            stages: self.stages,
            sensitivity: job.sensitivity.clone(),
            ..JobSpec::new(id, job.gpus)
        }
    }

    /// As a trace has it.
    fn trace_job(&self) -> TraceJob {
        let mut job = self.job.clone();
        if let Some(stages) = self.stages {
            job.iterations = Some((job.work.0 / u64::from(stages.iteration_us.max(1))).max(1));
            let millis = |us: &u32| (f64::from(*us) / 1000.0).to_string().into();
            job.extra = Some(stages.times_us[..3].iter().map(millis).collect());
        }
        job
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.job.label.to_string()
    }
}

/// Something that happens to the cluster, or a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// The job comes in.
    Submit(JobId),
    /// Its owner does not want it any more.
    Cancel(JobId),
    /// It fails for good, if it runs.
    Fail(JobId),
    /// The node is gone, with everything on it.
    NodeDown(NodeId),
    /// It is back.
    NodeUp(NodeId),
    /// It takes no new jobs.
    Drain(NodeId),
    /// It takes jobs again.
    Resume(NodeId),
    /// The trace gets a line with where the job is, and why.
    Explain(JobId),
}

/// How the fake cluster behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Manner {
    /// Time from a launch to the first progress.
    pub start_delay: Time,
    /// Time from the order to stop until the GPUs are free.
    pub stop_delay: Time,
    /// Commands and answers are delayed, repeated and reordered by this seed.
    pub chaos: Option<u64>,
}

/// A cluster, a policy, jobs, and what happens to them. Reads and prints itself as a story.
#[derive(Clone, PartialEq, Eq)]
pub struct Scenario {
    /// The machines.
    pub cluster: ClusterSpec,
    /// The policy.
    pub policy: PolicyText,
    /// When decisions are taken.
    pub clock: Clock,
    /// How the fake cluster behaves.
    pub manner: Manner,
    /// The jobs, in order of submission.
    pub jobs: Vec<StoryJob>,
    /// Names of tenants, users and kinds of GPU.
    pub names: Names,
    /// What happens, in order of time.
    pub happenings: Vec<(Time, Happening)>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            cluster: ClusterSpec::bare("gpu"),
            policy: PolicyText::preset("fifo"),
            clock: Clock::Events,
            manner: Manner::default(),
            jobs: Vec::new(),
            names: Names::default(),
            happenings: Vec::new(),
        }
    }
}

impl Scenario {
    /// Jobs on a cluster under a policy, and nothing else happens.
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

    /// One more job, of which the scheduler is told the truth.
    pub fn submit(&mut self, job: TraceJob) {
        let id = JobId(self.jobs.len() as u32);
        self.happenings.push((job.submit, Happening::Submit(id)));
        let expected = Some(job.work);
        self.jobs.push(StoryJob {
            job,
            expected,
            stages: None,
        });
    }

    /// An engine for it, with its nodes up and no jobs yet.
    pub fn engine(&self) -> Engine {
        Engine::with_cluster(self.policy.build().0, self.clock, &self.cluster)
    }

    /// The same jobs for the simulator, which asks nothing else of a scenario. Stages go into the columns traces have
    /// for them.
    pub fn workload(&self) -> Workload {
        Workload {
            source: "a story".to_owned(),
            jobs: self.jobs.iter().map(StoryJob::trace_job).collect(),
            names: self.names.clone(),
            extra_columns: (0..3).map(|i| format!("resource_time_{i}")).collect(),
            ..Workload::default()
        }
    }

    /// The job with this name.
    pub fn find(&self, name: &str) -> Option<JobId> {
        let label = JobLabel::from_text(name);
        let position = self.jobs.iter().position(|j| j.job.label == label);
        position.map(|i| JobId(i as u32))
    }
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n{self}")
    }
}
