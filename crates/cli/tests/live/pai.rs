//! Job files of OpenPAI on real agents: roles, their environment, completion rules, images.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::harness::Cluster;

const NO_IMAGES: &[&str] = &["--images", "ignore", "--container-runtime", "none"];

/// Returns a job file with two roles: workers with one GPU each, and a server without GPUs.
fn file(name: &str, workers: u32, worker: &str, server: &str, extras: &str) -> String {
    format!(
        "protocolVersion: 2
name: {name}
type: job
parameters: {{word: hello}}
secrets: {{key: hunter2}}
prerequisites:
  - {{type: dockerimage, name: image, uri: some/image}}
taskRoles:
  worker:
    instances: {workers}
    dockerImage: image
    resourcePerInstance: {{gpu: 1, cpu: 1, memoryMB: 64, ports: {{sync: 2}}}}
    commands:
{worker}
  ps:
    dockerImage: image
    completion: {{minFailedInstances: 1, minSucceededInstances: -1}}
    resourcePerInstance: {{gpu: 0, cpu: 1, memoryMB: 64}}
    commands:
{server}
{extras}"
    )
}

fn lines(lines: &[&str]) -> String {
    let line = |l: &&str| format!("      - {}", serde_json::to_string(l).unwrap());
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn submit(cluster: &Cluster, text: &str) -> (u64, String) {
    let path = cluster.script("job.yaml", text);
    let output = cluster.run(&["submit", &path]);
    assert_eq!(output.code, 0, "{output:?}");
    let id = output.out.trim().split('-').next().unwrap().parse().unwrap();
    (id, output.err)
}

fn instance<'a>(job: &'a Value, role: &str, index: u64) -> &'a Value {
    let roles = job["roles"].as_array().unwrap();
    let role = roles.iter().find(|r| r["name"] == role).unwrap();
    let all = role["instances"].as_array().unwrap();
    all.iter().find(|i| i["index"] == index).unwrap()
}

#[test]
fn roles_run_with_their_environment_and_end_by_their_completion_rules() {
    let cluster = Cluster::start_with(2, 1, NO_IMAGES);
    let worker = lines(&[
        "echo I am $PAI_CURRENT_TASK_ROLE_NAME $PAI_TASK_INDEX of $PAI_TASK_ROLE_TASK_COUNT_worker, <% $parameters.word %>",
        "echo sees [$CUDA_VISIBLE_DEVICES] of $PAI_TASK_ROLE_LIST, job $PAI_JOB_NAME in $PAI_VIRTUAL_CLUSTER",
        "echo secret is $(printf %s '<% $secrets.key %>' | wc -c) long",
        "echo ports $PAI_CONTAINER_HOST_sync_PORT_LIST and other $PAI_HOST_IP_worker_1:$PAI_PORT_LIST_worker_1_sync",
        "test \"$PAI_CONTAINER_HOST_sync_PORT_LIST\" = \"$(eval echo \\$PAI_PORT_LIST_worker_${PAI_TASK_INDEX}_sync)\"",
    ]);
    // The server would run forever: it is stopped when all workers have succeeded.
    let server = lines(&["echo devices are $NVIDIA_VISIBLE_DEVICES", "sleep 600"]);
    let text = file(
        "two_roles",
        2,
        &worker,
        &server,
        "defaults: {virtualCluster: default}\n",
    );
    let (id, notes) = submit(&cluster, &text);
    assert!(
        notes.contains("note: taskRoles.worker.dockerImage: used on nodes with podman"),
        "{notes}"
    );
    cluster.until_state(id, "completed");
    let log = cluster.log(id);
    for part in [
        "[worker/0] I am worker 0 of 2, hello",
        "[worker/1] I am worker 1 of 2, hello",
        "of worker,ps, job",
        "~two_roles in default",
        "secret is 7 long",
        "[ps/0] devices are none",
        "the image some/image is not used",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let job = cluster.job(id);
    assert_eq!(job["gpus"], 2);
    for index in [0, 1] {
        assert_eq!(instance(&job, "worker", index)["state"], "succeeded", "{job}");
    }
    assert_ne!(
        instance(&job, "worker", 0)["node"],
        instance(&job, "worker", 1)["node"]
    );
    assert_eq!(instance(&job, "ps", 0)["state"], "stopped", "{job}");
    assert_eq!(job["request"]["secrets"]["key"], "******");
    assert!(!job.to_string().contains("hunter2"), "{job}");
    assert!(
        job["attempts"][0]["remarks"][0]
            .as_str()
            .unwrap()
            .contains("is not used"),
        "{job}"
    );
    let shown = cluster.ok(&["job", "show", &id.to_string()]);
    assert!(
        shown.contains("Role worker") && shown.contains("succeeded: 0 on n"),
        "{shown}"
    );
    cluster.until_idle();
}

#[test]
fn the_job_ends_when_too_many_instances_have_failed() {
    let cluster = Cluster::start_with(2, 1, NO_IMAGES);
    let worker = lines(&["test $PAI_TASK_INDEX = 0 || exit 9", "sleep 600"]);
    let text = file("fails", 2, &worker, &lines(&["sleep 600"]), "");
    let (id, _) = submit(&cluster, &text);
    cluster.until_state(id, "failed");
    let job = cluster.job(id);
    assert_eq!(
        (&job["exit_code"], &job["attempt_count"]),
        (&9.into(), &1.into()),
        "{job}"
    );
    assert_eq!(instance(&job, "worker", 1)["exit_code"], 9);
    assert_eq!(instance(&job, "worker", 0)["state"], "stopped", "{job}");
    // Here two instances must fail, and none must succeed: the job succeeds when all instances have ended.
    let text = file(
        "may_fail",
        2,
        &lines(&["test $PAI_TASK_INDEX = 0 || exit 9"]),
        &lines(&["sleep 1"]),
        "",
    );
    let text = text.replacen(
        "    instances: 2\n",
        "    instances: 2\n    completion: {minFailedInstances: 2, minSucceededInstances: -1}\n",
        1,
    );
    let (id, _) = submit(&cluster, &text);
    cluster.until_state(id, "completed");
    assert_eq!(instance(&cluster.job(id), "worker", 1)["state"], "failed");
    cluster.until_idle();
}

#[test]
fn a_restarted_agent_reports_how_instances_ended() {
    let mut cluster = Cluster::start_with(1, 1, NO_IMAGES);
    let flag = cluster.path("go").display().to_string();
    let worker = lines(&[&format!("while ! test -e {flag}; do sleep 0.1; done")]);
    let text = file("away", 1, &worker, &lines(&["sleep 600"]), "");
    let (id, _) = submit(&cluster, &text);
    cluster.until_state(id, "running");
    cluster.kill_agent(0);
    fs::write(&flag, "").unwrap();
    cluster.start_agent(0);
    cluster.until_state(id, "completed");
    cluster.until_idle();
}

#[test]
fn without_a_gang_instances_start_one_by_one() {
    let cluster = Cluster::start_with(1, 1, NO_IMAGES);
    let worker = lines(&[
        "echo started $PAI_TASK_INDEX",
        "test $PAI_TASK_INDEX != 1 -o $DOVETAIL_ATTEMPT -gt 1",
    ]);
    let text = file(
        "alone",
        3,
        &worker,
        &lines(&["true"]),
        "extras: {gangAllocation: false}\n",
    );
    let text = text.replacen(
        "    instances: 3\n",
        "    instances: 3\n    taskRetryCount: 1\n",
        1,
    );
    let (first, notes) = submit(&cluster, &text);
    assert!(
        notes.contains("taskRoles.ps.resourcePerInstance.gpu: 0 given"),
        "{notes}"
    );
    // The job succeeds when all workers have succeeded, without the server.
    for id in first..first + 3 {
        cluster.until_state(id, "completed");
    }
    assert_eq!(
        cluster.job(first + 1)["attempt_count"],
        2,
        "one instance was retried"
    );
    assert!(cluster.log(first + 2).contains("started 2"));
    // An instance that fails without a retry cancels those that have not run yet.
    let text = file(
        "ends",
        3,
        &lines(&["exit 3"]),
        &lines(&["true"]),
        "extras: {gangAllocation: false}\n",
    );
    let (first, _) = submit(&cluster, &text);
    cluster.until_state(first, "failed");
    cluster.until_state(first + 2, "cancelled");
    assert!(
        cluster.job(first + 2)["detail"]
            .as_str()
            .unwrap()
            .contains("completion rule"),
        "{}",
        cluster.job(first + 2)
    );
    cluster.until_idle();
}

#[test]
fn an_image_is_rejected_or_passed_to_the_container_runtime() {
    let cluster = Cluster::start_with(1, 1, &["--container-runtime", "none"]);
    let text = file("image", 1, &lines(&["true"]), &lines(&["true"]), "");
    let (id, _) = submit(&cluster, &text);
    cluster.until_state(id, "failed");
    let detail = cluster.job(id)["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.contains("some/image") && detail.contains("--images ignore"),
        "{detail}"
    );

    // A runtime that prints its arguments and runs the command without a container.
    let runtime = cluster.script(
        "podman",
        "#!/bin/bash\necho asked: \"$@\"\ntest \"$1\" = run || exit 0\nwhile test \"$1\" != --entrypoint; do shift; done\nprogram=$2; shift 3\nexec \"$program\" \"$@\"\n",
    );
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = Cluster::start_with(1, 1, &["--container-runtime", &runtime]);
    let text = file(
        "image",
        1,
        &lines(&["echo inside $PAI_TASK_INDEX"]),
        &lines(&["true"]),
        "",
    );
    let (id, _) = submit(&cluster, &text);
    cluster.until_state(id, "completed");
    let log = cluster.log(id);
    assert!(
        log.contains("[worker/0] asked: run --rm --init --network host --name dovetail-1-1-worker-0"),
        "{log}"
    );
    assert!(
        log.contains("some/image -c") && log.contains("[worker/0] inside 0") && !log.contains("hunter2"),
        "{log}"
    );
}

#[test]
fn all_errors_of_a_job_file_are_reported_at_once() {
    let cluster = Cluster::start_with(1, 1, NO_IMAGES);
    let text = file(
        "bad name",
        0,
        &lines(&["<% $parameters.nope %>"]),
        &lines(&["true"]),
        "",
    );
    let path = cluster.script("job.yaml", &text);
    for words in [&["submit"][..], &["submit", "--dry-run"], &["convert", "pai"]] {
        let output = cluster.run(&[words, &[&path]].concat());
        assert_eq!(output.code, 2, "{output:?}");
        for part in [
            "name: expected",
            "taskRoles.worker.instances: expected an integer from 1",
            "$parameters.nope",
        ] {
            assert!(output.err.contains(part), "{words:?} {part}: {output:?}");
        }
    }
    // No node has two GPUs for one instance.
    let text = file("wide", 1, &lines(&["true"]), &lines(&["true"]), "").replace("gpu: 1,", "gpu: 2,");
    let path = cluster.script("job.yaml", &text);
    let output = cluster.run(&["submit", &path]);
    assert_eq!(output.code, 2, "{output:?}");
    let good = file("good", 1, &lines(&["true"]), &lines(&["true"]), "");
    let path = cluster.script("job.yaml", &good);
    let output = cluster.run(&["submit", "--dry-run", &path]);
    assert!(
        output.code == 0 && output.out.contains("Would start now"),
        "{output:?}"
    );
}
