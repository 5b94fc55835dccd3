//! A job of OpenPAI's protocol.

use crate::value::Value;

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Name, unique per user.
    pub name: String,
    /// Version given by its author.
    pub version: Option<String>,
    /// Author of the file.
    pub contributor: Option<String>,
    /// Description.
    pub description: Option<String>,
    /// Images, data, scripts and outputs that roles refer to.
    pub prerequisites: Vec<Prerequisite>,
    /// Values for `<% $parameters.x %>`.
    pub parameters: Value,
    /// Values for `<% $secrets.x %>`.
    pub secrets: Value,
    /// Number of retries of the whole job after it fails by itself.
    pub retries: u32,
    /// Roles, in the order of the file; at least one.
    pub roles: Vec<Role>,
    /// Sets of commands to run before and after those of the roles.
    pub deployments: Vec<Deployment>,
    /// Virtual cluster to run in.
    pub virtual_cluster: String,
    /// Name of the selected deployment.
    pub deployment: Option<String>,
    /// Whether all instances start together or not at all.
    pub gang: bool,
    /// Priority class.
    pub class: PriorityClass,
    /// Whether the gang releases its cells all at once. OpenPAI ignores it as well.
    pub gang_release: Option<bool>,
    /// Whether the job may become opportunistic instead of being preempted.
    pub lazy_preemption: Option<bool>,
    /// Whether the job may run on nodes that Kubernetes does not suggest.
    pub ignore_suggested_nodes: Option<bool>,
    /// Storage to mount; `None` if not given, empty for the user's default.
    pub storages: Option<Vec<Storage>>,
    /// State changes to notify the owner of.
    pub notify: Vec<String>,
    /// Runtime plugins.
    pub plugins: Vec<Plugin>,
    /// Program that submitted the job.
    pub submitted_from: Option<String>,
}

impl Job {
    /// Returns the image of a role.
    pub fn image(&self, role: &Role) -> Option<&Image> {
        let named = |p: &&Prerequisite| p.name == role.image;
        let mut images = self.prerequisites.iter().filter(named);
        images.find_map(|p| match &p.kind {
            PrerequisiteKind::Image(image) => Some(image),
            _ => None,
        })
    }

    /// Returns the selected deployment.
    pub fn selected_deployment(&self) -> Option<&Deployment> {
        let selected = self.deployment.as_ref()?;
        self.deployments.iter().find(|d| d.name == *selected)
    }

    /// Returns the number of instances of all roles.
    pub fn instances(&self) -> u64 {
        self.roles.iter().map(|r| u64::from(r.instances)).sum()
    }

    /// Returns the number of GPUs of all instances.
    pub fn gpus(&self) -> u64 {
        let gpus = |role: &Role| u64::from(role.instances) * u64::from(role.gpu);
        self.roles.iter().map(gpus).sum()
    }
}

/// A set of identical instances.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    /// Name.
    pub name: String,
    /// Number of instances, at least one.
    pub instances: u32,
    /// Number of failed instances that fails the attempt; `None` for no limit.
    pub min_failed: Option<u32>,
    /// Number of succeeded instances that completes the attempt; `None` if only the end of all instances does.
    pub min_succeeded: Option<u32>,
    /// Number of retries of an instance; applies only without a gang.
    pub task_retries: u32,
    /// Name of its image.
    pub image: String,
    /// Name of its data.
    pub data: Option<String>,
    /// Name of its output.
    pub output: Option<String>,
    /// Name of its script.
    pub script: Option<String>,
    /// Names of further prerequisites, in order.
    pub prerequisites: Vec<String>,
    /// Size of `/dev/shm`, in MiB.
    pub shm_mb: u64,
    /// Whether it asks for an InfiniBand device.
    pub infiniband: bool,
    /// GPUs per instance.
    pub gpu: u32,
    /// CPU cores per instance.
    pub cpu: u32,
    /// Memory per instance, in MiB.
    pub memory_mb: u64,
    /// Ports per instance: label and number.
    pub ports: Vec<(String, u32)>,
    /// Commands, with their templates.
    pub commands: Vec<String>,
    /// Constraints on HiveD's cells.
    pub cells: CellRequest,
}

/// Constraints of a role on HiveD's cells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CellRequest {
    /// Required GPU type.
    pub sku_type: Option<String>,
    /// Number of SKUs, as OpenPAI's portal computes it.
    pub sku_num: Option<u32>,
    /// Required pinned cell.
    pub pinned: Option<String>,
    /// Affinity group; the roles of a group start together.
    pub affinity: Option<Affinity>,
}

/// Name of a group of roles that start together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affinity(pub String);

/// Priority class of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorityClass {
    /// Critical.
    Crit,
    /// Production.
    Prod,
    /// Test, the default.
    Test,
    /// Opportunistic: runs on GPUs that other virtual clusters do not use.
    Oppo,
}

impl PriorityClass {
    /// All classes, highest priority first.
    pub const ALL: [Self; 4] = [Self::Crit, Self::Prod, Self::Test, Self::Oppo];

    /// Returns the name in job files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crit => "crit",
            Self::Prod => "prod",
            Self::Test => "test",
            Self::Oppo => "oppo",
        }
    }

    /// Returns the numeric priority.
    pub const fn priority(self) -> i32 {
        match self {
            Self::Crit => 120,
            Self::Prod => 100,
            Self::Test => 10,
            Self::Oppo => -1,
        }
    }
}

/// Something that roles refer to by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Prerequisite {
    /// Name, unique per kind.
    pub name: String,
    /// Kind, with the data of an image.
    pub kind: PrerequisiteKind,
    /// Names of other prerequisites that it requires.
    pub require: Vec<String>,
    /// Commands to run before and after those of a role.
    pub hooks: Hooks,
    /// Plugin that handles it.
    pub plugin: Option<String>,
    /// All its keys, for templates.
    pub keys: Value,
}

/// Kind of a prerequisite.
#[derive(Debug, Clone, PartialEq)]
pub enum PrerequisiteKind {
    /// A container image.
    Image(Image),
    /// Code.
    Script,
    /// Location of results.
    Output,
    /// Data.
    Data,
}

impl PrerequisiteKind {
    /// Returns the name in job files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Image(_) => "dockerimage",
            Self::Script => "script",
            Self::Output => "output",
            Self::Data => "data",
        }
    }
}

/// A container image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Address.
    pub uri: String,
    /// Credentials to pull it with.
    pub auth: Option<Auth>,
}

/// Credentials for an image registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// User name.
    pub username: String,
    /// Password, usually a template of a secret.
    pub password: String,
    /// Address of the registry; `None` for the default one.
    pub registry: Option<String>,
}

/// What happens when a hook fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailurePolicy {
    /// The instance fails.
    #[default]
    Fail,
    /// The failure is ignored.
    Ignore,
}

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Before the commands.
    Starts,
    /// After the commands, if they succeeded.
    Succeeds,
}

/// Commands to run before and after those of a role.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hooks {
    /// Commands to run before.
    pub before: Vec<String>,
    /// Commands to run after.
    pub after: Vec<String>,
    /// What happens when one fails.
    pub on_failure: FailurePolicy,
}

impl Hooks {
    /// Returns the commands of an event.
    pub(crate) fn of(&mut self, event: Event) -> &mut Vec<String> {
        match event {
            Event::Starts => &mut self.before,
            Event::Succeeds => &mut self.after,
        }
    }
}

/// A named set of commands to run before and after those of the roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// Name.
    pub name: String,
    /// Hooks by role.
    pub roles: Vec<(String, Hooks)>,
}

/// Storage to mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// Name.
    pub name: String,
    /// Path to mount it at.
    pub mount_path: Option<String>,
}

/// A runtime plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plugin {
    /// An ssh server in each instance.
    Ssh {
        /// Whether instances can connect to each other.
        between_tasks: bool,
        /// Whether instances wait until all can be reached.
        barrier: bool,
        /// Whether users can log in with a key.
        users: bool,
    },
    /// TensorBoard on the first instance.
    Tensorboard,
    /// Commands to run before and after those of every role.
    Cmd(Hooks),
    /// A repository to clone before the commands.
    Git {
        /// Address of the repository.
        repo: String,
        /// Options of `git clone`.
        options: Vec<String>,
        /// Folder to clone into.
        folder: Option<String>,
        /// What happens when cloning fails.
        on_failure: FailurePolicy,
    },
    /// Storage in an older notation.
    TeamwiseStorage(Vec<String>),
}
