//! Parsing of job files: valid files, and the messages about all mistakes of invalid ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dovetail_openpai::{Mode, PriorityClass, is_openpai, parse, parse_all, script};
use proptest::prelude::*;

const JOB: &str = r#"
protocolVersion: 2
name: two_roles
type: job
version: 1.0
prerequisites:
  - {type: dockerimage, name: image, uri: somewhere/image:1, auth: {username: me, password: <% $secrets.pull %>}}
  - {type: data, name: cifar, uri: [http://data/cifar.tgz]}
  - type: script
    name: setup
    plugin: com.microsoft.pai.runtimeplugin.cmd
    failurePolicy: ignore
    callbacks:
      - {event: taskStarts, commands: [echo set up]}
      - {event: taskSucceeds, commands: [echo tidy]}
parameters: {epochs: 3}
secrets: {pull: hunter2, key: k3y}
jobRetryCount: 2
taskRoles:
  worker:
    instances: 4
    completion: {minFailedInstances: 2}
    taskRetryCount: 1
    dockerImage: image
    data: cifar
    prerequisites: [setup]
    extraContainerOptions: {shmMB: 1024, infiniband: true}
    resourcePerInstance: {gpu: 2, cpu: 3, memoryMB: 4096, ports: {sync: 2}}
    commands:
      - "wget <% $data.uri[0] %>  "
      - train --epochs <% $parameters.epochs %> --key <%$secrets.key%>
  ps:
    completion: {minFailedInstances: -1, minSucceededInstances: -1}
    dockerImage: image
    resourcePerInstance: {gpu: 0, cpu: 1, memoryMB: 512}
    commands: [serve]
deployments:
  - {name: prod, taskRoles: {worker: {preCommands: [echo pre], postCommands: [echo post]}}}
defaults: {virtualCluster: vision, deployment: prod}
extras:
  gangAllocation: false
  hivedScheduler:
    jobPriorityClass: oppo
    taskRoles: {worker: {skuType: V100, affinityGroupName: all}}
  com.microsoft.pai.runtimeplugin:
    - {plugin: git, parameters: {repo_uri: "https://git/it's", clone_dir: code}}
    - {plugin: cmd, parameters: {preCommands: [echo first], postCommands: [echo last]}}
"#;

#[test]
fn all_keys_of_a_file_are_read() {
    let parsed = parse(JOB, Mode::Strict).unwrap();
    let job = &parsed.job;
    assert_eq!(
        (job.name.as_str(), job.virtual_cluster.as_str(), job.retries),
        ("two_roles", "vision", 2)
    );
    assert_eq!(
        (job.class, job.gang, job.instances(), job.gpus()),
        (PriorityClass::Oppo, false, 5, 8)
    );
    let [worker, ps] = &job.roles[..] else {
        panic!("{:?}", job.roles)
    };
    assert_eq!(
        (worker.name.as_str(), ps.name.as_str()),
        ("worker", "ps"),
        "in the order of the file"
    );
    assert_eq!(
        (worker.min_failed, worker.min_succeeded),
        (Some(2), Some(4)),
        "by default all instances must succeed"
    );
    assert_eq!((ps.instances, ps.min_failed, ps.min_succeeded), (1, None, None));
    assert_eq!((worker.shm_mb, ps.shm_mb, worker.infiniband), (1024, 512, true));
    assert_eq!(worker.ports, [("sync".to_owned(), 2)]);
    assert_eq!(worker.cells.sku_type.as_deref(), Some("V100"));
    assert_eq!(job.image(worker).unwrap().uri, "somewhere/image:1");
    assert!(is_openpai(JOB) && !is_openpai("command: x"));
}

#[test]
fn hooks_surround_the_commands_of_a_script_in_order() {
    let job = parse(JOB, Mode::Strict).unwrap().job;
    let script = script(&job, &job.roles[0]);
    let expected = r"set -e
git clone 'https://git/it'\''s' 'code'
echo first
set +e
(
set -e
echo set up
)
set -e
echo pre
wget http://data/cifar.tgz
train --epochs 3 --key <% $secrets.key %>
echo post
set +e
(
set -e
echo tidy
)
set -e
echo last
";
    assert_eq!(script.text, expected);
    assert_eq!(
        script.secrets.into_iter().collect::<Vec<_>>(),
        [("key".to_owned(), "k3y".to_owned())]
    );
}

#[test]
fn a_hook_that_may_fail_does_not_stop_the_commands() {
    let text = JOB.replace("[echo set up]", "[\"false\", echo not reached]");
    let job = parse(&text, Mode::Strict).unwrap().job;
    let script = script(&job, &job.roles[0]).text;
    let script: String = script
        .lines()
        .filter(|l| !l.starts_with("git") && !l.starts_with("wget") && !l.starts_with("train"))
        .map(|l| format!("{l}\n"))
        .collect();
    let run = |script: &str| {
        std::process::Command::new("bash")
            .args(["-c", script])
            .output()
            .unwrap()
    };
    let output = run(&script);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "first\npre\npost\ntidy\nlast\n"
    );
    assert!(output.status.success());
    let output = run(&script.replace("echo pre", "false"));
    assert_eq!(
        (
            String::from_utf8_lossy(&output.stdout).as_ref(),
            output.status.code()
        ),
        ("first\n", Some(1))
    );
}

#[test]
fn a_mistake_is_reported_with_its_path_and_what_is_expected() {
    for (valid, invalid, message) in [
        (
            "protocolVersion: 2",
            "protocolVersion: 1",
            "protocolVersion: expected protocol version 2, found 1",
        ),
        (
            "name: two_roles",
            "name: two roles",
            "name: expected up to 255 letters, digits, `_` and `-`, found \"two roles\"",
        ),
        ("type: job", "type: task", "type: expected job, found \"task\""),
        (
            "jobRetryCount: 2",
            "jobRetry: 2",
            "jobRetry: unknown key (did you mean `jobRetryCount`?)",
        ),
        (
            "jobRetryCount: 2",
            "jobRetryCount: -1",
            "jobRetryCount: expected an integer from 0 to 65535, found -1",
        ),
        (
            "  worker:\n    instances",
            "  1st:\n    instances",
            "taskRoles.1st: invalid role name",
        ),
        (
            "  worker:\n    instances",
            "  a.b:\n    instances",
            "taskRoles.a.b: invalid role name",
        ),
        (
            "dockerImage: image\n    data",
            "dockerImage: imgae\n    data",
            "taskRoles.worker.dockerImage: unknown prerequisite of type dockerimage `imgae` (did you mean `image`?); expected one of image",
        ),
        (
            "data: cifar",
            "data: image",
            "taskRoles.worker.data: unknown prerequisite of type data `image`; expected one of cifar",
        ),
        (
            "prerequisites: [setup]",
            "prerequisites: [stup]",
            "taskRoles.worker.prerequisites[0]: unknown prerequisite `stup`",
        ),
        (
            "instances: 4",
            "instances: 0",
            "taskRoles.worker.instances: expected an integer from 1 to 1048576, found 0",
        ),
        (
            "gpu: 2,",
            "gpu: 0.5,",
            "taskRoles.worker.resourcePerInstance.gpu: expected an integer from 0 to 1048576, found 0.5",
        ),
        (
            "gpu: 2,",
            "",
            "taskRoles.worker.resourcePerInstance.gpu: missing: expected an integer",
        ),
        (
            "minFailedInstances: 2}",
            "minFailedInstances: -2}",
            "taskRoles.worker.completion.minFailedInstances: expected an integer from -1",
        ),
        (
            "$parameters.epochs",
            "$parameters.epoch",
            "taskRoles.worker.commands[1]: `<% $parameters.epoch %>`: unknown reference: expected one of $parameters.epochs",
        ),
        (
            "deployment: prod",
            "deployment: test",
            "defaults.deployment: unknown deployment `test`; expected one of prod",
        ),
        (
            "{worker: {preCommands",
            "{wrker: {preCommands",
            "deployments[0].taskRoles.wrker: unknown task role `wrker` (did you mean `worker`?)",
        ),
        (
            "jobPriorityClass: oppo",
            "jobPriorityClass: urgent",
            "extras.hivedScheduler.jobPriorityClass: expected crit, prod, test or oppo, found \"urgent\"",
        ),
        (
            "skuType: V100",
            "skuType: V100, pinnedCellId: c",
            "skuType and pinnedCellId exclude each other",
        ),
        (
            "gangAllocation: false",
            "gangAllocation: 3",
            "extras.gangAllocation: expected true or false, found 3",
        ),
        (
            "plugin: git",
            "plugin: gti",
            "extras.com.microsoft.pai.runtimeplugin[0].plugin: expected ssh, tensorboard, cmd, git or teamwise_storage, found \"gti\"",
        ),
        (
            "event: taskStarts",
            "event: starts",
            "prerequisites[2].callbacks[0].event: expected taskStarts or taskSucceeds, found \"starts\"",
        ),
        (
            "- {type: data",
            "- {type: dta",
            "prerequisites[1].type: expected dockerimage, data, script or output, found \"dta\"",
        ),
        (
            "ports: {sync: 2}",
            "ports: {sync: many}",
            "taskRoles.worker.resourcePerInstance.ports.sync: expected an integer from 0 to 1024, found \"many\"",
        ),
        (
            "commands: [serve]",
            "orders: [serve]",
            "taskRoles.ps.commands: missing: expected a list of commands",
        ),
    ] {
        assert!(JOB.contains(valid), "{valid}");
        let error = parse(&JOB.replace(valid, invalid), Mode::Strict).unwrap_err();
        assert!(error.to_string().contains(message), "{invalid}: {error}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = JOB
        .replace("type: job", "type: x")
        .replace("instances: 4", "instances: none")
        .replace("cpu: 1", "cpus: 1");
    let faults = parse(&text, Mode::Strict).unwrap_err().0;
    let paths: Vec<&str> = faults.iter().map(|f| f.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "type",
            "taskRoles.worker.instances",
            "taskRoles.ps.resourcePerInstance.cpus",
            "taskRoles.ps.resourcePerInstance.cpu"
        ]
    );
}

#[test]
fn lenient_mode_ignores_unknown_keys_with_a_remark() {
    let text = JOB
        .replace("jobRetryCount: 2", "jobRetry: 2")
        .replace("$parameters.epochs", "$parameters.epoch");
    let parsed = parse(&text, Mode::Lenient).unwrap();
    assert_eq!(parsed.job.retries, 0);
    let remarks: Vec<String> = parsed.remarks.iter().map(ToString::to_string).collect();
    assert!(
        remarks[0].starts_with("jobRetry: unknown key") && remarks[0].ends_with("ignored"),
        "{remarks:?}"
    );
    assert!(
        remarks[1].contains("<% $parameters.epoch %>") && remarks[1].ends_with("left unchanged"),
        "{remarks:?}"
    );
    let script = script(&parsed.job, &parsed.job.roles[0]);
    assert!(script.text.contains("--epochs <% $parameters.epoch %>"));
    assert!(
        parse("protocolVersion: 2", Mode::Lenient).is_err(),
        "a job needs roles in both modes"
    );
}

/// All sample files are valid in strict mode; a snapshot summarizes them.
#[test]
fn all_sample_files_are_read() {
    let Some(folder) = dovetail_testkit::shared(env!("CARGO_MANIFEST_DIR"), "pai") else {
        return;
    };
    let mut table = String::new();
    for part in ["jobs", "lab6"] {
        let mut files: Vec<_> = std::fs::read_dir(folder.join(part))
            .unwrap()
            .map(|f| f.unwrap().path())
            .collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&file).unwrap();
            let parsed = parse(&text, Mode::Strict).unwrap_or_else(|e| panic!("{name}: {e}"));
            let job = parsed.job;
            let roles: Vec<String> = job
                .roles
                .iter()
                .map(|r| format!("{}×{}", r.instances, r.gpu))
                .collect();
            table.push_str(&format!(
                "{name}: {} {} {}, gang {}, {} remarks\n",
                job.class.name(),
                job.virtual_cluster,
                roles.join(" + "),
                job.gang,
                parsed.remarks.len()
            ));
        }
    }
    insta::assert_snapshot!(table);
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        let _ = parse_all(&text, Mode::Strict);
        let _ = parse_all(&text, Mode::Lenient);
    }

    /// A valid file with changed lines is either parsed or rejected with at least one message. A parsed job has a script.
    #[test]
    fn changed_files_are_parsed_or_rejected(changes in prop::collection::vec((0..60_usize, 0..4_u8, "[a-z0-9:{}<%$. -]{0,12}"), 1..5)) {
        let mut lines: Vec<String> = JOB.lines().map(str::to_owned).collect();
        for (at, how, text) in changes {
            let at = at % lines.len();
            match how {
                0 => { lines.remove(at); }
                1 => lines.insert(at, text),
                2 => lines[at].push_str(&text),
                _ => { let cut = lines[at].chars().count() / 2; lines[at] = lines[at].chars().take(cut).collect(); }
            }
        }
        let text = lines.join("\n");
        for mode in [Mode::Strict, Mode::Lenient] {
            match parse(&text, mode) {
                Ok(parsed) => for role in &parsed.job.roles {
                    prop_assert!(role.instances >= 1 && !role.commands.is_empty());
                    let unknown = script(&parsed.job, role).unknown;
                    prop_assert!(mode == Mode::Lenient || unknown.is_empty());
                },
                Err(faults) => prop_assert!(!faults.0.is_empty()),
            }
        }
    }
}
