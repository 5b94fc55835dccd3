//! What a lab is made of.

/// Which components run, and how. The default is etcd and the API server, and nothing of alpha or beta.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Feature gates of all components, as `GenericWorkload=true`.
    pub feature_gates: Vec<String>,
    /// Versions of the API that are off without a word, as `scheduling.k8s.io/v1alpha2=true`.
    pub runtime_config: Vec<String>,
    /// What the API server is told beside the rest.
    pub api_server: Vec<String>,
    /// Controllers that run, as `job-controller`; without any there is no controller manager.
    pub controllers: Vec<String>,
    /// What the controller manager is told beside the rest.
    pub controller_manager: Vec<String>,
    /// The upstream scheduler, where it is wanted.
    pub scheduler: Option<Scheduler>,
}

/// How the upstream scheduler runs.
#[derive(Debug, Clone)]
pub struct Scheduler {
    /// How many requests a second it may make; its own default of 50 would be the limit of every measurement.
    pub requests_per_second: u32,
    /// What stands in its configuration beside the connection, as YAML: `profiles:` and so on.
    pub configuration: String,
}

impl Default for Scheduler {
    fn default() -> Self {
        Self {
            requests_per_second: 5000,
            configuration: String::new(),
        }
    }
}

impl Settings {
    /// With the gang API of Kubernetes 1.36 (`PodGroup` and `Workload`), which is alpha.
    #[must_use]
    pub fn with_gangs(mut self) -> Self {
        self.feature_gates
            .extend(["GenericWorkload=true", "GangScheduling=true"].map(str::to_owned));
        self.runtime_config
            .push("scheduling.k8s.io/v1alpha2=true".to_owned());
        self
    }

    /// With these controllers.
    #[must_use]
    pub fn with_controllers(mut self, names: &[&str]) -> Self {
        self.controllers.extend(names.iter().map(|n| (*n).to_owned()));
        self
    }

    /// With the upstream scheduler.
    #[must_use]
    pub fn with_scheduler(mut self, scheduler: Scheduler) -> Self {
        self.scheduler = Some(scheduler);
        self
    }
}
