//! The parts policies are made of, one file each, and the presets that put them together.
//!
//! A part is named with its knobs, as on the command line: `tiresias:limits=3250/7200,promote=2`. The [`registry`]
//! lists every part with its paper, its ordering key and its knobs; [`presets`](mod@presets) name whole policies.

pub mod admission;
pub mod discipline;
pub mod grouping;
pub mod knobs;
pub mod order;
pub mod placement;
pub mod presets;
pub mod registry;
pub mod sizing;
pub mod tenancy;

pub use knobs::{Knob, Knobs, PartSpec, PolicyError};
pub use presets::{Overrides, Preset, build, find as find_preset, presets};
pub use registry::{Entry, Kind};
