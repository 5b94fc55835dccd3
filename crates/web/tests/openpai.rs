//! Sample files of OpenPAI: each becomes a job of ours, and everything that is left out is named.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_openpai::Mode;
use dovetail_web::{JobFile, convert};

#[test]
fn every_sample_is_taken_over_and_what_is_left_out_is_named() {
    let Some(folder) = dovetail_testkit::shared(env!("CARGO_MANIFEST_DIR"), "pai") else {
        return;
    };
    let (mut report, mut count) = (String::new(), 0);
    for part in ["jobs", "lab6"] {
        let mut files: Vec<_> = std::fs::read_dir(folder.join(part))
            .unwrap()
            .map(|f| f.unwrap().path())
            .collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&file).unwrap();
            let converted = convert(&text, Mode::Strict).unwrap_or_else(|e| panic!("{name}: {e:?}"));
            converted.job.validate().unwrap_or_else(|e| panic!("{name}: {e}"));
            // What is printed is a job file of ours that means the same.
            let mut same = JobFile::from(converted.clone());
            let again = JobFile::parse(&serde_saphyr::to_string(&same.keys()).unwrap(), &name).unwrap();
            (same.job.file, same.job.remarks, same.ignored) = (None, Vec::new(), Vec::new());
            assert_eq!(again, same, "{name}");
            let job = &converted.job;
            report.push_str(&format!(
                "{name}: {} GPUs in bundles of {}, {} CPUs and {} MiB beside each, {} remarks\n",
                job.gpus,
                job.gpus_per_task,
                job.cpus_per_gpu,
                job.memory_mib_per_gpu,
                converted.remarks.len()
            ));
            count += converted.remarks.len();
            for remark in &converted.remarks {
                report.push_str(&format!(
                    "  {}: {}\n",
                    remark.path,
                    remark.what.split([':', ';']).next().unwrap()
                ));
            }
        }
    }
    report.push_str(&format!("{count} remarks\n"));
    insta::assert_snapshot!(report);
}

const JOB: &str = "
protocolVersion: 2
name: kinds
type: job
prerequisites: [{type: dockerimage, name: image, uri: i}]
taskRoles:
  a: {dockerImage: image, resourcePerInstance: {gpu: 2, cpu: 1, memoryMB: 1}, commands: [x]}
  b: {dockerImage: image, resourcePerInstance: {gpu: 3, cpu: 1, memoryMB: 1}, commands: [x]}
extras: {hivedScheduler: {jobPriorityClass: prod, taskRoles: {a: {skuType: V100}, b: {skuType: V100}}}}
";

#[test]
fn what_cannot_be_expressed_is_refused_with_its_path() {
    for (text, path, what) in [
        (JOB.to_owned(), "taskRoles", "must divide the larger one"),
        (
            JOB.replace("gpu: 3", "gpu: 4")
                .replace("b: {skuType: V100}", "b: {skuType: P100}"),
            "extras.hivedScheduler.taskRoles.b.skuType",
            "expected one kind for all roles",
        ),
    ] {
        let faults = convert(&text, Mode::Strict).unwrap_err();
        assert!(
            faults[0].path == path && faults[0].what.contains(what),
            "{faults:?}"
        );
    }
    let job = convert(&JOB.replace("gpu: 3", "gpu: 4"), Mode::Strict)
        .unwrap()
        .job;
    assert_eq!(
        (job.priority, job.gpu_type.as_deref(), job.gpus, job.gpus_per_task),
        (100, Some("V100"), 6, 4)
    );
}
