//! Processes that are killed and connections that break, at random: no job is lost, no job runs twice at once, and no GPU leaks.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::harness::Cluster;

/// Pseudo-random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A job that notices a second run of itself: it holds a lock named by its ID, and writes a line at its end.
const LOCKING: &str = "exec 9> held-$DOVETAIL_JOB_ID; flock -n 9 || { echo $DOVETAIL_JOB_ID >> twice; exit 1; }; \
                        sleep 0.$((DOVETAIL_JOB_ID % 3)); echo $DOVETAIL_JOB_ID >> done";

/// Submits jobs until `stop` is set, and collects the IDs of the accepted ones.
fn submit_jobs(cluster: &Cluster, stop: &AtomicBool, accepted: &Mutex<Vec<u64>>) {
    while !stop.load(Ordering::Relaxed) {
        // A job that was rejected or got no answer need not run.
        let output = cluster.run(&["run", "--detach", "--retries", "0", "--", "sh", "-c", LOCKING]);
        if output.code == 0 {
            accepted.lock().unwrap().push(output.out.trim().parse().unwrap());
        }
        thread::sleep(Duration::from_millis(40));
    }
}

/// Asserts that every accepted job was done exactly once.
fn assert_done_once(cluster: &Cluster, accepted: &[u64]) {
    cluster.until_idle();
    assert_eq!(cluster.read("twice"), "", "jobs that ran twice at once");
    let done = cluster.read("done");
    let times: Vec<u64> = done.lines().map(|l| l.parse().unwrap()).collect();
    let once: BTreeSet<u64> = times.iter().copied().collect();
    assert_eq!(once.len(), times.len(), "jobs that were done more than once");
    let lost: Vec<&u64> = accepted.iter().filter(|id| !once.contains(id)).collect();
    assert!(lost.is_empty(), "accepted jobs that were not done: {lost:?}");
}

#[test]
fn the_server_is_killed_two_hundred_times_under_load() {
    let mut cluster = Cluster::start(2, 3, "");
    let (stop, accepted) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let mut dice = Dice(0x5eed);
    for round in 0..25 {
        let kills = 8;
        for _ in 0..kills {
            thread::scope(|scope| {
                stop.store(false, Ordering::Relaxed);
                let (cluster, stop, accepted) = (&cluster, &stop, &accepted);
                scope.spawn(move || submit_jobs(cluster, stop, accepted));
                thread::sleep(Duration::from_millis(20 + dice.below(250)));
                stop.store(true, Ordering::Relaxed);
            });
            cluster.stop_server("KILL");
            cluster.start_server();
        }
        assert!(cluster.nodes().len() == 2, "round {round}");
    }
    let accepted = accepted.into_inner().unwrap();
    assert!(accepted.len() >= 50, "too little load: {} jobs", accepted.len());
    assert_done_once(&cluster, &accepted);
    // The agents ran all the time, so no job was started a second time.
    let jobs: Vec<serde_json::Value> =
        serde_json::from_str(&cluster.ok(&["jobs", "--all", "--limit", "10000", "-o", "json"])).unwrap();
    let again: Vec<&serde_json::Value> = jobs.iter().filter(|j| j["attempt_count"] != 1).collect();
    assert!(again.is_empty(), "started more than once: {again:?}");
    println!("{} jobs over 200 kills", jobs.len());
}

#[test]
fn agents_are_killed_under_load() {
    let mut cluster = Cluster::start(3, 2, "");
    let (stop, accepted) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let mut dice = Dice(0xa6e);
    for _ in 0..20 {
        thread::scope(|scope| {
            stop.store(false, Ordering::Relaxed);
            let (cluster, stop, accepted) = (&cluster, &stop, &accepted);
            scope.spawn(move || submit_jobs(cluster, stop, accepted));
            thread::sleep(Duration::from_millis(100 + dice.below(200)));
            stop.store(true, Ordering::Relaxed);
        });
        let i = dice.below(3) as usize;
        cluster.kill_agent(i);
        thread::sleep(Duration::from_millis(dice.below(300)));
        cluster.start_agent(i);
    }
    assert_done_once(&cluster, &accepted.into_inner().unwrap());
}

#[test]
fn a_task_that_is_killed_from_outside_is_started_again() {
    let cluster = Cluster::start(1, 1, "");
    let line = "echo $$ >> pids; [ $(wc -l < pids) -ge 3 ] || sleep 1000; echo done";
    let id = cluster.submit(&[], &["sh", "-c", line]);
    for n in 1..3 {
        cluster.until("the task runs", |c| c.read("pids").lines().count() == n);
        let pid = cluster.read("pids").lines().last().unwrap().to_owned();
        let killed = std::process::Command::new("kill")
            .args(["-s", "KILL", &pid])
            .status();
        assert!(killed.unwrap().success());
    }
    cluster.until_state(id, "completed");
    let job = cluster.job(id);
    assert_eq!(job["attempt_count"], 3);
    let end = job["attempts"][0]["end"].as_str().unwrap();
    assert!(end.contains("not by the scheduler"), "{end}");
}

/// A proxy between agents and the server whose connections stall and break at random until it is calmed.
struct FaultyProxy {
    port: u16,
    calm: Arc<AtomicBool>,
}

impl FaultyProxy {
    fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let calm = Arc::new(AtomicBool::new(false));
        let is_calm = Arc::clone(&calm);
        thread::spawn(move || {
            let mut seed = 0xbad;
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                // Without a server the agent sees a connection that closes.
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else {
                    continue;
                };
                for (from, to) in [(&stream, &server), (&server, &stream)] {
                    seed += 1;
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let calm = Arc::clone(&is_calm);
                    thread::spawn(move || pump(from, to, Dice(seed * 7919), &calm));
                }
            }
        });
        Self { port, calm }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, mut dice: Dice, calm: &AtomicBool) {
    let mut buffer = [0; 512];
    while let Ok(n) = from.read(&mut buffer) {
        let is_faulty = !calm.load(Ordering::Relaxed);
        if n == 0 || (is_faulty && dice.below(60) == 0) {
            break;
        }
        if is_faulty && dice.below(10) == 0 {
            thread::sleep(Duration::from_millis(dice.below(400)));
        }
        // In two writes of any size, so that frames are split.
        let cut = if is_faulty {
            dice.below(n as u64) as usize
        } else {
            0
        };
        if to
            .write_all(&buffer[..cut])
            .and_then(|()| to.write_all(&buffer[cut..n]))
            .is_err()
        {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[test]
fn connections_that_stall_and_break_only_delay_jobs() {
    let mut cluster = Cluster::server_only(2, "lease: 3s\n");
    let proxy = FaultyProxy::start(cluster.agents_connect_to);
    cluster.agents_connect_to = proxy.port;
    for i in 0..2 {
        cluster.start_agent(i);
    }
    let (stop, accepted) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let (cluster, stop, accepted) = (&cluster, &stop, &accepted);
        scope.spawn(move || submit_jobs(cluster, stop, accepted));
        thread::sleep(Duration::from_secs(12));
        stop.store(true, Ordering::Relaxed);
    });
    proxy.calm.store(true, Ordering::Relaxed);
    let accepted = accepted.into_inner().unwrap();
    cluster.until_idle();
    assert_eq!(cluster.read("twice"), "", "jobs that ran twice at once");
    // A node may have been silent for longer than its lease: then its jobs were ended and started again, also one that
    // was done but not reported. No job is lost.
    let done: BTreeSet<u64> = cluster.read("done").lines().map(|l| l.parse().unwrap()).collect();
    let lost: Vec<&u64> = accepted.iter().filter(|id| !done.contains(id)).collect();
    assert!(
        accepted.len() >= 20 && lost.is_empty(),
        "{} accepted, lost: {lost:?}",
        accepted.len()
    );
}

#[test]
fn jobs_continue_while_the_server_is_down() {
    let mut cluster = Cluster::start(1, 2, "");
    let long = cluster.submit(
        &[],
        &[
            "sh",
            "-c",
            "echo before; while [ ! -e go ]; do sleep 0.05; done; echo after",
        ],
    );
    let short = cluster.submit(
        &[],
        &["sh", "-c", "while [ ! -e soon ]; do sleep 0.05; done; exit 4"],
    );
    cluster.until_state(long, "running");
    cluster.until_state(short, "running");
    cluster.stop_server("TERM");
    std::fs::write(cluster.path("soon"), "").unwrap();
    thread::sleep(Duration::from_millis(500));
    cluster.start_server();
    cluster.until_state(short, "failed");
    assert_eq!(cluster.state(long), "running");
    std::fs::write(cluster.path("go"), "").unwrap();
    cluster.until_state(long, "completed");
    assert_eq!(
        (cluster.job(long)["attempt_count"].clone(), cluster.log(long)),
        (1.into(), "before\nafter".to_owned())
    );
}
