//! Profiles of models: speed when spread over machines, scaling, and speed by GPU type.
//!
//! The figures are data, in `profiles.yaml` next to this file; users provide their own in the same form:
//!
//! ```yaml
//! default: {spread: 0.9, parallel: 0.95}   # for models without a profile
//! models:
//!   resnet50:
//!     also: [res50]                # other names of the model
//!     spread: 0.9                  # throughput left when the job spans machines
//!     parallel: 0.97               # the part of an iteration that runs in parallel
//!     speed: {V100: 1, P100: 0.63} # relative speed by GPU type
//!     scaling: {1: 1.0, 2: 1.9}    # instead of `parallel`: measured speed by number of GPUs
//!     stages: {1: {data_ms: 20, gpu_ms: 80, net_ms: 0}}  # one step, by number of GPUs
//!     gpu_memory_mib: 6432         # memory used on each GPU; matters if the cluster states the memory of its GPUs
//! slowdown:                        # measured: how many times longer an iteration takes
//!   resnet50:                      # of this model
//!     vgg16: {1: [1.6, 1.3]}       # next to this one, on this many GPUs: plain, with MPS
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use dovetail_model::sharing::{MeasuredSlowdown, Slowdowns};
use dovetail_model::{IdVec, ModelId, Rate, Scaling, SpeedTable, Stages};

use dovetail_yaml::{Entry, YamlError, parse};

/// The built-in table.
const BUILTIN: &str = include_str!("profiles.yaml");

/// The profile of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelProfile {
    /// Name of the model.
    pub name: String,
    /// Throughput left when a job spans machines.
    pub spread: Rate,
    /// How speed grows with GPUs.
    pub scaling: Scaling,
    /// Relative speed by GPU type, names in lower case.
    pub speed: BTreeMap<String, Rate>,
    /// Memory used on each GPU, in MiB, if known.
    pub gpu_memory_mib: Option<u64>,
    /// Stages of a step, by number of GPUs.
    pub stages: BTreeMap<u32, Stages>,
}

impl ModelProfile {
    /// Returns the relative speed on a GPU type; full speed if unknown.
    pub fn speed_on(&self, gpu_type: &str) -> Rate {
        self.speed
            .get(&gpu_type.to_lowercase())
            .copied()
            .unwrap_or(Rate::FULL)
    }
}

/// A table of models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profiles {
    default: ModelProfile,
    models: Vec<ModelProfile>,
    /// Positions in `models` by all names, as normalized by [`plain_name`].
    names: BTreeMap<String, usize>,
    /// Slowdowns in millionths, plain and with MPS, by positions in `models` and number of GPUs: of the first model next to
    /// the second.
    slowdowns: BTreeMap<(usize, usize, u32), (u32, u32)>,
}

/// An invalid profile file.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file does not exist or is not readable.
    #[error("{file}: cannot read: {reason}")]
    Open {
        /// The file.
        file: String,
        /// The system's error.
        reason: std::io::Error,
    },
    /// The YAML is invalid.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// The name is neither that of a built-in sensitivity table nor that of a file.
    #[error("unknown sensitivity table `{name}`: expected a YAML file, or one of {}", known.join(", "))]
    UnknownTable {
        /// The name.
        name: String,
        /// The built-in tables.
        known: Vec<&'static str>,
    },
}

impl Default for Profiles {
    /// Returns the built-in table.
    fn default() -> Self {
        let mut profiles = Self::empty();
        profiles
            .add_yaml(BUILTIN, "profiles.yaml")
            .expect("the built-in table is valid");
        profiles
    }
}

impl Profiles {
    /// Returns an empty table: every model runs at full speed everywhere.
    pub fn empty() -> Self {
        let default = ModelProfile {
            name: "default".to_owned(),
            spread: Rate::FULL,
            scaling: Scaling::Linear,
            speed: BTreeMap::new(),
            gpu_memory_mib: None,
            stages: BTreeMap::new(),
        };
        Self {
            default,
            models: Vec::new(),
            names: BTreeMap::new(),
            slowdowns: BTreeMap::new(),
        }
    }

    /// Reads a file into the built-in table.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ProfileError> {
        let file = path.as_ref().display().to_string();
        let text = std::fs::read_to_string(&path).map_err(|reason| ProfileError::Open {
            file: file.clone(),
            reason,
        })?;
        let mut profiles = Self::default();
        profiles.add_yaml(&text, &file)?;
        Ok(profiles)
    }

    /// Returns the profile of a model by any of its names.
    pub fn get(&self, model: &str) -> Option<&ModelProfile> {
        self.names.get(&plain_name(model)).map(|i| &self.models[*i])
    }

    /// Returns the profile of a model, or the default profile.
    pub fn get_or_default(&self, model: &str) -> &ModelProfile {
        self.get(model).unwrap_or(&self.default)
    }

    /// Returns all models with a profile.
    pub fn iter(&self) -> impl Iterator<Item = &ModelProfile> {
        self.models.iter()
    }

    /// Adds the profiles of a YAML text. For a known model only the given keys are replaced.
    pub fn add_yaml(&mut self, text: &str, file: &str) -> Result<(), YamlError> {
        let value = parse(text, file)?;
        let top = Entry::top(file, &value);
        top.entries(&["default", "models", "slowdown"])?;
        if let Some(default) = top.get("default")? {
            default.entries(&["spread", "parallel", "speed"])?;
            update(&mut self.default, &default)?;
        }
        let models = top.get("models")?.map(|models| models.all_entries());
        for (name, entry) in models.transpose()?.unwrap_or_default() {
            entry.entries(&[
                "also",
                "spread",
                "parallel",
                "scaling",
                "stages",
                "speed",
                "gpu_memory_mib",
            ])?;
            let position = self.position(name);
            update(&mut self.models[position], &entry)?;
            for other in other_names(&entry)? {
                self.names.insert(plain_name(&other), position);
            }
        }
        match top.get("slowdown")? {
            Some(slowdown) => self.add_slowdowns(&slowdown),
            None => Ok(()),
        }
    }

    /// Returns the position of a model, which is added if it is new.
    fn position(&mut self, name: &str) -> usize {
        let plain = plain_name(name);
        if let Some(known) = self.names.get(&plain) {
            return *known;
        }
        self.models.push(ModelProfile {
            name: name.to_owned(),
            ..self.default.clone()
        });
        self.names.insert(plain, self.models.len() - 1);
        self.models.len() - 1
    }

    fn add_slowdowns(&mut self, slowdown: &Entry<'_>) -> Result<(), YamlError> {
        for (of, besides) in slowdown.all_entries()? {
            for (beside, widths) in besides.all_entries()? {
                let pair = (self.position(of), self.position(beside));
                for (gpus, factors) in widths.all_entries()? {
                    let gpus = gpu_count(gpus, &factors)?;
                    let pair_of_numbers =
                        || factors.expected("two numbers, plain and with MPS, such as [1.6, 1.3]");
                    let list = factors.list().filter(|list| list.len() == 2);
                    let list = list.ok_or_else(pair_of_numbers)?;
                    let ppm = |i: usize| Ok((list[i].amount(1.0, 1000.0)? * 1e6).round() as u32);
                    self.slowdowns.insert((pair.0, pair.1, gpus), (ppm(0)?, ppm(1)?));
                }
            }
        }
        Ok(())
    }

    /// Returns the measured slowdowns of pairs of these models.
    pub fn slowdowns(&self, models: &IdVec<ModelId, String>) -> Slowdowns {
        let mut ids: BTreeMap<usize, Vec<ModelId>> = BTreeMap::new();
        for (id, name) in models.iter() {
            if let Some(position) = self.names.get(&plain_name(name)) {
                ids.entry(*position).or_default().push(id);
            }
        }
        let at = |position: &usize| ids.get(position).into_iter().flatten().copied();
        let mut measured = Vec::new();
        for ((of, beside, gpus), (plain_ppm, mps_ppm)) in &self.slowdowns {
            for (of, beside) in at(of).flat_map(|of| at(beside).map(move |beside| (of, beside))) {
                measured.push(MeasuredSlowdown {
                    of,
                    beside,
                    gpus: *gpus,
                    plain_ppm: *plain_ppm,
                    mps_ppm: *mps_ppm,
                });
            }
        }
        measured.into_iter().collect()
    }
}

fn other_names(model: &Entry<'_>) -> Result<Vec<String>, YamlError> {
    let Some(also) = model.get("also")? else {
        return Ok(Vec::new());
    };
    let names = also.list().ok_or_else(|| also.expected("a list of names"))?;
    names.iter().map(Entry::text).collect()
}

fn update(profile: &mut ModelProfile, entry: &Entry<'_>) -> Result<(), YamlError> {
    if let Some(spread) = entry.get("spread")? {
        profile.spread = Rate::from_factor(spread.amount(0.001, 1.0)?);
    }
    if let Some(parallel) = entry.get("parallel")? {
        let parallel_ppm = (parallel.amount(0.0, 1.0)? * 1e6).round() as u32;
        profile.scaling = Scaling::Amdahl { parallel_ppm };
    }
    if let Some(scaling) = entry.get("scaling")? {
        profile.scaling = measured_scaling(&scaling)?;
    }
    if let Some(stages) = entry.get("stages")? {
        for (gpus, times) in stages.all_entries()? {
            profile
                .stages
                .insert(gpu_count(gpus, &times)?, stage_times(&times)?);
        }
    }
    if let Some(memory) = entry.get("gpu_memory_mib")? {
        profile.gpu_memory_mib = Some(memory.whole(0, 1 << 40)?);
    }
    if let Some(speed) = entry.get("speed")? {
        for (gpu_type, factor) in speed.all_entries()? {
            profile.speed.insert(
                gpu_type.to_lowercase(),
                Rate::from_factor(factor.amount(0.001, 1000.0)?),
            );
        }
    }
    Ok(())
}

fn gpu_count(key: &str, entry: &Entry<'_>) -> Result<u32, YamlError> {
    let gpus = key.parse().ok().filter(|n| *n > 0);
    gpus.ok_or_else(|| entry.wrong("expected a number of GPUs as the key"))
}

fn measured_scaling(entry: &Entry<'_>) -> Result<Scaling, YamlError> {
    let mut points = Vec::new();
    for (gpus, speed) in entry.all_entries()? {
        points.push((
            gpu_count(gpus, &speed)?,
            (speed.amount(0.001, 1e6)? * 1e6).round() as u64,
        ));
    }
    match SpeedTable::new(points) {
        Ok(table) => Ok(Scaling::Measured(table.into())),
        Err(error) => Err(entry.wrong(error.to_string())),
    }
}

fn stage_times(entry: &Entry<'_>) -> Result<Stages, YamlError> {
    entry.entries(&["data_ms", "gpu_ms", "net_ms"])?;
    let micros = |key: &str| -> Result<u32, YamlError> {
        let time = entry.get(key)?;
        let millis = time.map_or(Ok(0.0), |t| t.amount(0.0, 1e6))?;
        Ok((millis * 1000.0).round() as u32)
    };
    let [data, gpu, net] = [micros("data_ms")?, micros("gpu_ms")?, micros("net_ms")?];
    match data + gpu + net {
        0 => Err(entry.wrong("expected at least one stage above 0 ms")),
        sum => Ok(Stages::three(data, gpu, net, sum)),
    }
}

/// Normalizes a name: `ResNet-18 (batch size 16)` and `resnet_18` are both `resnet18`.
pub(crate) fn plain_name(name: &str) -> String {
    let name = name.split(" (").next().unwrap_or(name);
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_by_the_names_traces_use() {
        let profiles = Profiles::default();
        let name = |model: &str| profiles.get(model).map(|p| p.name.as_str());
        assert_eq!(name("ResNet-18 (batch size 16)"), Some("resnet18"));
        assert_eq!(name("res50"), Some("resnet50"));
        assert_eq!(name("shufflenet_v2_x1_0"), Some("shufflenet"));
        assert_eq!(name("LM (batch size 5)"), Some("lstm"));
        assert_eq!(name("inception_v3"), Some("inception"));
        assert_eq!(name("llama"), None);
        assert_eq!(profiles.get_or_default("llama").spread, Rate::from_factor(0.9));
        for (model, _) in crate::read::SYNERGY_MODELS {
            assert!(profiles.get(model).is_some(), "{model}");
        }
        for model in ["vgg16", "vgg19", "resnet18", "bert", "gpt2", "a2c", "dqn"] {
            assert!(profiles.get(model).is_some(), "{model}");
        }
    }

    #[test]
    fn the_built_in_figures_are_those_of_the_table() {
        let profiles = Profiles::default();
        let alexnet = profiles.get("alexnet").unwrap();
        assert_eq!(alexnet.spread, Rate::from_factor(0.6));
        let resnet = profiles.get("resnet50").unwrap();
        assert_eq!(
            (resnet.speed_on("k80"), resnet.speed_on("V100")),
            (Rate::from_factor(0.15), Rate::FULL)
        );
        assert_eq!(
            resnet.scaling,
            Scaling::Amdahl {
                parallel_ppm: 973_000
            }
        );
    }

    #[test]
    fn a_file_extends_the_table_and_errors_name_the_key() {
        let mut profiles = Profiles::default();
        profiles
            .add_yaml(
                "models: {llama: {spread: 0.5}, res18: {speed: {H100: 3}}}",
                "mine.yaml",
            )
            .unwrap();
        assert_eq!(profiles.get("llama").unwrap().spread, Rate::from_factor(0.5));
        let resnet = profiles.get("resnet18").unwrap();
        assert_eq!(
            (resnet.speed_on("H100"), resnet.spread),
            (Rate::from_factor(3.0), Rate::from_factor(0.8))
        );
        profiles
            .add_yaml(
                "models: {llama: {gpu_memory_mib: 30000}}\nslowdown: {llama: {res18: {1: [1.5, 1.2], 4: [2, 1.7]}}}",
                "mine.yaml",
            )
            .unwrap();
        assert_eq!(profiles.get("llama").unwrap().gpu_memory_mib, Some(30_000));
        assert_eq!(profiles.get("resnet18").unwrap().gpu_memory_mib, Some(6432));
        let models = ["vgg16", "ResNet-18", "llama"]
            .map(str::to_owned)
            .into_iter()
            .collect();
        let row = |gpus, plain_ppm, mps_ppm| MeasuredSlowdown {
            of: ModelId(2),
            beside: ModelId(1),
            gpus,
            plain_ppm,
            mps_ppm,
        };
        let expected = [row(1, 1_500_000, 1_200_000), row(4, 2_000_000, 1_700_000)];
        assert_eq!(profiles.slowdowns(&models), expected.into_iter().collect());
        let mut wrong = |text: &str| profiles.add_yaml(text, "mine.yaml").unwrap_err();
        insta::assert_snapshot!(wrong("model: {}"), @"mine.yaml: model: unknown key (did you mean models?); expected one of default, models, slowdown");
        insta::assert_snapshot!(wrong("models: {a: {spred: 1}}"), @"mine.yaml: models.a.spred: unknown key (did you mean speed?); expected one of also, spread, parallel, scaling, stages, speed, gpu_memory_mib");
        insta::assert_snapshot!(wrong("models: {a: {spread: 1.5}}"), @"mine.yaml: models.a.spread: found 1.5, expected a number from 0.001 to 1");
        insta::assert_snapshot!(wrong("slowdown: {a: {b: {1: 2}}}"), @"mine.yaml: slowdown.a.b.1: found 2, expected two numbers, plain and with MPS, such as [1.6, 1.3]");
        insta::assert_snapshot!(wrong("slowdown: {a: {b: {x: [1, 1]}}}"), @"mine.yaml: slowdown.a.b.x: expected a number of GPUs as the key");
        insta::assert_snapshot!(wrong("slowdown: {a: {b: {1: [0.5, 1]}}}"), @"mine.yaml: slowdown.a.b.1[0]: found 0.5, expected a number from 1 to 1000");
        insta::assert_snapshot!(wrong("models: {a: {speed: 2}}"), @"mine.yaml: models.a.speed: found 2, expected keys with values");
        insta::assert_snapshot!(wrong("models: {a: {also: b}}"), @r#"mine.yaml: models.a.also: found "b", expected a list of names"#);
        insta::assert_snapshot!(wrong("models: [a]"), @r#"mine.yaml: models: found ["a"], expected keys with values"#);
        insta::assert_snapshot!(wrong("models: {a: {a"), @"mine.yaml: not YAML: line 1 column 13: unclosed bracket '{'");
        insta::assert_snapshot!(Profiles::read("no/such.yaml").unwrap_err(), @"no/such.yaml: cannot read: No such file or directory (os error 2)");
    }
}
