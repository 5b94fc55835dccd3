//! The parts that policies are made of, one file each, and the presets that combine them.
//!
//! A part is written with its knobs, as on the command line: `tiresias:limits=3250/7200,promote=2`. The [`registry`]
//! lists every part with its paper, its sort key and its knobs; [`presets`](mod@presets) name whole policies, and
//! [`compose`] builds them.

pub mod admission;
pub mod compose;
pub mod discipline;
pub mod error;
pub mod grouping;
pub mod knobs;
pub mod order;
pub mod overrides;
pub mod placement;
pub mod presets;
pub mod registry;
pub mod sizing;
pub mod tenancy;

pub use compose::{build, build_for, check, check_runtime, reclaiming_discipline};
pub use error::PolicyError;
pub use knobs::{Knob, Knobs, PartSpec};
pub use overrides::Overrides;
pub use presets::{Preset, find as find_preset, presets};
pub use registry::{Entry, Kind};
