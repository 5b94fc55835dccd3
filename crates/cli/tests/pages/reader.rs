//! A reader of a page: a fresh clone of the repository, a shell, and a cluster when a command needs one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dovetail_kubelab::Subprocess;
use tempfile::TempDir;

/// Commands that talk to a running cluster.
const NEEDS_CLUSTER: &[&str] = &[
    "up", "run", "submit", "jobs", "job", "nodes", "node", "events", "usage", "top", "operate", "user",
    "notify",
];

/// Scripts that a reader is assumed to have.
const OWN_SCRIPTS: &[(&str, &str)] = &[
    ("train.py", "print('trained')\n"),
    ("evaluate.py", "print('evaluated')\n"),
];

/// Parts of lines that differ from run to run, up to the end of the line: wall-clock times.
pub(crate) const VARYING: &[&str] = &[" decisions in ", "\"wall_ms\": "];

/// Cuts the part of a line that differs from run to run.
pub(crate) fn normalize(line: &str) -> String {
    let cut = VARYING
        .iter()
        .find_map(|part| line.find(part).map(|at| at + part.len()));
    line[..cut.unwrap_or(line.len())].to_owned()
}

/// Longest time for one command, in seconds.
const TIMEOUT: &str = "300";

pub(crate) struct Reader {
    folder: TempDir,
    cluster: Option<Subprocess>,
}

impl Reader {
    /// Copies what a clone of the repository contains: all tracked files as they are now, and new ones that are not ignored.
    pub(crate) fn new(project: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(project)
            .output()
            .unwrap();
        assert!(
            files.status.success(),
            "the pages are tested in a clone of the repository"
        );
        let clone = folder.path().join("dovetail");
        for file in String::from_utf8(files.stdout).unwrap().split_terminator('\0') {
            let (from, to) = (project.join(file), clone.join(file));
            // A file may have been deleted and not committed yet.
            if from.is_file() {
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                fs::copy(from, to).unwrap();
            }
        }
        for (name, text) in OWN_SCRIPTS {
            fs::write(clone.join(name), text).unwrap();
        }
        for name in ["bin", "home"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let installed = folder.path().join("bin/dovetail");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_dovetail"), installed).unwrap();
        Self {
            folder,
            cluster: None,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a command in the clone, with the built binary on the path and a home folder of its own.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .current_dir(self.path("dovetail"))
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("HOME", self.path("home"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        for variable in [
            "COLUMNS",
            "DOVETAIL_CONFIG",
            "DOVETAIL_SHARED",
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
        ] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs a command of a page and returns both of its outputs as a terminal shows them, and the exit code.
    pub(crate) fn run(&mut self, command: &str) -> (String, i32) {
        if needs_cluster(command) && self.cluster.is_none() {
            self.start_cluster();
        }
        // `dovetail up` stays in the foreground; the cluster is running by now.
        if command == "dovetail up" {
            return (String::new(), 0);
        }
        let script = format!("exec 2>&1\n{command}");
        let output =
            Subprocess::output(self.command("timeout").args([TIMEOUT, "sh", "-e", "-c", &script])).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (text, output.status.code().unwrap_or(-1))
    }

    /// Starts `dovetail up` as a reader does, but on free ports, and waits until it runs.
    fn start_cluster(&mut self) {
        let log = fs::File::create(self.path("up.log")).unwrap();
        let ports = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"];
        let mut command = self.command("dovetail");
        command
            .arg("up")
            .args(ports)
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.cluster = Some(Subprocess::spawn(&mut command).unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        let log = || fs::read_to_string(self.path("up.log")).unwrap_or_default();
        while !log().contains("Try:") {
            assert!(
                Instant::now() < deadline,
                "`dovetail up` does not start:\n{}",
                log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn needs_cluster(command: &str) -> bool {
    let mut words = command.split_whitespace();
    words.next() == Some("dovetail") && words.next().is_some_and(|word| NEEDS_CLUSTER.contains(&word))
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.cluster.is_some() {
            // The processes of jobs would outlive the server until their lease expires.
            let _ = Subprocess::output(self.command("dovetail").args(["job", "stop", "@mine"]));
        }
    }
}
