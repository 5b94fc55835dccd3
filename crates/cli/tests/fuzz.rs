//! Text written by users never makes the program panic: policies, time spans, lists, scenarios, failure files.

use dovetail_experiment::{Scenario, parse_loads, parse_seeds, split_policies};
use dovetail_model::parse_span;
use dovetail_policies::{Overrides, PartSpec, build};
use dovetail_sim::Failures;
use proptest::prelude::*;

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(400)
    }
}

/// Generates text that resembles valid input.
fn almost_valid(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(words).prop_map(str::to_owned),
        "[0-9.eE+-]{0,6}",
        "[:,=/. \n\t-]{1,3}",
        any::<String>().prop_map(|s| s.chars().take(4).collect()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

const POLICY_WORDS: &[&str] = &[
    "fifo", "tiresias", "las", "gittins", ":", "limits=", "promote=", "quantum=", "window=", "10", "1h",
    "1/2", ",",
];
const SCENARIO_WORDS: &[&str] = &[
    "policy: ",
    "policies: ",
    "[fifo, las]",
    "cluster: ",
    "16x8",
    "\n",
    "jobs: ",
    "100",
    "load: ",
    "check: true",
    "seeds: ",
    "1..3",
    "- ",
    "{",
    "}",
    "restart-cost: ",
    "30s",
];
const FAILURE_WORDS: &[&str] = &[
    "node-0", "node", ",", "\n", "1", "0", "down_s", "1e400", "-3", "NaN", "#",
];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn invalid_policies_do_not_panic(text in almost_valid(POLICY_WORDS)) {
        let _ = text.parse::<PartSpec>();
        let over = Overrides { order: Some(text.clone()), placement: Some(text.clone()), ..Overrides::default() };
        let _ = build(&text, &Overrides::default());
        let _ = build("fifo", &over);
        let _ = split_policies(&text);
    }

    #[test]
    fn parsed_spans_seeds_and_loads_are_valid(text in almost_valid(&["1", "..", "h", "ms", "30s", "inf", "1e999", "-1", "NaN"])) {
        if let Some(span) = parse_span(&text) {
            prop_assert!(span.0 >= 0);
        }
        let _ = parse_seeds(&text);
        if let Ok(loads) = parse_loads(&text) {
            prop_assert!(loads.iter().all(|l| l.is_finite() && *l > 0.0));
        }
    }

    #[test]
    fn invalid_scenarios_do_not_panic(text in almost_valid(SCENARIO_WORDS)) {
        let _ = Scenario::parse(&text);
    }

    #[test]
    fn parsed_failure_files_are_valid(text in almost_valid(FAILURE_WORDS)) {
        if let Ok(outages) = Failures::parse(&text, "f.csv", &["node-0".to_owned()]) {
            prop_assert!(outages.iter().all(|o| o.up.is_none_or(|up| up > o.down)));
        }
    }
}
