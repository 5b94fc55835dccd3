//! `dovetail kube submit`: creates the Jobs of a job file through the API server.

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_jobfile::{ArrayRequest, JobFile};
use dovetail_kube::{Manifest, ManifestOptions, manifest, object_name, unique_name};
use dovetail_kubeapi::{Client, Config};
use serde_json::{Value, json};

use super::args::{ObjectForm, SubmitArgs};
use crate::commands::convert;

/// Creates the objects of a job file, or prints them.
pub(super) fn run(args: &SubmitArgs) -> Result<(), Failure> {
    let (text, file) = convert::read(&args.file)?;
    let JobFile { job, array, ignored } = JobFile::parse(&text, &file).or_request()?;
    // On Kubernetes images are always used.
    let (_, ignored): (Vec<_>, Vec<_>) =
        (ignored.into_iter()).partition(|r| r.path.ends_with(".dockerImage"));
    convert::print_remarks(&ignored);
    // A dry run with a namespace needs no cluster.
    let config = match (&args.namespace, args.dry_run) {
        (Some(_), true) => None,
        _ => Some(Config::find(args.kubeconfig.as_deref(), args.context.as_deref()).or_request()?),
    };
    let default = config.as_ref().map(|c| c.namespace.clone());
    let namespace = args.namespace.clone().or(default).unwrap_or_default();
    let name = match (&args.name, args.dry_run) {
        (Some(name), _) if object_name(name) != *name => {
            return Err(Failure::request(format!(
                "--name {name}: expected at most 40 lower-case letters, digits and `-`, a letter first, such as {}",
                object_name(name)
            )));
        }
        (Some(name), _) => name.clone(),
        (None, true) => object_name(&job.name),
        (None, false) => unique_name(&job.name),
    };
    let options = ManifestOptions {
        gpu_resource: Some(args.gpu_resource.clone()).filter(|name| name != "none"),
        image: args.image.clone(),
        gpus_per_pod: args.gpus_per_pod,
        scheduler_name: args.scheduler_name.clone(),
        ..ManifestOptions::new(&args.user, &namespace, &name)
    };
    let array = array.as_ref().map(ArrayRequest::indices);
    let manifest = manifest(&job, array, &options).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(|error| format!("{file}: {error}")).collect();
        Failure::request(lines.join("\n"))
    })?;
    for remark in &manifest.remarks {
        eprintln!("note: {remark}");
    }
    match (args.dry_run, config) {
        (false, Some(config)) => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .or_work()?;
            let client = Client::new(config);
            runtime
                .block_on(dovetail_kube::create_objects(&client, &manifest))
                .or_work()?;
            match args.output {
                None => console::print(&name),
                Some(form) => print(&manifest, form),
            }
        }
        _ => print(&manifest, args.output.unwrap_or(ObjectForm::Yaml)),
    }
}

fn print(manifest: &Manifest, form: ObjectForm) -> Result<(), Failure> {
    match form {
        ObjectForm::Json => {
            let items: Vec<&Value> = manifest.objects().collect();
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
            console::print(serde_json::to_string_pretty(&list).or_work()?)
        }
        ObjectForm::Yaml => {
            let mut out = String::new();
            for object in manifest.objects() {
                out.push_str("---\n");
                out.push_str(&serde_saphyr::to_string(object).or_work()?);
            }
            console::print(out.trim_end())
        }
    }
}
