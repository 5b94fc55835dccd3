//! Errors in the policy that a user asked for.

use dovetail_engine::{Feature, Need, UnmetRequirement, UnsupportedNeed};
use thiserror::Error;

/// Why a policy cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// No policy or part has this name.
    #[error("unknown {kind} `{name}`{}; `dovetail policies` lists all of them", did_you_mean(.near))]
    Unknown {
        /// Kind of the name ("policy", "placement").
        kind: &'static str,
        /// The name that was given.
        name: String,
        /// Names close to it.
        near: Vec<String>,
    },
    /// The part has no such knob.
    #[error("unknown knob `{knob}` of {kind} `{part}`{}; {}", did_you_mean(.near), knobs(.known))]
    UnknownKnob {
        /// The kind of the part.
        kind: &'static str,
        /// The part.
        part: String,
        /// The knob that was given.
        knob: String,
        /// Knobs close to it.
        near: Vec<String>,
        /// All knobs of the part.
        known: Vec<&'static str>,
    },
    /// The knob does not accept this value.
    #[error("{kind} `{part}`: invalid value `{value}` for knob `{knob}`: expected {expected}")]
    InvalidValue {
        /// The kind of the part.
        kind: &'static str,
        /// The part.
        part: String,
        /// The knob.
        knob: String,
        /// The value that was given.
        value: String,
        /// Values that are accepted.
        expected: String,
    },
    /// The text is not of the form `name:key=value,...`.
    #[error("invalid policy or part `{text}`: expected NAME, NAME:VALUE or NAME:KEY=VALUE,KEY=VALUE")]
    Malformed {
        /// The text.
        text: String,
    },
    /// A part requires something that the part it is combined with does not provide.
    #[error(
        "{kind} `{part}` requires a {} that {feature}: found `{found}`, expected {}",
        .feature.provider(), one_of(.accepted)
    )]
    Incompatible {
        /// The kind of the part that has the requirement.
        kind: &'static str,
        /// The part that has it.
        part: String,
        /// What it requires.
        feature: Feature,
        /// The part that was found instead.
        found: String,
        /// Parts that provide it.
        accepted: Vec<&'static str>,
    },
    /// A part needs a mechanism that the runtime does not have.
    #[error("{kind} `{part}` needs {need}, which {runtime} does not support: {reason}{}", use_instead(kind, *.instead))]
    Unsupported {
        /// The kind of the part.
        kind: &'static str,
        /// The part.
        part: String,
        /// What it needs.
        need: Need,
        /// The runtime.
        runtime: &'static str,
        /// Why the runtime does not have it.
        reason: &'static str,
        /// A part of the same kind that the runtime supports.
        instead: Option<&'static str>,
    },
    /// An order that looks at all jobs was asked for as the order of one virtual cluster.
    #[error(
        "order `{order}` compares all jobs of the cluster and cannot order those of one virtual cluster: expected {}",
        one_of(.accepted)
    )]
    NotPerTenant {
        /// The order.
        order: String,
        /// Orders that can.
        accepted: Vec<&'static str>,
    },
    /// Tenancy `cells` was asked for without the cells of its file.
    #[error("tenancy `cells:{file}` works only with `simulate` and `compare`, as --tenancy cells:FILE")]
    NoCells {
        /// The file that was given.
        file: String,
    },
    /// A node of the cluster is not a machine of the cells.
    #[error("tenancy `cells`: node `{node}` {mismatch}; use the same file for `--cluster`")]
    NotInCells {
        /// The node.
        node: String,
        /// How it differs from the file with the cells.
        mismatch: NodeMismatch,
    },
    /// A quota was asked for where the names of tenants are not known.
    #[error("tenancy `quota` works only with `simulate` and `compare`, which know the tenants of a workload")]
    NoTenants,
    /// The quota has no share for some tenants.
    #[error(
        "tenancy `quota`: missing share for tenant {}: add TENANT=GPUS for each, or default=GPUS for all others",
        quoted(.tenants).join(", ")
    )]
    NoShare {
        /// The tenants without a share.
        tenants: Vec<String>,
    },
}

/// How a node differs from the machines in the file with the cells.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NodeMismatch {
    /// No machine has its name.
    #[error("is not a machine of the file with the cells; expected the same machines")]
    UnknownMachine,
    /// The machine has no GPUs of its type.
    #[error("has no {gpu_type} in the file with the cells")]
    OtherGpuType {
        /// The type.
        gpu_type: String,
    },
    /// The machine has another number of leaf cells.
    #[error("has {gpus} GPUs, but {leaves} leaf cells; expected one GPU for each")]
    OtherGpuCount {
        /// GPUs of the node.
        gpus: u32,
        /// Leaf cells of the machine.
        leaves: u32,
    },
}

impl PolicyError {
    /// The error for a mechanism that a runtime does not have, with a part that does without it.
    pub(crate) fn unsupported(unsupported: UnsupportedNeed, instead: Option<&'static str>) -> Self {
        let UnsupportedNeed {
            need,
            runtime,
            reason,
        } = unsupported;
        Self::Unsupported {
            kind: need.kind,
            part: need.part,
            need: need.need,
            runtime,
            reason,
            instead,
        }
    }

    /// The error for a requirement that is not met, with the parts that would meet it.
    pub(crate) fn incompatible(unmet: UnmetRequirement, accepted: Vec<&'static str>) -> Self {
        Self::Incompatible {
            kind: unmet.kind,
            part: unmet.part,
            feature: unmet.feature,
            found: unmet.found,
            accepted,
        }
    }
}

fn use_instead(kind: &str, part: Option<&str>) -> String {
    part.map(|part| format!("; use {kind} `{part}`"))
        .unwrap_or_default()
}

fn quoted<T: AsRef<str>>(names: &[T]) -> Vec<String> {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect()
}

/// Writes "`a`, `b` or `c`".
fn one_of(names: &[&str]) -> String {
    match quoted(names).as_slice() {
        [] => "another part".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn knobs(known: &[&str]) -> String {
    match known {
        [] => "it has no knobs".to_owned(),
        known => format!("it has {}", quoted(known).join(", ")),
    }
}

fn did_you_mean(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!(" (did you mean {}?)", quoted(near).join(" or ")),
    }
}
