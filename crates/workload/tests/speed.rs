//! A million jobs are generated, written and read in seconds. The limits are far above what a laptop needs, to be safe on busy
//! machines; the figures are printed with `--nocapture`.

use std::time::{Duration, Instant};

use dovetail_workload::{Format, GenerateSpec, TraceJob, WorkloadStats, generate, read_from, write};

#[allow(clippy::print_stderr)]
fn timed<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    let took = start.elapsed();
    eprintln!("{name}: {} ms", took.as_millis());
    assert!(took < Duration::from_secs(30), "{name} took {took:?}");
    result
}

#[test]
fn a_million_jobs_are_handled_in_seconds() {
    eprintln!("{} bytes per job", size_of::<TraceJob>());
    assert!(size_of::<TraceJob>() <= 192);
    let spec = GenerateSpec {
        jobs: 1_000_000,
        ..GenerateSpec::default()
    };
    let generated = timed("generate", || generate(&spec).unwrap());
    let mut csv = Vec::new();
    timed("write native CSV", || {
        write(&generated, Format::Native, &mut csv).unwrap()
    });
    let back = timed("read native CSV", || {
        read_from(&csv[..], "made.csv", None).unwrap()
    });
    assert!(
        back.jobs
            .iter()
            .zip(&generated.jobs)
            .all(|(a, b)| (a.submit, a.work, a.gpus) == (b.submit, b.work, b.gpus))
    );
    let mut jsonl = Vec::new();
    timed("write JSON lines", || {
        write(&generated, Format::NativeJsonl, &mut jsonl).unwrap()
    });
    timed("read JSON lines", || {
        read_from(&jsonl[..], "made.jsonl", None).unwrap()
    });
    timed("statistics", || WorkloadStats::of(&generated));
}
