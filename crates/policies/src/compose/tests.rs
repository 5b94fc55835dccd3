use dovetail_engine::Support;

use super::*;
use crate::presets::presets;
use crate::tenancy::QuotaShares;

fn with(set: impl Fn(&mut Overrides)) -> Overrides {
    let mut overrides = Overrides::default();
    set(&mut overrides);
    overrides
}

fn error(text: &str, overrides: &Overrides) -> String {
    build(text, overrides).unwrap_err().to_string()
}

#[test]
fn every_preset_builds() {
    for preset in presets() {
        let (policy, _) = build(preset.name, &Overrides::default()).unwrap();
        assert_eq!(policy.name, preset.name);
    }
}

#[test]
fn a_sizing_of_cpu_and_memory_keeps_the_discipline_of_the_preset() {
    for (preset, discipline) in [
        ("fifo-backfill", "backfill"),
        ("srtf", "preempt"),
        ("themis", "auction"),
    ] {
        for sizing in ["proportional", "greedy", "tune"] {
            let overrides = with(|o| o.sizing = Some(sizing.to_owned()));
            let (policy, _) = build(preset, &overrides).unwrap();
            assert_eq!(policy.discipline.name(), discipline, "{preset} {sizing}");
            assert_eq!(policy.sizing.name(), sizing);
        }
    }
}

#[test]
fn unknown_names_get_a_suggestion() {
    assert_eq!(
        error("tiresas", &Overrides::default()),
        "unknown policy `tiresas` (did you mean `tiresias`?); `dovetail policies` lists all of them"
    );
    let overrides = with(|o| o.placement = Some("consolidated".to_owned()));
    assert!(error("fifo", &overrides).contains("did you mean `consolidate`?"));
    assert!(error("tiresias:limit=3", &Overrides::default()).contains("did you mean `limits`?"));
}

#[test]
fn a_knob_is_given_to_the_part_that_has_it() {
    let names = |text: &str| {
        let (policy, _) = build(text, &Overrides::default()).unwrap();
        policy.parts().map(|(_, part)| part.name()).join(" ")
    };
    assert!(names("fifo-easy:patience=2h,priority=true").contains("fifo:priority=true easy:patience=2h"));
    assert!(names("muri-s:size=2,autopack=false").contains("muri:autopack=false,size=2"));
    assert!(names("themis:lease=5m,f=0").contains("themis auction:f=0,lease=5m"));
    assert!(names("srsf:min_run=1h").contains("preempt:min_run=1h"));
    assert!(names("muri-l:limits=1/2,size=2").contains("tiresias:limits=1/2 replan"));
    assert!(names("sjf-bsbf:mps=true,min_left=10s").contains("share:min_left=10s,preempt=true"));
    assert!(names("sjf-bsbf:mps=true,min_left=10s").contains("pair:by=bsbf,mps=true"));
}

#[test]
fn companions_replace_a_discipline_that_does_not_suit() {
    let muri = with(|o| o.grouping = Some("muri".to_owned()));
    let elastic = with(|o| o.sizing = Some("elastic".to_owned()));
    let pair = with(|o| o.grouping = Some("pair".to_owned()));
    let discipline =
        |preset: &str, overrides: &Overrides| build(preset, overrides).unwrap().0.discipline.name();
    assert_eq!(discipline("tiresias", &muri), "replan");
    assert_eq!(discipline("fifo", &elastic), "replan");
    // Jobs in pairs preempt if and only if those of the preset do.
    assert_eq!(discipline("fifo", &pair), "share");
    assert_eq!(discipline("srtf", &pair), "share:preempt=true");
    assert_eq!(
        discipline("sjf-ffs:min_left=10s", &pair),
        "share:min_left=10s,preempt=true"
    );
    let tune = with(|o| o.sizing = Some("tune".to_owned()));
    assert_eq!(build("fifo", &tune).unwrap().0.placement.name(), "complement");
}

#[test]
fn parts_that_do_not_work_together_are_named_with_those_that_would() {
    let muri = with(|o| {
        o.grouping = Some("muri".to_owned());
        o.discipline = Some("strict".to_owned());
    });
    assert_eq!(
        error("tiresias", &muri),
        "grouping `muri` requires a discipline that plans all jobs at once: found `strict`, expected `replan` or `afresh`"
    );
    let pair = with(|o| {
        o.grouping = Some("pair:by=ffs".to_owned());
        o.discipline = Some("strict".to_owned());
    });
    assert_eq!(
        error("tiresias", &pair),
        "grouping `pair:by=ffs` requires a discipline that starts jobs beside running ones: found `strict`, \
         expected `share` or `antman-muri`"
    );
    let elastic_pair = with(|o| {
        o.grouping = Some("pair".to_owned());
        o.sizing = Some("elastic".to_owned());
    });
    assert_eq!(
        error("fifo", &elastic_pair),
        "sizing `elastic` requires a discipline that plans all jobs at once: found `share`, expected `replan` or `afresh`"
    );
    // Also where the part that has the requirement is the preset's own.
    let strict = with(|o| o.discipline = Some("strict".to_owned()));
    assert!(error("muri-s", &strict).starts_with("grouping `muri` requires"));
    assert!(error("optimus", &strict).starts_with("sizing `optimus` requires"));
}

#[test]
fn a_quota_needs_jobs_that_have_gpus_of_their_own() {
    let quota = with(|o| {
        o.tenancy = Some(format!("quota:{}", QuotaShares::parse("a=8").unwrap()));
        o.tenants = vec!["a".to_owned()];
    });
    assert!(build("fifo", &quota).is_ok());
    assert_eq!(
        error("fifo-easy", &quota),
        "tenancy `quota:a=8` requires a discipline that asks the tenancy about every job: found `easy`, \
         expected `strict`, `backfill`, `preempt` or `replan`"
    );
    assert_eq!(
        error("muri-s", &quota),
        "tenancy `quota:a=8` requires a grouping that puts one job on each GPU: found `muri`, expected `none`"
    );
}

#[test]
fn disciplines_that_cannot_reclaim_gpus_have_a_replacement() {
    assert_eq!(reclaiming_discipline("fifo").unwrap(), Some("preempt"));
    assert_eq!(
        reclaiming_discipline("fifo-backfill:patience=1h").unwrap(),
        Some("preempt")
    );
    assert_eq!(reclaiming_discipline("srtf").unwrap(), None);
    assert_eq!(reclaiming_discipline("muri-s").unwrap(), None);
    assert_eq!(reclaiming_discipline("themis").unwrap(), None);
    assert!(reclaiming_discipline("fifi").is_err());
}

#[test]
fn a_policy_needs_to_know_the_most_that_any_part_needs() {
    let knowledge = |name: &str| build(name, &Overrides::default()).unwrap().1;
    assert_eq!(knowledge("tiresias"), Knowledge::None);
    assert_eq!(knowledge("srsf"), Knowledge::Estimate);
    assert_eq!(knowledge("optimus"), Knowledge::Estimate);
    assert_eq!(knowledge("themis"), Knowledge::Estimate);
    assert_eq!(knowledge("fifo-easy"), Knowledge::Estimate);
}

/// A runtime that gives each job the GPUs, CPU and memory it asks for, alone.
const PLAIN: Capabilities = Capabilities {
    runtime: "the plain runtime",
    sharing: Support::No("one job for each GPU"),
    stage_gates: Support::No("one job for each GPU"),
    resize: Support::No("jobs keep their CPU and memory"),
    width: Support::No("jobs keep their GPUs"),
    ..Capabilities::ALL
};

#[test]
fn a_missing_mechanism_is_refused_with_part_runtime_and_alternative() {
    let refused = |name: &str| match build_for(&PLAIN, name, &Overrides::default()) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    assert_eq!(
        refused("sjf-ffs:mps=true"),
        "grouping `pair:by=ffs,mps=true` needs GPU sharing, which the plain runtime does not support: \
         one job for each GPU; use grouping `none`"
    );
    assert_eq!(
        refused("synergy"),
        "sizing `tune` needs resizing of CPU and memory, which the plain runtime does not support: \
         jobs keep their CPU and memory; use sizing `rigid`"
    );
    assert_eq!(
        refused("elastic-fifo"),
        "sizing `elastic` needs change of width, which the plain runtime does not support: \
         jobs keep their GPUs; use sizing `rigid`"
    );
    for name in ["fifo", "srtf", "fifo-easy", "themis", "drf", "gittins", "tetris"] {
        assert_eq!(refused(name), "", "{name}");
    }
    let antman = with(|o| {
        o.grouping = Some("pair:by=ffs".to_owned());
        o.discipline = Some("antman-muri".to_owned());
    });
    let error = build_for(&PLAIN, "fifo", &antman).unwrap_err().to_string();
    assert!(
        error.starts_with("discipline `antman-muri` needs GPU sharing"),
        "{error}"
    );
    assert!(error.ends_with("; use discipline `strict`"), "{error}");
}

#[test]
fn a_runtime_with_every_mechanism_runs_every_preset() {
    for preset in presets() {
        assert!(build_for(&Capabilities::ALL, preset.name, &Overrides::default()).is_ok());
    }
}
