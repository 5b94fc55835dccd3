//! What pods state about how their job behaves when it runs, like the keys of a job file with the same names.

use dovetail_cluster::{Behaviour, Deadline, Speeds, StageTimes};
use dovetail_kubeapi::parse_time;
use dovetail_model::{Time, parse_span};

use super::{IdentityError, Values};
use crate::annotations;

/// Longest expected run time and deadline: ten years.
const MAX_SECONDS: u32 = 315_576_000;
/// Most steps of a job.
const MAX_STEPS: u64 = 1 << 53;
/// Longest name of a model, in bytes.
const MAX_MODEL: usize = 200;
/// Longest list of speeds, in bytes.
const MAX_TEXT: usize = 4096;

const SECONDS: &str = "a whole number of seconds from 1 to 315576000";
const STEPS: &str = "a whole number from 1 to 9007199254740992";
const MODEL: &str = "a name of 1 to 200 bytes";
const STAGES: &str =
    "seconds such as {data: 0.1, gpu: 0.3, net: 0.05}, more than 0 and at most 3600 together";
const SCALING: &str = "speeds by number of GPUs such as {1: 1.0, 2: 1.9}, more than 0 each";
const DEADLINE: &str = "a time such as 2026-11-17T18:00:00Z, or a duration after submission such as 8h";

/// Reads the annotations about how a job behaves.
pub(super) fn behaviour(values: &Values<'_>) -> Result<Behaviour, IdentityError> {
    let expected = values.parsed(annotations::EXPECTED, SECONDS, |text| {
        let seconds: u32 = text.parse().ok().filter(|s| *s <= MAX_SECONDS)?;
        // Zero meant unknown in earlier versions.
        Some((seconds > 0).then(|| Time::from_secs(i64::from(seconds))))
    })?;
    Ok(Behaviour {
        expected: expected.flatten(),
        model: values.parsed(annotations::MODEL, MODEL, |text| {
            (text.len() <= MAX_MODEL).then(|| text.to_owned())
        })?,
        total_steps: values.parsed(annotations::TOTAL_STEPS, STEPS, |text| {
            text.parse().ok().filter(|n| (1..=MAX_STEPS).contains(n))
        })?,
        stages: values.parsed(annotations::STAGES, STAGES, |text| {
            let stages: StageTimes = yaml(text)?;
            stages.is_valid().then_some(stages)
        })?,
        scaling: values
            .parsed(annotations::SCALING, SCALING, |text| {
                let speeds: Speeds = yaml(text)?;
                speeds.is_valid().then_some(speeds)
            })?
            .unwrap_or_default(),
        deadline: values.parsed(annotations::DEADLINE, DEADLINE, deadline)?,
    })
}

fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_saphyr::from_str(text)
        .ok()
        .filter(|_| text.len() <= MAX_TEXT)
}

fn deadline(text: &str) -> Option<Deadline> {
    if let Some(at) = parse_time(text) {
        return (at > 0).then_some(Deadline::At(Time(at)));
    }
    let span = parse_span(text)?;
    let limit = Time::from_secs(i64::from(MAX_SECONDS));
    (span > Time::ZERO && span <= limit).then_some(Deadline::After(span))
}

#[cfg(test)]
mod tests {
    use dovetail_kubeapi::Pod;
    use serde_json::json;

    use super::*;

    fn read(name: &str, value: &str) -> Result<Behaviour, String> {
        let pod = json!({"metadata": {"name": "a", "annotations": {name: value}}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        behaviour(&Values(&pod)).map_err(|error| error.to_string())
    }

    #[test]
    fn annotations_state_what_job_files_state() {
        let stages = read("dovetail.io/stages", "{data: 0.5, gpu: 1}")
            .unwrap()
            .stages
            .unwrap();
        assert_eq!(
            (stages.data, stages.gpu, stages.net),
            (Time(500_000), Time(1_000_000), Time(0))
        );
        let scaling = read("dovetail.io/scaling", "{1: 1.0, 2: 1.9}").unwrap().scaling;
        assert_eq!(serde_json::to_string(&scaling).unwrap(), r#"{"1":1.0,"2":1.9}"#);
        let deadline = |text| read("dovetail.io/deadline", text).unwrap().deadline;
        assert_eq!(deadline("8h"), Some(Deadline::After(Time::from_secs(28_800))));
        assert_eq!(
            deadline("2026-11-17T02:26:56Z"),
            Some(Deadline::At(Time(1_794_882_416_000_000)))
        );
        let steps = read("dovetail.io/total-steps", "5000").unwrap();
        assert_eq!(steps.total_steps, Some(5000));
        let expected = |text| read("dovetail.io/expected-seconds", text).unwrap().expected;
        assert_eq!((expected("60"), expected("0")), (Some(Time::from_secs(60)), None));
    }

    #[test]
    fn an_invalid_value_is_reported_with_what_is_accepted() {
        let cases = [
            ("dovetail.io/expected-seconds", "-1", SECONDS),
            ("dovetail.io/expected-seconds", "4000000000", SECONDS),
            ("dovetail.io/total-steps", "0", STEPS),
            ("dovetail.io/stages", "{data: 0.1, disk: 2}", STAGES),
            ("dovetail.io/stages", "{data: 4000}", STAGES),
            ("dovetail.io/stages", "soon", STAGES),
            ("dovetail.io/scaling", "{1: -1}", SCALING),
            ("dovetail.io/scaling", "{1: .nan}", SCALING),
            ("dovetail.io/deadline", "soon", DEADLINE),
            ("dovetail.io/deadline", "0s", DEADLINE),
        ];
        for (name, value, accepted) in cases {
            let expected = format!("annotation {name}: invalid value {value:?}: expected {accepted}");
            assert_eq!(read(name, value).unwrap_err(), expected);
        }
        let long = "x".repeat(201);
        assert!(read("dovetail.io/model", &long).unwrap_err().ends_with(MODEL));
    }
}
