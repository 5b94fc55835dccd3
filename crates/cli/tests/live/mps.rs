//! `dovetail node mps`, with programs that behave as NVIDIA's do: the daemon stays in the background and keeps its output open.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::harness::Cluster;

/// Writes what it is asked for to a file, or fails as without root.
const SMI: &str = r#"#!/bin/sh
folder=$(dirname "$CUDA_MPS_PIPE_DIRECTORY")
if [ -e "$folder/broken" ]; then echo "Insufficient Permissions"; exit 4; fi
echo "$@" >> "$folder/smi.log"
"#;

/// The daemon is a process in the background.
const CONTROL: &str = r#"#!/bin/sh
pipe=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -d ]; then
  mkdir -p "$pipe"
  sleep 600 &
  echo $! > "$pipe/control"
  exit 0
fi
[ -e "$pipe/control" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
read -r line
if [ "$line" = quit ]; then kill "$(cat "$pipe/control")"; rm "$pipe/control"; fi
"#;

fn program(folder: &std::path::Path, name: &str, text: &str) {
    fs::create_dir_all(folder).unwrap();
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn mps_is_started_and_stopped_on_a_drained_node() {
    let mut cluster = Cluster::server_only(1, "policy: muri-l\n");
    let programs = cluster.path("bin");
    program(&programs, "nvidia-smi", SMI);
    program(&programs, "nvidia-cuda-mps-control", CONTROL);
    let path = std::env::var("PATH").unwrap();
    let pipe = cluster.path("mps");
    cluster.agent_env = vec![
        ("PATH", PathBuf::from(format!("{}:{path}", programs.display()))),
        ("CUDA_MPS_PIPE_DIRECTORY", pipe.clone()),
    ];
    cluster.start_agent(0);
    cluster.until("the node has joined", |c| c.nodes().len() == 1);
    let mps = |action: &str| cluster.run(&["node", "mps", action, "n0"]);

    let output = mps("start");
    assert_eq!(output.code, 2);
    assert!(output.err.contains("n0 must be drained first"), "{output:?}");
    let job = cluster.submit(&[], &["sleep", "600"]);
    cluster.until_state(job, "running");
    cluster.ok(&["node", "drain", "n0"]);
    let output = mps("start");
    assert_eq!(output.code, 2);
    assert!(
        output.err.contains(&format!("job {job} holds GPUs of n0")),
        "{output:?}"
    );
    cluster.ok(&["job", "stop", &job.to_string()]);
    cluster.until_idle();

    fs::write(cluster.path("broken"), "").unwrap();
    let output = mps("start");
    assert_eq!(output.code, 2);
    assert!(
        output.err.contains("n0: nvidia-smi: Insufficient Permissions"),
        "{output:?}"
    );
    fs::remove_file(cluster.path("broken")).unwrap();
    assert!(mps("start").out.starts_with("MPS runs on n0; "));
    assert!(pipe.join("control").exists());
    assert_eq!(mps("start").code, 0, "it runs already");
    assert_eq!(cluster.read("smi.log"), "-c EXCLUSIVE_PROCESS\n");

    // Jobs that share GPUs use it.
    cluster.ok(&["node", "resume", "n0"]);
    let line = "echo pipe $CUDA_MPS_PIPE_DIRECTORY; sleep 600";
    for stages in ["data=90ms,gpu=10ms", "data=10ms,gpu=90ms"] {
        cluster.submit(&["--stages", stages], &["sh", "-c", line]);
    }
    let expected = format!("pipe {}", pipe.display());
    cluster.until("both jobs share the GPU through MPS", |c| {
        let shares = |id: u64| {
            c.job(id)["attempts"]
                .as_array()
                .is_some_and(|attempts| attempts.last().is_some_and(|attempt| attempt["sharing"] == "mps"))
        };
        shares(job + 1) && shares(job + 2) && c.log(job + 1).contains(&expected)
    });
    cluster.ok(&["node", "drain", "n0"]);
    cluster.ok(&["job", "stop", "@mine"]);
    cluster.until_idle();
    assert!(mps("stop").out.starts_with("MPS does not run on n0"));
    assert!(!pipe.exists() || !pipe.join("control").exists());
    assert_eq!(mps("stop").code, 0, "it does not run");
    let modes = cluster.read("smi.log");
    assert!(
        modes.ends_with("-c EXCLUSIVE_PROCESS\n-c DEFAULT\n-c DEFAULT\n"),
        "{modes}"
    );
    let files = ["server/audit.db", "server/audit.db-wal"]
        .map(|name| fs::read(cluster.path(name)).unwrap_or_default());
    let audit = String::from_utf8_lossy(&files.concat()).into_owned();
    for action in ["node-mps-start", "node-mps-stop"] {
        assert!(audit.contains(action), "{action}");
    }
}

#[test]
fn a_node_without_the_programs_says_so() {
    let mut cluster = Cluster::server_only(1, "");
    cluster.agent_env = vec![("PATH", cluster.path("nothing"))];
    cluster.start_agent(0);
    cluster.until("the node has joined", |c| c.nodes().len() == 1);
    cluster.ok(&["node", "drain", "n0"]);
    for (action, program) in [("start", "nvidia-smi"), ("stop", "nvidia-smi")] {
        let output = cluster.run(&["node", "mps", action, "n0"]);
        assert_eq!(output.code, 2);
        assert!(
            output
                .err
                .contains(&format!("{program} is not installed on this node")),
            "{output:?}"
        );
    }
    assert!(
        cluster
            .run(&["node", "mps", "start", "n9"])
            .err
            .contains("unknown node \"n9\"")
    );
    cluster.kill_agent(0);
    cluster.until("the agent is gone", |c| c.nodes()[0]["connected"] == false);
    let output = cluster.run(&["node", "mps", "start", "n0"]);
    assert!(output.err.contains("not connected"), "{output:?}");
}
