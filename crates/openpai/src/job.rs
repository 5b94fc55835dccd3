//! A job as OpenPAI's protocol describes it.

use crate::node::Node;

/// A job.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its name, unique for its user.
    pub name: String,
    /// Which version of it this is, as its author says.
    pub version: Option<String>,
    /// Who wrote it.
    pub contributor: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Images, data, scripts and outputs its roles refer to.
    pub prerequisites: Vec<Prerequisite>,
    /// Values for `<% $parameters.x %>`.
    pub parameters: Node,
    /// Values for `<% $secrets.x %>`.
    pub secrets: Node,
    /// How often the whole job is tried again when it fails by its own fault.
    pub retries: u32,
    /// Its roles, in the order of the file; at least one.
    pub roles: Vec<Role>,
    /// Variants of what is run around the commands.
    pub deployments: Vec<Deployment>,
    /// The virtual cluster it goes to.
    pub virtual_cluster: String,
    /// The variant that is chosen.
    pub deployment: Option<String>,
    /// Whether all instances start together or not at all.
    pub gang: bool,
    /// How urgent it is.
    pub class: PriorityClass,
    /// Whether it gives its cells back all at once; OpenPAI reads and forgets it.
    pub gang_release: Option<bool>,
    /// Whether it may be downgraded instead of stopped.
    pub lazy_preemption: Option<bool>,
    /// Whether it may go where Kubernetes would not put it.
    pub ignore_suggested_nodes: Option<bool>,
    /// Storage to mount; none where nothing is said, empty for the user's own.
    pub storages: Option<Vec<Storage>>,
    /// State changes its owner wants mail about.
    pub notify: Vec<String>,
    /// What runs beside the commands.
    pub plugins: Vec<Plugin>,
    /// Which program submitted it.
    pub submitted_from: Option<String>,
}

impl Job {
    /// The image of a role.
    pub fn image(&self, role: &Role) -> Option<&Image> {
        let named = |p: &&Prerequisite| p.name == role.image;
        let mut images = self.prerequisites.iter().filter(named);
        images.find_map(|p| match &p.kind {
            PrerequisiteKind::Image(image) => Some(image),
            _ => None,
        })
    }

    /// The variant that is chosen.
    pub fn chosen_deployment(&self) -> Option<&Deployment> {
        let chosen = self.deployment.as_ref()?;
        self.deployments.iter().find(|d| d.name == *chosen)
    }

    /// Instances of all roles together.
    pub fn instances(&self) -> u64 {
        self.roles.iter().map(|r| u64::from(r.instances)).sum()
    }

    /// GPUs of all instances together.
    pub fn gpus(&self) -> u64 {
        let each = self.roles.iter();
        each.map(|r| u64::from(r.instances) * u64::from(r.gpu)).sum()
    }
}

/// Instances that do the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// How many instances there are, at least one.
    pub instances: u32,
    /// The attempt fails when so many have failed; none: never.
    pub min_failed: Option<u32>,
    /// The attempt succeeds when so many have succeeded; none: when all of all roles are over.
    pub min_succeeded: Option<u32>,
    /// How often an instance is tried again; only without a gang.
    pub task_retries: u32,
    /// The name of its image.
    pub image: String,
    /// The name of its data.
    pub data: Option<String>,
    /// The name of its output.
    pub output: Option<String>,
    /// The name of its script.
    pub script: Option<String>,
    /// Other prerequisites it uses, in order.
    pub prerequisites: Vec<String>,
    /// Size of `/dev/shm`, in MiB.
    pub shm_mb: u64,
    /// Whether it wants an InfiniBand device.
    pub infiniband: bool,
    /// GPUs for each instance.
    pub gpu: u32,
    /// CPU cores for each instance.
    pub cpu: u32,
    /// Memory for each instance, in MiB.
    pub memory_mb: u64,
    /// Ports for each instance: label and how many.
    pub ports: Vec<(String, u32)>,
    /// What is run, as written.
    pub commands: Vec<String>,
    /// What it asks of the cells.
    pub cells: CellWish,
}

/// What a role asks of HiveD's cells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CellWish {
    /// Only this kind of GPU.
    pub sku_type: Option<String>,
    /// How many of the kind, as the portal reckoned.
    pub sku_num: Option<u32>,
    /// Only this pinned cell.
    pub pinned: Option<String>,
    /// Roles of one group start together.
    pub affinity: Option<Affinity>,
}

/// The name of a group of roles that start together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affinity(pub String);

/// How urgent a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorityClass {
    /// Before all others.
    Crit,
    /// Production.
    Prod,
    /// What is meant where nothing is said.
    Test,
    /// Borrows what others leave idle.
    Oppo,
}

impl PriorityClass {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 4] = [Self::Crit, Self::Prod, Self::Test, Self::Oppo];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crit => "crit",
            Self::Prod => "prod",
            Self::Test => "test",
            Self::Oppo => "oppo",
        }
    }

    /// The priority it stands for.
    pub const fn priority(self) -> i32 {
        match self {
            Self::Crit => 120,
            Self::Prod => 100,
            Self::Test => 10,
            Self::Oppo => -1,
        }
    }
}

/// Something a role refers to by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Prerequisite {
    /// Its name, unique for its kind.
    pub name: String,
    /// What it is.
    pub kind: PrerequisiteKind,
    /// Others it needs.
    pub require: Vec<String>,
    /// What it runs around the commands of a role.
    pub hooks: Hooks,
    /// The plugin that handles it.
    pub plugin: Option<String>,
    /// All its keys, for templates.
    pub keys: Node,
}

/// What a prerequisite is.
#[derive(Debug, Clone, PartialEq)]
pub enum PrerequisiteKind {
    /// A container image.
    Image(Image),
    /// Code.
    Script,
    /// Where results go.
    Output,
    /// Data.
    Data,
}

impl PrerequisiteKind {
    /// As it is written.
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
    /// Its address.
    pub uri: String,
    /// How to get it.
    pub auth: Option<Auth>,
}

/// Who fetches an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// The account.
    pub username: String,
    /// Its password, often a secret.
    pub password: String,
    /// The registry; none for the usual one.
    pub registry: Option<String>,
}

/// What happens when something beside the commands fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailurePolicy {
    /// The instance fails.
    #[default]
    Fail,
    /// It goes on.
    Ignore,
}

/// When a hook is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Before the commands.
    Starts,
    /// After them, if they succeeded.
    Succeeds,
}

/// Commands around those of a role.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hooks {
    /// Run before.
    pub before: Vec<String>,
    /// Run after.
    pub after: Vec<String>,
    /// What happens when one fails.
    pub on_failure: FailurePolicy,
}

impl Hooks {
    /// Commands of an event.
    pub(crate) fn of(&mut self, event: Event) -> &mut Vec<String> {
        match event {
            Event::Starts => &mut self.before,
            Event::Succeeds => &mut self.after,
        }
    }
}

/// A variant of what is run around the commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// Its name.
    pub name: String,
    /// Commands by role.
    pub roles: Vec<(String, Hooks)>,
}

/// Storage to mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// Its name.
    pub name: String,
    /// Where.
    pub mount_path: Option<String>,
}

/// A runtime plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plugin {
    /// A server for ssh in each instance.
    Ssh {
        /// Instances reach each other.
        between_tasks: bool,
        /// They wait for each other.
        barrier: bool,
        /// The owner's key is let in.
        users: bool,
    },
    /// TensorBoard beside the first instance.
    Tensorboard,
    /// Commands around those of every role.
    Cmd(Hooks),
    /// A repository that is cloned first.
    Git {
        /// Where it is.
        repo: String,
        /// Options for `git clone`.
        options: Vec<String>,
        /// The folder it goes to.
        folder: Option<String>,
        /// What happens when that fails.
        on_failure: FailurePolicy,
    },
    /// An old way to name storage.
    TeamwiseStorage(Vec<String>),
}
