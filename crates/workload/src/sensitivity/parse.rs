//! Parses and writes tables of sensitivities.

use std::fmt::Write as _;
use std::sync::Arc;

use dovetail_model::sensitivity::Points;
use dovetail_model::{Rate, Sensitivity, Share};

use super::{SensitivityProfile, SensitivityTable, StatedIdeal};
use dovetail_yaml::{Entry, YamlError, parse as parse_yaml};

const MODEL_KEYS: [&str; 8] = [
    "model",
    "gpus",
    "gpu_type",
    "iteration_s",
    "ideal",
    "cpu",
    "memory_gb",
    "speed",
];

pub(super) fn table(text: &str, file: &str) -> Result<SensitivityTable, YamlError> {
    let value = parse_yaml(text, file)?;
    let top = Entry::top(file, &value);
    top.entries(&["name", "share", "gpu_type", "models"])?;
    let name = top.get("name")?.map(|n| n.text()).transpose()?;
    let share = required(&top, "share")?;
    share.entries(&["cpu", "memory_gb"])?;
    let share = Share::new(
        cpu_milli(&required(&share, "cpu")?)?,
        memory_mib(&required(&share, "memory_gb")?)?,
    );
    let kind = top.get("gpu_type")?.map(|t| t.text()).transpose()?;
    let models = required(&top, "models")?;
    let models = models.list().ok_or_else(|| models.expected("a list of models"))?;
    let rows = models.iter().map(|entry| profile(entry, kind.as_ref()));
    Ok(SensitivityTable {
        name: name.unwrap_or_else(|| file.to_owned()),
        share,
        rows: rows.collect::<Result<_, _>>()?,
    })
}

fn profile(entry: &Entry<'_>, kind: Option<&String>) -> Result<SensitivityProfile, YamlError> {
    entry.entries(&MODEL_KEYS)?;
    let (cpu, memory, speed) = (
        required(entry, "cpu")?,
        required(entry, "memory_gb")?,
        required(entry, "speed")?,
    );
    let mut rates = Vec::new();
    for row in items(&speed)? {
        for cell in items(&row)? {
            rates.push(Rate((cell.amount(0.0, 4000.0)? * 1e6).round() as u32));
        }
    }
    let points = Points {
        cpu_milli: items(&cpu)?.iter().map(cpu_milli).collect::<Result<_, _>>()?,
        memory_mib: items(&memory)?.iter().map(memory_mib).collect::<Result<_, _>>()?,
        rates,
    };
    let sensitivity = Sensitivity::try_from(points).map_err(|e| speed.wrong(e.to_string()))?;
    let text = |key| entry.get(key)?.map(|e: Entry<'_>| e.text()).transpose();
    let gpus = entry.get("gpus")?.map(|g| g.whole(1, 1 << 20)).transpose()?;
    Ok(SensitivityProfile {
        model: required(entry, "model")?.text()?,
        gpus: gpus.unwrap_or(1) as u32,
        gpu_type: text("gpu_type")?.or_else(|| kind.cloned()),
        iteration_s: entry
            .get("iteration_s")?
            .map(|s| s.amount(1e-6, 1e6))
            .transpose()?,
        stated: entry.get("ideal")?.map(|e| stated(&e)).transpose()?,
        sensitivity: Arc::new(sensitivity),
    })
}

fn stated(entry: &Entry<'_>) -> Result<StatedIdeal, YamlError> {
    entry.entries(&["cpu", "memory_gb", "speed"])?;
    Ok(StatedIdeal {
        cpu: required(entry, "cpu")?.amount(0.0, 1e6)?,
        memory_gb: required(entry, "memory_gb")?.amount(0.0, 1e9)?,
        speed: required(entry, "speed")?.amount(0.0, 4000.0)?,
    })
}

fn required<'a>(entry: &Entry<'a>, key: &str) -> Result<Entry<'a>, YamlError> {
    let missing = || entry.wrong(format!("missing key `{key}`"));
    entry.get(key)?.ok_or_else(missing)
}

fn items<'a>(entry: &Entry<'a>) -> Result<Vec<Entry<'a>>, YamlError> {
    entry.list().ok_or_else(|| entry.expected("a list"))
}

fn cpu_milli(entry: &Entry<'_>) -> Result<u32, YamlError> {
    Ok((entry.amount(0.0, 1e6)? * 1000.0).round() as u32)
}

fn memory_mib(entry: &Entry<'_>) -> Result<u64, YamlError> {
    Ok((entry.amount(0.0, 1e9)? * 1024.0).round() as u64)
}

impl SensitivityTable {
    /// Returns the table as a YAML text that [`SensitivityTable::from_yaml`] parses.
    pub fn to_yaml(&self) -> String {
        let share = (cpu_text(self.share.cpu_milli), memory_text(self.share.memory_mib));
        let name = serde_json::Value::from(self.name.as_str());
        let mut text = format!(
            "name: {name}\nshare: {{cpu: {}, memory_gb: {}}}\nmodels:\n",
            share.0, share.1
        );
        for row in &self.rows {
            let _ = write_profile(&mut text, row);
        }
        text
    }
}

fn write_profile(text: &mut String, row: &SensitivityProfile) -> std::fmt::Result {
    let points = row.sensitivity.points();
    writeln!(text, "  - model: {}", serde_json::Value::from(row.model.as_str()))?;
    writeln!(text, "    gpus: {}", row.gpus)?;
    if let Some(kind) = &row.gpu_type {
        writeln!(text, "    gpu_type: {}", serde_json::Value::from(kind.as_str()))?;
    }
    if let Some(seconds) = row.iteration_s {
        writeln!(text, "    iteration_s: {seconds}")?;
    }
    if let Some(ideal) = row.stated {
        let StatedIdeal {
            cpu,
            memory_gb,
            speed,
        } = ideal;
        writeln!(
            text,
            "    ideal: {{cpu: {cpu}, memory_gb: {memory_gb}, speed: {speed}}}"
        )?;
    }
    let cpus: Vec<String> = points.cpu_milli.iter().map(|c| cpu_text(*c)).collect();
    let memories: Vec<String> = points.memory_mib.iter().map(|m| memory_text(*m)).collect();
    writeln!(text, "    cpu: [{}]", cpus.join(", "))?;
    writeln!(text, "    memory_gb: [{}]", memories.join(", "))?;
    writeln!(text, "    speed:")?;
    for rates in points.rates.chunks(points.memory_mib.len()) {
        let rates: Vec<String> = rates.iter().map(|r| r.factor().to_string()).collect();
        writeln!(text, "      - [{}]", rates.join(", "))?;
    }
    Ok(())
}

fn cpu_text(milli: u32) -> String {
    (f64::from(milli) / 1000.0).to_string()
}

fn memory_text(mib: u64) -> String {
    (mib as f64 / 1024.0).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_table_is_parsed_back() {
        for name in SensitivityTable::builtin_names() {
            let table = SensitivityTable::builtin(name).unwrap();
            assert_eq!(
                SensitivityTable::from_yaml(&table.to_yaml(), "again").unwrap(),
                table
            );
        }
    }

    #[test]
    fn errors_name_the_path_of_the_key() {
        let wrong = |text: &str| {
            SensitivityTable::from_yaml(text, "mine.yaml")
                .unwrap_err()
                .to_string()
        };
        assert_eq!(wrong("models: []\n"), "mine.yaml: top level: missing key `share`");
        let top = "share: {cpu: 3, memory_gb: 60}\nmodels:\n  - model: x\n";
        assert_eq!(
            wrong(&format!(
                "{top}    cpu: [1, 2]\n    memory_gb: [60]\n    speed: [[1], [0.5]]\n"
            )),
            "mine.yaml: models[0].speed: speed must not decrease with more CPU, at 2000 milli-cores and 61440 MiB"
        );
        assert_eq!(
            wrong(&format!("{top}    cpus: [1]\n")),
            "mine.yaml: models[0].cpus: unknown key (did you mean cpu?); expected one of model, gpus, gpu_type, iteration_s, \
             ideal, cpu, memory_gb, speed"
        );
        assert_eq!(
            wrong(&format!(
                "{top}    cpu: [1]\n    memory_gb: [60]\n    speed: [[fast]]\n"
            )),
            "mine.yaml: models[0].speed[0][0]: found \"fast\", expected a number from 0 to 4000"
        );
    }
}
