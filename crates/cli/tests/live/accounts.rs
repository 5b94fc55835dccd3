//! Who may do what, and what is said to those who ask for what cannot be.

use std::fs;
use std::process::Command;

use crate::harness::{Cluster, DOVETAIL, Said};

/// A command by another user.
fn as_user(cluster: &Cluster, file: &str, args: &[&str]) -> Said {
    let mut command = cluster.command(args);
    command.env("DOVETAIL_CONFIG", cluster.path(file));
    command.output().unwrap().into()
}

#[test]
fn a_user_touches_its_own_jobs_alone() {
    let cluster = Cluster::start(1, 2, "");
    for (name, flags) in [("ann", &[][..]), ("bob", &[][..])] {
        let args = [&["user", "add", name][..], flags].concat();
        fs::write(cluster.path(&format!("{name}.yaml")), cluster.ok(&args)).unwrap();
    }
    let ann = |args: &[&str]| as_user(&cluster, "ann.yaml", args);
    let bob = |args: &[&str]| as_user(&cluster, "bob.yaml", args);
    let said = ann(&[
        "run",
        "--detach",
        "--env",
        "PASSWORD=hush-hush",
        "--",
        "sh",
        "-c",
        "echo secret-of-ann; sleep 1000",
    ]);
    assert_eq!(said.out.trim(), "1", "{said:?}");
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
        let said = bob(&args);
        assert!(
            said.code == 2 && said.err.contains("belongs to ann"),
            "{args:?}: {said:?}"
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
        let said = bob(&args);
        assert!(
            said.code == 2 && said.err.contains("unknown job"),
            "{args:?}: {said:?}"
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
        let said = bob(args);
        assert!(
            said.code == 2 && said.err.contains("administrator"),
            "{args:?}: {said:?}"
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
    // No token in any file but the client's own, and no secret in what the server says.
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
fn an_agent_needs_the_token_and_a_name_of_its_own() {
    let cluster = Cluster::start(1, 1, "");
    let agent = |token: &str, name: &str, folder: &str| -> Said {
        let mut command = Command::new("timeout");
        command.args([
            "20",
            DOVETAIL,
            "agent",
            "--server",
            &format!("127.0.0.1:{}", cluster.dial),
        ]);
        command
            .args(["--name", name, "--virtual-gpus", "1", "--data"])
            .arg(cluster.path(folder));
        command.env("DOVETAIL_JOIN_TOKEN", token).output().unwrap().into()
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
    // Whoever is there goes on undisturbed.
    let said = cluster.say(&["run", "--", "echo", "fine"]);
    assert_eq!((said.code, said.out.as_str()), (0, "fine\n"), "{said:?}");
}

#[test]
fn a_client_says_what_is_wrong() {
    let mut cluster = Cluster::server_only(1, "");
    let file = cluster.read("server/client.yaml");
    let line = |key: &str| file.lines().find(|l| l.starts_with(key)).unwrap().to_owned();
    let wrong_token = file.replace(&line("token:"), "token: dt_0000");
    fs::write(cluster.path("wrong.yaml"), wrong_token).unwrap();
    let said = as_user(&cluster, "wrong.yaml", &["jobs"]);
    assert!(
        said.code == 2 && said.err.contains("does not know this token"),
        "{said:?}"
    );
    // Someone else's certificate: the client sends its token to nobody it does not know.
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
    let said = as_user(&cluster, "elsewhere.yaml", &["jobs"]);
    assert!(said.code == 1 && said.err.contains("certificate"), "{said:?}");
    fs::write(cluster.path("bad.yaml"), "server: here\ntoken: x\n").unwrap();
    let said = as_user(&cluster, "bad.yaml", &["jobs"]);
    assert!(
        said.code == 2 && said.err.contains("https://HOST:PORT"),
        "{said:?}"
    );
    let said = as_user(&cluster, "missing.yaml", &["jobs"]);
    assert!(said.code == 2 && said.err.contains("missing.yaml"), "{said:?}");
    // Without a node everything is taken, and waits.
    let id = cluster.submit(&["--gpus", "64"], &["true"]);
    assert!(
        cluster
            .ok(&["job", "explain", &id.to_string()])
            .contains("no node is connected")
    );
    cluster.stop_server("TERM");
    let said = cluster.say(&["jobs"]);
    assert!(
        said.code == 1 && said.err.contains("no scheduler answers"),
        "{said:?}"
    );
}

#[test]
fn a_server_does_not_start_on_what_it_cannot_read() {
    let mut cluster = Cluster::server_only(1, "");
    let id = cluster.submit(&[], &["true"]);
    let second: Said = cluster.server_command().output().unwrap().into();
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
    let said: Said = cluster.server_command().output().unwrap().into();
    assert!(
        said.code == 1 && said.err.contains("by a newer release"),
        "{said:?}"
    );
    assert_eq!(fs::read(&journal).unwrap(), newer, "nothing was touched");

    // A tail that was cut off is mended, with a word; what is before it is there.
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
    let said: Said = cluster.server_command().output().unwrap().into();
    assert!(
        said.code == 2 && said.err.contains("server.yaml") && said.err.contains("polcy"),
        "{said:?}"
    );
    fs::write(cluster.path("server.yaml"), "http: 0.0.0.0:1\ntls: false\n").unwrap();
    let mut open = Command::new(DOVETAIL);
    open.args(["server", "--config"])
        .arg(cluster.path("server.yaml"))
        .arg("--data")
        .arg(cluster.path("server"));
    let said: Said = open.output().unwrap().into();
    assert!(said.code == 2 && said.err.contains("loopback"), "{said:?}");
}

#[test]
fn a_full_disk_loses_nothing_that_was_promised() {
    let can_mount = Command::new("unshare")
        .args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"])
        .output();
    if !can_mount.is_ok_and(|out| out.status.success()) {
        eprintln!("SKIPPED: only root can mount a small disk");
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
    let mut taken = Vec::new();
    let refused = loop {
        let said = cluster.say(&["run", "--detach", "--env", &format!("PAD={pad}"), "--", "true"]);
        match said.code {
            0 => taken.push(said.out.trim().parse::<u64>().unwrap()),
            _ => break said,
        }
        assert!(taken.len() < 1_000, "the disk never fills");
    };
    assert!(
        refused.code == 1 && refused.err.contains("No space left on device"),
        "{refused:?}"
    );
    // It is still there for those who look, and goes on when there is room again.
    let last = *taken.last().unwrap();
    assert_eq!(cluster.state(last), "queued");
    mount(&["-o", "remount,size=8m"]);
    cluster.until("there is room again", |c| {
        c.say(&["run", "--detach", "--", "true"]).code == 0
    });
    cluster.stop_server("KILL");
    cluster.start_server();
    for id in taken {
        assert_eq!(cluster.state(id), "queued", "job {id}");
    }
    cluster.stop_server("KILL");
    let done = Command::new("umount").arg(&disk).status().unwrap();
    assert!(done.success());
}
