//! Rights of users and agents, and messages for requests that are rejected.

use std::fs;
use std::process::Command;

use dovetail_kubelab::Subprocess;

use crate::harness::{Cluster, CommandOutput, DOVETAIL};

/// Runs a command with the `client.yaml` of another user.
fn as_user(cluster: &Cluster, file: &str, args: &[&str]) -> CommandOutput {
    let mut command = cluster.command(args);
    command.env("DOVETAIL_CONFIG", cluster.path(file));
    Subprocess::output(&mut command).unwrap().into()
}

#[test]
fn a_user_can_change_only_their_own_jobs() {
    let cluster = Cluster::start(1, 2, "");
    for (name, flags) in [("ann", &[][..]), ("bob", &[][..])] {
        let args = [&["user", "add", name][..], flags].concat();
        fs::write(cluster.path(&format!("{name}.yaml")), cluster.ok(&args)).unwrap();
    }
    let ann = |args: &[&str]| as_user(&cluster, "ann.yaml", args);
    let bob = |args: &[&str]| as_user(&cluster, "bob.yaml", args);
    let output = ann(&[
        "run",
        "--detach",
        "--env",
        "PASSWORD=hush-hush",
        "--",
        "sh",
        "-c",
        "echo secret-of-ann; sleep 1000",
    ]);
    assert_eq!(output.out.trim(), "1", "{output:?}");
    let hidden = ann(&[
        "run",
        "--detach",
        "--private",
        "--name",
        "hidden",
        "--",
        "sleep",
        "1000",
    ]);
    assert_eq!(hidden.out.trim(), "2", "{hidden:?}");
    cluster.until_state(2, "running");

    for args in [["job", "stop", "1"], ["job", "hold", "1"], ["job", "logs", "1"]] {
        let output = bob(&args);
        assert!(
            output.code == 2 && output.err.contains("belongs to ann"),
            "{args:?}: {output:?}"
        );
    }
    let seen = bob(&["job", "show", "1", "-o", "json"]);
    assert!(
        seen.code == 0 && !seen.out.contains("hush-hush") && !seen.out.contains("secret-of-ann"),
        "{seen:?}"
    );
    for args in [
        ["job", "show", "2"],
        ["job", "logs", "2"],
        ["job", "stop", "hidden"],
    ] {
        let output = bob(&args);
        assert!(
            output.code == 2 && output.err.contains("unknown job"),
            "{args:?}: {output:?}"
        );
    }
    let (list, events) = (bob(&["jobs", "--all"]), bob(&["events"]));
    assert!(
        !list.out.contains("hidden") && !events.out.contains("job 2"),
        "{list:?} {events:?}"
    );
    for args in [
        &["node", "drain", "n0"][..],
        &["operate", "pause"],
        &["user", "add", "eve"],
        &["user", "list"],
    ] {
        let output = bob(args);
        assert!(
            output.code == 2 && output.err.contains("administrator"),
            "{args:?}: {output:?}"
        );
    }
    let root = bob(&[
        "submit",
        &cluster.script("root.yaml", "command: id\nrun_as: root\n"),
    ]);
    assert!(root.code == 2 && root.err.contains("run_as"), "{root:?}");

    assert_eq!(ann(&["job", "stop", "1"]).code, 0);
    cluster.ok(&["job", "stop", "2"]);
    cluster.ok(&["user", "remove", "ann"]);
    let gone = ann(&["jobs"]);
    assert!(
        gone.code == 2 && gone.err.contains("does not know this token"),
        "{gone:?}"
    );
    // The token is in no file but the client's own, and the log of the server has no secrets.
    let token = cluster.read("bob.yaml");
    let token = token
        .lines()
        .find_map(|l| l.strip_prefix("token: "))
        .unwrap()
        .to_owned();
    let found = Command::new("grep")
        .args(["-rl", &token])
        .arg(cluster.path("server"))
        .output()
        .unwrap();
    assert!(
        found.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&found.stdout)
    );
    assert!(
        !cluster.read("server.log").contains("dt_"),
        "{}",
        cluster.read("server.log")
    );
    cluster.until_idle();
}

#[test]
fn an_agent_needs_the_join_token_and_a_unique_name() {
    let cluster = Cluster::start(1, 1, "");
    let agent = |token: &str, name: &str, folder: &str| -> CommandOutput {
        let mut command = Command::new("timeout");
        command.args([
            "20",
            DOVETAIL,
            "agent",
            "--server",
            &format!("127.0.0.1:{}", cluster.agents_connect_to),
        ]);
        command
            .args(["--name", name, "--virtual-gpus", "1", "--data"])
            .arg(cluster.path(folder));
        command.env("DOVETAIL_JOIN_TOKEN", token);
        Subprocess::output(&mut command).unwrap().into()
    };
    let token = cluster.read("server/join-token");
    let token = token.trim();
    let (_, fingerprint) = token.split_once('.').unwrap();
    let wrong = agent(&format!("{}.{fingerprint}", "0".repeat(32)), "eve", "eve");
    assert!(wrong.code == 1 && wrong.err.contains("join token"), "{wrong:?}");
    let same = agent(token, "n0", "impostor");
    assert!(
        same.code == 1 && same.err.contains("another agent of the same name"),
        "{same:?}"
    );
    let nonsense = agent("hush-hush", "eve", "eve-2");
    assert!(
        nonsense.code == 2 && nonsense.err.contains("join token") && !nonsense.err.contains("hush"),
        "{nonsense:?}"
    );
    // The agent that has joined is not affected.
    let output = cluster.run(&["run", "--", "echo", "fine"]);
    assert_eq!((output.code, output.out.as_str()), (0, "fine\n"), "{output:?}");
}

#[test]
fn a_client_reports_what_is_wrong() {
    let mut cluster = Cluster::server_only(1, "");
    let file = cluster.read("server/client.yaml");
    let line = |key: &str| file.lines().find(|l| l.starts_with(key)).unwrap().to_owned();
    let wrong_token = file.replace(&line("token:"), "token: dt_0000");
    fs::write(cluster.path("wrong.yaml"), wrong_token).unwrap();
    let output = as_user(&cluster, "wrong.yaml", &["jobs"]);
    assert!(
        output.code == 2 && output.err.contains("does not know this token"),
        "{output:?}"
    );
    // The certificate of another server: the client does not send its token there.
    let other = Cluster::server_only(1, "");
    let elsewhere = file.replace(
        &line("server:"),
        other
            .read("server/client.yaml")
            .lines()
            .find(|l| l.starts_with("server:"))
            .unwrap(),
    );
    fs::write(cluster.path("elsewhere.yaml"), elsewhere).unwrap();
    let output = as_user(&cluster, "elsewhere.yaml", &["jobs"]);
    assert!(
        output.code == 1 && output.err.contains("certificate"),
        "{output:?}"
    );
    fs::write(cluster.path("bad.yaml"), "server: here\ntoken: x\n").unwrap();
    let output = as_user(&cluster, "bad.yaml", &["jobs"]);
    assert!(
        output.code == 2 && output.err.contains("https://HOST:PORT"),
        "{output:?}"
    );
    let output = as_user(&cluster, "missing.yaml", &["jobs"]);
    assert!(
        output.code == 2 && output.err.contains("missing.yaml"),
        "{output:?}"
    );
    // Without a node, jobs are accepted and wait.
    let id = cluster.submit(&["--gpus", "64"], &["true"]);
    assert!(
        cluster
            .ok(&["job", "explain", &id.to_string()])
            .contains("no node is connected")
    );
    cluster.stop_server("TERM");
    let output = cluster.run(&["jobs"]);
    assert!(
        output.code == 1 && output.err.contains("no scheduler answers"),
        "{output:?}"
    );
}

#[test]
fn a_server_does_not_start_with_files_it_cannot_read() {
    let mut cluster = Cluster::server_only(1, "");
    let id = cluster.submit(&[], &["true"]);
    let second: CommandOutput = Subprocess::output(&mut cluster.server_command()).unwrap().into();
    assert!(
        second.code == 1 && second.err.contains("cannot listen"),
        "{second:?}"
    );
    cluster.stop_server("KILL");

    let journal = fs::read_dir(cluster.path("server/journal")).unwrap();
    let journal = journal
        .map(|e| e.unwrap().path())
        .find(|p| p.extension().is_some_and(|e| e == "log"))
        .unwrap();
    let whole = fs::read(&journal).unwrap();
    let mut newer = whole.clone();
    newer[8] = 99;
    fs::write(&journal, &newer).unwrap();
    let output: CommandOutput = Subprocess::output(&mut cluster.server_command()).unwrap().into();
    assert!(
        output.code == 1 && output.err.contains("by a newer release"),
        "{output:?}"
    );
    assert_eq!(fs::read(&journal).unwrap(), newer, "the journal was changed");

    // An incomplete record at the end is removed and reported; the records before it remain.
    let mut torn = whole;
    torn.extend_from_slice(&[40, 0, 0, 0, 1, 2, 3]);
    fs::write(&journal, &torn).unwrap();
    cluster.start_server();
    assert!(
        cluster.read("server.log").contains("journal repaired"),
        "{}",
        cluster.read("server.log")
    );
    assert_eq!(cluster.state(id), "queued");

    cluster.stop_server("TERM");
    fs::write(cluster.path("server.yaml"), "polcy: fifo\n").unwrap();
    let output: CommandOutput = Subprocess::output(&mut cluster.server_command()).unwrap().into();
    assert!(
        output.code == 2 && output.err.contains("server.yaml") && output.err.contains("polcy"),
        "{output:?}"
    );
    fs::write(cluster.path("server.yaml"), "http: 0.0.0.0:1\ntls: false\n").unwrap();
    let mut open = Command::new(DOVETAIL);
    open.args(["server", "--config"])
        .arg(cluster.path("server.yaml"))
        .arg("--data")
        .arg(cluster.path("server"));
    let output: CommandOutput = Subprocess::output(&mut open).unwrap().into();
    assert!(output.code == 2 && output.err.contains("loopback"), "{output:?}");
}

#[test]
fn a_full_disk_loses_no_accepted_job() {
    let can_mount = Command::new("unshare")
        .args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    if !can_mount.is_ok_and(|out| out.status.success()) {
        dovetail_testkit::skip("only root can mount a small disk");
        return;
    }
    let mut cluster = Cluster::server_only(1, "");
    cluster.stop_server("TERM");
    let disk = cluster.path("server");
    let mount = |args: &[&str]| {
        let done = Command::new("mount").args(args).arg(&disk).status().unwrap();
        assert!(done.success());
    };
    mount(&["-t", "tmpfs", "-o", "size=256k", "none"]);
    cluster.start_server();
    let pad = "x".repeat(8_000);
    let mut accepted = Vec::new();
    let rejected = loop {
        let output = cluster.run(&["run", "--detach", "--env", &format!("PAD={pad}"), "--", "true"]);
        match output.code {
            0 => accepted.push(output.out.trim().parse::<u64>().unwrap()),
            _ => break output,
        }
        assert!(accepted.len() < 1_000, "the disk does not fill up");
    };
    assert!(
        rejected.code == 1 && rejected.err.contains("No space left on device"),
        "{rejected:?}"
    );
    // The server still answers reads, and accepts jobs when the disk has space again.
    let last = *accepted.last().unwrap();
    assert_eq!(cluster.state(last), "queued");
    mount(&["-o", "remount,size=8m"]);
    cluster.until("jobs are accepted again", |c| {
        c.run(&["run", "--detach", "--", "true"]).code == 0
    });
    cluster.stop_server("KILL");
    cluster.start_server();
    for id in accepted {
        assert_eq!(cluster.state(id), "queued", "job {id}");
    }
    cluster.stop_server("KILL");
    let done = Command::new("umount").arg(&disk).status().unwrap();
    assert!(done.success());
}
