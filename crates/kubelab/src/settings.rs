//! Settings of a lab.

/// Components of a lab and their options. The default is etcd and the API server without alpha and beta features.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Feature gates of all components, such as `GenericWorkload=true`.
    pub feature_gates: Vec<String>,
    /// API versions to enable that are off by default, such as `scheduling.k8s.io/v1alpha2=true`.
    pub runtime_config: Vec<String>,
    /// Additional arguments of the API server.
    pub api_server: Vec<String>,
    /// Controllers to run, such as `job-controller`; if empty, there is no controller manager.
    pub controllers: Vec<String>,
    /// Additional arguments of the controller manager.
    pub controller_manager: Vec<String>,
    /// Options of the upstream scheduler, if it runs.
    pub scheduler: Option<Scheduler>,
}

/// Options of the upstream scheduler.
#[derive(Debug, Clone)]
pub struct Scheduler {
    /// Requests per second to the API server. The upstream default of 50 would limit every measurement.
    pub requests_per_second: u32,
    /// YAML of its configuration apart from the connection, such as `profiles:`.
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
    /// Enables the gang API of Kubernetes 1.36 (`PodGroup` and `Workload`), which is alpha.
    #[must_use]
    pub fn with_gangs(mut self) -> Self {
        self.feature_gates
            .extend(["GenericWorkload=true", "GangScheduling=true"].map(str::to_owned));
        self.runtime_config
            .push("scheduling.k8s.io/v1alpha2=true".to_owned());
        self
    }

    /// Adds controllers.
    #[must_use]
    pub fn with_controllers(mut self, names: &[&str]) -> Self {
        self.controllers.extend(names.iter().map(|n| (*n).to_owned()));
        self
    }

    /// Adds the upstream scheduler.
    #[must_use]
    pub fn with_scheduler(mut self, scheduler: Scheduler) -> Self {
        self.scheduler = Some(scheduler);
        self
    }
}
