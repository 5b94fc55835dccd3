//! Names of presets and parts for shell completion, from the registry of policies.
//!
//! Any text is accepted here: names may have knobs, and the library reports a name that does not exist with the nearest ones.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use dovetail_policies::registry::{self, Kind};

/// Completes the names of presets.
#[derive(Debug, Clone)]
pub struct PresetNames;

/// Completes the names of parts of one kind.
#[derive(Debug, Clone)]
pub struct PartNames(pub Kind);

impl TypedValueParser for PresetNames {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let presets = dovetail_policies::presets().iter();
        Some(Box::new(
            presets.map(|preset| PossibleValue::new(preset.name).help(preset.what)),
        ))
    }
}

impl TypedValueParser for PartNames {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let parts = registry::of_kind(self.0).into_iter();
        Some(Box::new(
            parts.map(|part| PossibleValue::new(part.name).help(part.what)),
        ))
    }
}
