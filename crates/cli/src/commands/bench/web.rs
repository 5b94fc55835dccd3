//! `dovetail bench web`: a million jobs of the past behind a real socket, a job of a thousand tasks, a log of ten gigabytes,
//! and a thousand pages that watch.

use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use dovetail_control::{Arrival, Backend, Driver, Handle, LogPiece, LogRequest, Order};
use dovetail_model::{NodeId, NodeSpec};
use dovetail_web::{ApiConfig, Audit, Nodes, Tls, Users};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use super::live::{Row, config, job, print};
use crate::args::BenchArgs;
use crate::failure::{Blame, Failure};
use crate::scratch::Scratch;

const JOBS: usize = 1_000_000;
const TASKS: usize = 1_000;
const PAGES: usize = 1_000;
const LOG_BYTES: u64 = 10_000_000_000;

/// Nobody starts anything: only what the API shows is measured.
struct Post(watch::Sender<u64>);

impl Backend for Post {
    fn orders(&mut self, _orders: Vec<(NodeId, Order)>) {}

    fn noticed(&mut self, last: u64) {
        self.0.send_replace(last);
    }
}

/// Agents that only have a log, in a folder of this machine.
struct OneLog(watch::Receiver<u64>, PathBuf);

impl Nodes for OneLog {
    fn is_connected(&self, _node: NodeId) -> bool {
        true
    }

    fn read_log(&self, request: &LogRequest) -> Result<mpsc::Receiver<LogPiece>, String> {
        let (data, offset) =
            dovetail_node::read_log(&self.1, request.offset, 1 << 20).map_err(|e| e.to_string())?;
        let (sender, receiver) = mpsc::channel(2);
        for piece in [LogPiece::Data { data, offset }, LogPiece::End] {
            sender.try_send(piece).map_err(|e| e.to_string())?;
        }
        Ok(receiver)
    }

    fn notices(&self) -> watch::Receiver<u64> {
        self.0.clone()
    }

    fn trouble(&self) -> Option<String> {
        None
    }
}

/// Measures and shows.
///
/// # Errors
/// When a socket or a file cannot be used.
pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .or_work()?;
    let jobs = if args.short { JOBS / 10 } else { JOBS };
    let rows = runtime.block_on(measure(jobs))?;
    print(args, &rows)
}

async fn measure(jobs: usize) -> Result<Vec<Row>, Failure> {
    let dir = Scratch::new("bench-web")?;
    let (driver, handle, _) = Driver::open(&config(dir.0.join("journal"))).or_work()?;
    let (sender, notices) = watch::channel(0);
    let driving = driver.spawn(Post(sender));
    let past = handle.clone();
    tokio::task::spawn_blocking(move || make_past(&past, jobs))
        .await
        .or_work()??;
    let log = dir.0.join("log");
    make_log(&log).or_work()?;
    let users = Arc::new(Users::open(&dir.0.join("users.json")).or_work()?);
    let token = users.add("bench", true).or_work()?;
    let audit = Arc::new(Audit::open(&dir.0.join("audit.jsonl")).or_work()?);
    let router = dovetail_web::router(
        handle.clone(),
        Arc::new(OneLog(notices, log)),
        Arc::clone(&users),
        audit,
        ApiConfig::default(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.or_work()?;
    let page = Page {
        port: listener.local_addr().or_work()?.port(),
        token,
    };
    let served = tokio::spawn(dovetail_web::serve(
        listener,
        Tls::Off,
        router,
        std::future::pending(),
    ));
    let mut rows = Vec::new();
    let filters = [
        "the newest 100",
        "one user",
        "part of a name",
        "wide jobs, widest first",
        "by GPU time",
        "a label",
        "live ones",
    ];
    let queries = [
        "",
        "?user=user-7",
        "?q=sweep-77",
        "?gpus_min=8&sort=-gpus",
        "?sort=-gpu_seconds&state=cancelled",
        "?label=kind=3",
        "?state=live",
    ];
    for (what, query) in filters.iter().zip(queries) {
        let seconds = page.median(&format!("/api/v1/jobs{query}"), 5).await?;
        let what = format!("list of {jobs} jobs: {what}");
        rows.push(Row::new(what, seconds * 1e3, "ms", 300.0, false));
    }
    let somebody = Page {
        token: users.add("somebody", false).or_work()?,
        port: page.port,
    };
    let seconds = somebody.median("/api/v1/jobs?q=sweep-77", 5).await?;
    let what = format!("list of {jobs} jobs: part of a name, for somebody who is no administrator");
    rows.push(Row::new(what, seconds * 1e3, "ms", 300.0, false));
    let wide = handle.read(|book| book.jobs_up().next().map(|job| job.no));
    let wide = wide.ok_or_else(|| Failure::Work(anyhow!("the wide job has not started")))?;
    let seconds = page.median(&format!("/api/v1/jobs/{wide}"), 5).await?;
    rows.push(Row::new(
        format!("a job of {TASKS} tasks"),
        seconds * 1e3,
        "ms",
        1000.0,
        false,
    ));
    let log = format!("/api/v1/jobs/{wide}/logs?node=node-0&tail=200");
    let seconds = page.median(&log, 5).await?;
    let what = format!("the last 200 lines of a log of {} GB", LOG_BYTES / 1_000_000_000);
    rows.push(Row::new(what, seconds * 1e3, "ms", 100.0, false));
    rows.extend(page.watchers(&handle).await?);
    served.abort();
    let _ = tokio::task::spawn_blocking(move || {
        let _ = handle.shut_down().wait();
        drop(handle);
        driving.join()
    })
    .await;
    Ok(rows)
}

/// Jobs that came and were stopped, and one that is on a thousand nodes.
fn make_past(handle: &Handle, jobs: usize) -> Result<(), Failure> {
    for i in 0..jobs {
        let mut request = job(1 + (i % 16) as u32);
        request.hold = true;
        request.name = format!("sweep-{}", i % 1_000);
        request.labels.insert("kind".to_owned(), (i % 10).to_string());
        handle.submit(&format!("user-{}", i % 100), request).then(|_| {});
    }
    for no in 1..=jobs as u64 {
        handle.cancel(no, "bench").then(|_| {});
    }
    for i in 0..TASKS {
        let arrival = Arrival {
            spec: NodeSpec::plain(format!("node-{i}"), 1),
            gpu_type: "virtual".to_owned(),
            rack: String::new(),
            address: "127.0.0.1".to_owned(),
            identity: i as u64,
        };
        handle.node_arrives(arrival).wait().or_work()?;
    }
    let wide = handle.submit("bench", job(TASKS as u32)).wait().or_work()?;
    let started = handle.task_started(wide, 1, NodeId(0), String::new(), Vec::new());
    started.wait().or_work()
}

/// A log with a hole in it: it is as long as it says, and takes no room.
fn make_log(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut file = std::fs::File::create(folder.join("log.0"))?;
    file.set_len(LOG_BYTES)?;
    file.seek(SeekFrom::End(0))?;
    for i in 0..1_000 {
        writeln!(file, "step {i} of 1000, loss 0.125")?;
    }
    Ok(())
}

/// CPU time this process has used.
fn cpu_time() -> f64 {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

struct Page {
    port: u16,
    token: String,
}

impl Page {
    async fn ask(&self, path: &str, stay: bool) -> Result<TcpStream, Failure> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.or_work()?;
        let (token, how) = (&self.token, if stay { "keep-alive" } else { "close" });
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: {how}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.or_work()?;
        Ok(stream)
    }

    /// The median time of so many requests.
    async fn median(&self, path: &str, times: usize) -> Result<f64, Failure> {
        let mut seconds = Vec::new();
        for _ in 0..times {
            let begin = Instant::now();
            let mut stream = self.ask(path, false).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.or_work()?;
            if !answer.starts_with(b"HTTP/1.1 200") {
                let text = String::from_utf8_lossy(&answer[..answer.len().min(300)]).into_owned();
                return Err(Failure::Work(anyhow!("{path}: {text}")));
            }
            seconds.push(begin.elapsed().as_secs_f64());
        }
        seconds.sort_unstable_by(f64::total_cmp);
        Ok(seconds[times / 2])
    }

    /// Pages that watch, and something that happens: until the last of them knows.
    async fn watchers(&self, handle: &Handle) -> Result<Vec<Row>, Failure> {
        let mut pages = Vec::new();
        for _ in 0..PAGES {
            let mut stream = self.ask("/api/v1/events?follow=true", true).await?;
            let mut head = [0u8; 4096];
            let _ = stream.read(&mut head).await.or_work()?;
            pages.push(stream);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        const CHANGES: usize = 20;
        let (mut worst, cpu, begin) = (0.0f64, cpu_time(), Instant::now());
        for _ in 0..CHANGES {
            let mut request = job(1);
            request.hold = true;
            let changed = Instant::now();
            handle.submit("bench", request).then(|_| {});
            let waits = pages.drain(..).map(|mut stream| {
                tokio::spawn(async move {
                    let mut piece = [0u8; 4096];
                    loop {
                        let n = stream.read(&mut piece).await.unwrap_or(0);
                        // A hold is the last that is told of a job that waits.
                        if n == 0 || piece[..n].windows(6).any(|w| w == b"\"held\"") {
                            return stream;
                        }
                    }
                })
            });
            let waits: Vec<_> = waits.collect();
            for wait in waits {
                pages.push(wait.await.or_work()?);
            }
            worst = worst.max(changed.elapsed().as_secs_f64());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let cores = (cpu_time() - cpu) / begin.elapsed().as_secs_f64();
        let each = (cpu_time() - cpu) / CHANGES as f64;
        Ok(vec![
            Row::new(
                format!("{PAGES} pages know of a change: the last of them"),
                worst * 1e3,
                "ms",
                1000.0,
                false,
            ),
            Row::new(
                format!("CPU for a change that {PAGES} pages hear of, pages included"),
                each * 1e3,
                "ms",
                1000.0,
                false,
            ),
            Row::new(
                format!(
                    "cores used at {:.0} changes a second, pages included",
                    CHANGES as f64 / begin.elapsed().as_secs_f64()
                ),
                cores,
                "",
                1.0,
                false,
            ),
        ])
    }
}
