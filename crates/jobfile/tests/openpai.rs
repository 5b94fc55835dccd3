//! Conversion of the sample files of OpenPAI, with a remark on everything that is ignored.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_jobfile::JobFile;
use dovetail_openpai::Mode;

#[test]
fn every_sample_converts_and_ignored_parts_are_named() {
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
            let converted =
                JobFile::from_openpai(&text, Mode::Strict).unwrap_or_else(|e| panic!("{name}: {e}"));
            converted.job.validate().unwrap_or_else(|e| panic!("{name}: {e}"));
            // The printed job file must mean the same.
            let mut same = converted.clone();
            let again = JobFile::parse(&serde_saphyr::to_string(&same.keys()).unwrap(), &name).unwrap();
            (same.job.file, same.job.remarks, same.ignored) = (None, Vec::new(), Vec::new());
            assert_eq!(again, same, "{name}");
            let job = &converted.job;
            report.push_str(&format!(
                "{name}: {} GPUs, {} per task, {} CPUs and {} MiB per GPU, {} remarks\n",
                job.gpus,
                job.gpus_per_task,
                job.cpus_per_gpu.as_cores(),
                job.memory_mib_per_gpu,
                converted.ignored.len()
            ));
            count += converted.ignored.len();
            for remark in &converted.ignored {
                report.push_str(&format!(
                    "  {}: {}\n",
                    remark.path,
                    remark.message.split([':', ';']).next().unwrap()
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
fn jobs_that_cannot_be_converted_are_refused_with_the_path() {
    for (text, path, what) in [
        (JOB.to_owned(), "taskRoles", "must divide the larger one"),
        (
            JOB.replace("gpu: 3", "gpu: 4")
                .replace("b: {skuType: V100}", "b: {skuType: P100}"),
            "extras.hivedScheduler.taskRoles.b.skuType",
            "expected one GPU type for all roles",
        ),
    ] {
        let faults = JobFile::from_openpai(&text, Mode::Strict).unwrap_err().0;
        assert!(
            faults[0].path == path && faults[0].message.contains(what),
            "{faults:?}"
        );
    }
    let job = JobFile::from_openpai(&JOB.replace("gpu: 3", "gpu: 4"), Mode::Strict)
        .unwrap()
        .job;
    assert_eq!(
        (job.priority, job.gpu_type.as_deref(), job.gpus, job.gpus_per_task),
        (100, Some("V100"), 6, 4)
    );
}
