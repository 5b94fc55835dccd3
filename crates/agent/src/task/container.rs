//! Container runtimes and their command lines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Supported runtimes, in the order of preference.
const RUNTIMES: [&str; 2] = ["podman", "docker"];

/// Returns the first supported runtime on the search path.
pub(crate) fn runtime() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut candidates = RUNTIMES
        .iter()
        .flat_map(|name| folders.iter().map(move |f| f.join(name)));
    candidates.find(|program| program.is_file())
}

/// A command to run in a container.
pub(crate) struct ContainerRun<'a> {
    pub(crate) runtime: &'a Path,
    pub(crate) name: &'a str,
    pub(crate) image: &'a str,
    pub(crate) gpus: &'a [String],
    /// Environment of the container. Only the names are written to the command line; the runtime takes the values from
    /// its own environment, where other users cannot read them.
    pub(crate) env: &'a BTreeMap<String, String>,
    /// Files and folders mounted at the same path in the container.
    pub(crate) folders: &'a [&'a Path],
    pub(crate) workdir: &'a str,
    pub(crate) cpu_milli: u32,
    pub(crate) memory_mib: u64,
    pub(crate) shm_mib: u64,
    pub(crate) command: &'a [String],
}

/// Returns the command line that runs the container.
pub(crate) fn command_line(run: &ContainerRun<'_>) -> Vec<String> {
    let mut line: Vec<String> = vec![run.runtime.display().to_string(), "run".into()];
    let mut add = |args: &[&str]| line.extend(args.iter().map(|arg| (*arg).to_owned()));
    add(&["--rm", "--init", "--network", "host", "--name", run.name]);
    let is_docker = run.runtime.file_name().is_some_and(|name| name == "docker");
    if !run.gpus.is_empty() && is_docker {
        add(&["--gpus", &format!("\"device={}\"", run.gpus.join(","))]);
    } else {
        for gpu in run.gpus {
            add(&["--device", &format!("nvidia.com/gpu={gpu}")]);
        }
    }
    if run.cpu_milli > 0 {
        add(&["--cpus", &format!("{:.3}", f64::from(run.cpu_milli) / 1000.0)]);
    }
    if run.memory_mib > 0 {
        add(&["--memory", &format!("{}m", run.memory_mib)]);
    }
    if run.shm_mib > 0 {
        add(&["--shm-size", &format!("{}m", run.shm_mib)]);
    }
    for folder in run.folders {
        add(&["--volume", &format!("{0}:{0}", folder.display())]);
    }
    if !run.workdir.is_empty() {
        let volume = format!("{0}:{0}", run.workdir);
        add(&["--volume", &volume, "--workdir", run.workdir]);
    }
    for name in run.env.keys() {
        add(&["--env", name]);
    }
    // The entry point of the image is replaced.
    let (program, arguments) = run
        .command
        .split_first()
        .map_or(("", &[][..]), |(p, a)| (p.as_str(), a));
    add(&["--entrypoint", program, run.image]);
    line.extend(arguments.iter().cloned());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(runtime: &str, gpus: &[&str]) -> String {
        let env = [
            ("SECRET".to_owned(), "hush".to_owned()),
            ("PAI_TASK_INDEX".to_owned(), "0".to_owned()),
        ]
        .into();
        let gpus: Vec<String> = gpus.iter().map(|g| (*g).to_owned()).collect();
        let run = ContainerRun {
            runtime: Path::new(runtime),
            name: "dovetail-7-2-worker-0",
            image: "some/image:1",
            gpus: &gpus,
            env: &env,
            folders: &[Path::new("/t/7-2")],
            workdir: "/data",
            cpu_milli: 1500,
            memory_mib: 2048,
            shm_mib: 512,
            command: &[
                "/bin/bash".to_owned(),
                "-c".to_owned(),
                "set -e\ntrain".to_owned(),
            ],
        };
        command_line(&run).join(" ")
    }

    #[test]
    fn podman_and_docker_get_their_own_gpu_flags() {
        let expected = "/usr/bin/podman run --rm --init --network host --name dovetail-7-2-worker-0 --device nvidia.com/gpu=GPU-a \
                        --device nvidia.com/gpu=GPU-b --cpus 1.500 --memory 2048m --shm-size 512m --volume /t/7-2:/t/7-2 --volume \
                        /data:/data --workdir /data --env PAI_TASK_INDEX --env SECRET --entrypoint /bin/bash some/image:1 -c set -e\ntrain";
        assert_eq!(check("/usr/bin/podman", &["GPU-a", "GPU-b"]), expected);
        let docker = check("/usr/bin/docker", &["GPU-a", "GPU-b"]);
        assert!(
            docker.contains("--gpus \"device=GPU-a,GPU-b\" --cpus"),
            "{docker}"
        );
        assert!(!check("/usr/bin/docker", &[]).contains("--gpus"));
        assert!(!docker.contains("hush"), "values must not be on the command line");
    }
}
