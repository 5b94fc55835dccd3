use dovetail_cluster::{After, AfterWhen, Behaviour, Cpus, Deadline, Processes, Retries, StageTimes};
use dovetail_kubeapi::Pod;
use dovetail_model::Time;

use super::*;
use crate::identity::Identity;

fn role(name: &str, instances: u32, gpus: u32) -> Role {
    Role {
        name: name.to_owned(),
        instances,
        gpus,
        cpus: Cpus::from_whole(2),
        memory_mib: 4096,
        command: vec!["/bin/bash".to_owned(), "-c".to_owned(), format!("run {name}")],
        image: Some("openpai/example".to_owned()),
        ..Role::default()
    }
}

fn request(roles: Vec<Role>) -> JobRequest {
    JobRequest {
        name: "Job_Config-1".to_owned(),
        tenant: "vc1".to_owned(),
        priority: 100,
        roles,
        retries: Retries {
            user: 0,
            platform: 0,
            node: 0,
        },
        ..JobRequest::default()
    }
}

fn options() -> ManifestOptions {
    ManifestOptions::new("alice", "team", "job-config-1")
}

fn created(request: &JobRequest) -> Manifest {
    manifest(request, None, &options()).unwrap()
}

fn env(job: &Value, name: &str) -> Value {
    let all = job.pointer("/spec/template/spec/containers/0/env").unwrap();
    let found = all.as_array().unwrap().iter().find(|v| v["name"] == name);
    found.cloned().unwrap_or_default()
}

#[test]
fn each_role_is_a_job_and_all_pods_are_one_gang() {
    let created = created(&request(vec![role("ps", 1, 0), role("worker", 4, 2)]));
    let names: Vec<&str> = created
        .jobs
        .iter()
        .map(|j| j["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["job-config-1-ps", "job-config-1-worker"]);
    for job in &created.jobs {
        let pod = &job["spec"]["template"];
        assert_eq!(pod["metadata"]["annotations"]["dovetail.io/gang"], "job-config-1");
        assert_eq!(pod["metadata"]["annotations"]["dovetail.io/gang-size"], "5");
        assert_eq!(pod["spec"]["schedulerName"], "dovetail");
        assert_eq!(pod["spec"]["subdomain"], "job-config-1");
    }
    let worker = &created.jobs[1];
    assert_eq!(worker["spec"]["completions"], 4);
    let limits = &worker["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(
        *limits,
        json!({"cpu": "2", "memory": "4096Mi", "nvidia.com/gpu": "2"})
    );
    assert_eq!(
        env(worker, "MASTER_ADDR")["value"],
        "job-config-1-worker-0.job-config-1"
    );
    assert_eq!(
        env(worker, "PAI_HOST_IP_ps_0")["value"],
        "job-config-1-ps-0.job-config-1"
    );
    assert_eq!(env(worker, "PAI_TASK_ROLE_TASK_COUNT_worker")["value"], "4");
    assert_eq!(env(worker, "NVIDIA_VISIBLE_DEVICES"), Value::Null);
    let service = created.service.unwrap();
    assert_eq!(service["spec"]["selector"]["dovetail.io/sent-as"], "job-config-1");
    assert!(created.secret.is_none());
}

#[test]
fn completion_rules_are_in_the_job_and_in_annotations() {
    let mut train = role("train", 4, 1);
    (train.min_failed, train.min_succeeded) = (2, 1);
    let made_of = |train: Role, retries: u32| {
        let mut request = request(vec![train]);
        request.retries.user = retries;
        created(&request).jobs[0]["spec"].clone()
    };
    let spec = made_of(train.clone(), 3);
    assert_eq!(spec["maxFailedIndexes"], 1);
    assert_eq!(spec["backoffLimitPerIndex"], 3);
    assert_eq!(spec["successPolicy"], json!({"rules": [{"succeededCount": 1}]}));
    let annotations = &spec["template"]["metadata"]["annotations"];
    assert_eq!(annotations["dovetail.io/min-succeeded"], "1");
    assert_eq!(annotations["dovetail.io/min-failed"], "2");
    assert_eq!(annotations["dovetail.io/retries"], "3");
    (train.min_failed, train.min_succeeded) = (-1, 0);
    let spec = made_of(train, 0);
    assert!(spec["maxFailedIndexes"].is_null() && spec["successPolicy"].is_null());
    assert_eq!(
        spec["template"]["metadata"]["annotations"]["dovetail.io/min-failed"],
        "never"
    );
}

#[test]
fn instances_without_gang_start_alone() {
    let mut alone = request(vec![role("train", 2, 1), role("eval", 1, 0)]);
    alone.gang = false;
    let options = ManifestOptions {
        number: Some(7),
        ..options()
    };
    let created = manifest(&alone, None, &options).unwrap();
    let (train, eval) = (
        &created.jobs[0]["spec"]["template"],
        &created.jobs[1]["spec"]["template"],
    );
    let annotations = &train["metadata"]["annotations"];
    assert_eq!(annotations["dovetail.io/gang-size"], "1");
    assert!(annotations["dovetail.io/gang"].is_null());
    assert_eq!(
        (
            &annotations["dovetail.io/number"],
            &eval["metadata"]["annotations"]["dovetail.io/number"]
        ),
        (&json!("7"), &json!("9"))
    );
    // The default scheduler gets pods without GPUs that start alone.
    assert!(eval["spec"]["schedulerName"].is_null());
    assert!(
        created
            .remarks
            .iter()
            .any(|r| r.starts_with("roles.eval.gpus: 0 GPUs")),
        "{:?}",
        created.remarks
    );
    assert!(created.service.is_none());
}

#[test]
fn a_job_without_roles_has_as_many_pods_as_its_gpus_need() {
    let mut plain = request(Vec::new());
    (plain.command, plain.gpus, plain.cpus_per_gpu) = (vec!["train".to_owned()], 16, Cpus::from_milli(1500));
    let options = ManifestOptions {
        image: Some("pytorch".to_owned()),
        ..options()
    };
    let spec = manifest(&plain, None, &options).unwrap().jobs[0]["spec"].clone();
    assert_eq!(
        (&spec["completions"], &spec["maxFailedIndexes"]),
        (&json!(2), &json!(0))
    );
    let limits = &spec["template"]["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(*limits, json!({"cpu": "12", "nvidia.com/gpu": "8"}));
    plain.gpus = 1;
    let array = ArrayIndices {
        indices: &[0, 1, 2, 3],
        at_most: Some(2),
    };
    let spec = manifest(&plain, Some(array), &options).unwrap().jobs[0]["spec"].clone();
    assert_eq!(
        (&spec["completions"], &spec["parallelism"]),
        (&json!(4), &json!(2))
    );
    assert_eq!(
        spec["template"]["metadata"]["annotations"]["dovetail.io/gang-size"],
        "1"
    );
}

#[test]
fn without_a_device_plugin_gpus_are_an_annotation_and_a_variable() {
    let options = ManifestOptions {
        gpu_resource: None,
        ..options()
    };
    let created = manifest(&request(vec![role("train", 1, 2)]), None, &options).unwrap();
    let job = &created.jobs[0];
    assert_eq!(
        job["spec"]["template"]["metadata"]["annotations"]["dovetail.io/gpu-count"],
        "2"
    );
    let visible = env(job, "NVIDIA_VISIBLE_DEVICES");
    assert_eq!(
        visible["valueFrom"]["fieldRef"]["fieldPath"],
        "metadata.annotations['dovetail.io/gpus']"
    );
}

#[test]
fn secrets_are_only_in_the_secret() {
    let mut secret = request(vec![role("train", 1, 1)]);
    secret.secrets = [("token".to_owned(), "hush".to_owned())].into();
    secret.roles[0].command = vec!["login".to_owned(), "<% $secrets.token %>".to_owned()];
    let created = created(&secret);
    let kept = created.secret.as_ref().unwrap();
    assert_eq!(kept["stringData"], json!({"SECRET_TOKEN": "hush"}));
    let job = created.jobs[0].to_string();
    assert!(!job.contains("hush"), "{job}");
    assert_eq!(
        created.jobs[0]["spec"]["template"]["spec"]["containers"][0]["command"],
        json!(["login", "$(SECRET_TOKEN)"])
    );
    let from = &env(&created.jobs[0], "SECRET_TOKEN")["valueFrom"]["secretKeyRef"];
    assert_eq!(*from, json!({"name": "job-config-1", "key": "SECRET_TOKEN"}));
}

#[test]
fn unsupported_fields_are_errors() {
    let wrong = |change: &dyn Fn(&mut JobRequest), array: Option<ArrayIndices<'_>>| {
        let mut request = request(vec![role("train", 1, 1)]);
        change(&mut request);
        let errors = manifest(&request, array, &options()).unwrap_err();
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        errors.join("; ")
    };
    let after = After {
        job: 3,
        when: AfterWhen::Ok,
    };
    assert!(wrong(&|r| r.after.push(after), None).starts_with("after: "));
    assert!(wrong(&|r| r.processes = Processes::PerGpu, None).contains("expected per-node"));
    assert!(wrong(&|r| r.roles[0].image = None, None).starts_with("roles[0].image: missing"));
    let gap = ArrayIndices {
        indices: &[1, 2],
        at_most: None,
    };
    assert!(wrong(&|r| r.gang = false, Some(gap)).contains("expected 0-1"));
    let twins = |r: &mut JobRequest| r.roles = vec![role("a_b", 1, 1), role("A_b", 1, 1)];
    assert!(wrong(&twins, None).contains("the same name on Kubernetes"));
    let long = |r: &mut JobRequest| r.roles = vec![role("x", 1, 1), role(&"y".repeat(60), 1, 1)];
    assert!(wrong(&long, None).contains("use a shorter name"));
    let many = |r: &mut JobRequest| r.roles[0].instances = 1001;
    assert!(wrong(&many, None).contains("at most 1000"));
    let odd = |r: &mut JobRequest| (r.roles, r.gpus) = (Vec::new(), 11);
    assert!(wrong(&odd, None).contains("expected a multiple of 8"));
}

#[test]
fn names_are_valid_on_kubernetes() {
    assert_eq!(object_name("Job_Config-1"), "job-config-1");
    assert_eq!(object_name("2024 run!"), "job-2024-run");
    assert_eq!(object_name("__"), "job");
    assert_eq!(object_name(&"a".repeat(99)).len(), 40);
    let unique = unique_name("Train");
    assert!(
        unique.starts_with("train-") && unique.len() == "train-".len() + 5,
        "{unique}"
    );
    assert_ne!(unique, unique_name("Train"));
}

#[test]
fn an_elastic_job_has_pods_for_its_maximum_and_starts_with_its_minimum() {
    let mut options = options();
    options.image = Some("train:1".to_owned());
    let mut request = JobRequest {
        command: vec!["torchrun".to_owned()],
        gpus: 16,
        min_gpus: Some(12),
        max_gpus: Some(36),
        ..request(Vec::new())
    };
    let created = manifest(&request, None, &options).unwrap();
    let spec = &created.jobs[0]["spec"];
    let annotations = &spec["template"]["metadata"]["annotations"];
    assert_eq!(
        (&spec["completions"], &spec["parallelism"]),
        (&json!(4), &json!(4))
    );
    assert_eq!(annotations["dovetail.io/gang-size"], "4");
    assert_eq!(annotations["dovetail.io/gang-min"], "2");
    assert_eq!(spec["successPolicy"]["rules"][0]["succeededCount"], 2);
    assert!(
        created.remarks[0].contains("torchrun --nnodes"),
        "{:?}",
        created.remarks
    );

    // Half a pod does not make the job elastic.
    request.max_gpus = Some(20);
    let created = manifest(&request, None, &options).unwrap();
    let annotations = &created.jobs[0]["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(
        (
            &annotations["dovetail.io/gang-size"],
            &annotations["dovetail.io/gang-min"]
        ),
        (&json!("2"), &Value::Null)
    );
    assert!(created.remarks[0].contains("whole pods"), "{:?}", created.remarks);
}

#[test]
fn pods_state_what_the_job_file_states_about_the_behaviour_of_a_job() {
    let mut stated = request(vec![role("worker", 2, 2)]);
    stated.expected = Some(Time::from_secs(90));
    stated.model = Some("resnet".to_owned());
    stated.total_steps = Some(5000);
    stated.stages = Some(StageTimes {
        data: Time(125_000),
        gpu: Time(250_000),
        net: Time(0),
    });
    stated.scaling = serde_json::from_value(json!({"1": 1.0, "2": 1.9, "4": 3.4})).unwrap();
    for deadline in [
        Deadline::After(Time::from_secs(5400)),
        Deadline::At(Time(1_794_882_416_000_000)),
    ] {
        stated.deadline = Some(deadline);
        let created = created(&stated);
        let mut pod = created.jobs[0]["spec"]["template"].clone();
        pod["metadata"]["name"] = json!("pod");
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let read = Identity::of(&pod, &["nvidia.com/gpu".to_owned()])
            .unwrap()
            .behaviour;
        let expected = Behaviour {
            expected: stated.expected,
            model: stated.model.clone(),
            total_steps: stated.total_steps,
            stages: stated.stages,
            scaling: stated.scaling.clone(),
            deadline: stated.deadline,
        };
        assert_eq!(read, expected);
        let resumes = &env(&created.jobs[0], "DOVETAIL_RESUME_STEP")["valueFrom"]["fieldRef"]["fieldPath"];
        assert_eq!(*resumes, "metadata.annotations['dovetail.io/resume-step']");
    }
}
