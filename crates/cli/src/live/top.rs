//! `dovetail top`: the cluster on one screen, updated every second.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use dovetail_client::{Client, block_on};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_web::views::{ClusterView, JobPage, NodeView};

use crate::live::args::{Output, TopArgs};
use crate::live::jobs::listing;

/// Runs `dovetail top` until it is interrupted.
///
/// # Errors
/// If the scheduler is unreachable or rejects the request.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        if args.once || !std::io::stdout().is_terminal() {
            return console::print(screen(&client, usize::MAX).await?);
        }
        let mut interrupt =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()).or_work()?;
        // The alternate screen keeps the previous content of the terminal.
        print("\u{1b}[?1049h\u{1b}[?25l")?;
        let result = loop {
            let rows = comfy_table::Table::new().width().map_or(40, |_| terminal_rows());
            match screen(&client, rows).await {
                Ok(text) => print(&format!("\u{1b}[H\u{1b}[2J{text}\n"))?,
                Err(failure) => break Err(failure),
            }
            tokio::select! {
                _ = interrupt.recv() => break Ok(()),
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        };
        print("\u{1b}[?25h\u{1b}[?1049l")?;
        result
    })
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .or_work()
}

fn terminal_rows() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    size.map_or(40, |s| usize::from(s.ws_row).max(10))
}

/// One screen: the cluster in a line, its nodes as bars, its jobs.
async fn screen(client: &Client, rows: usize) -> Result<String, Failure> {
    let cluster: ClusterView = client.get("/api/v1/cluster").await?;
    let nodes: Vec<NodeView> = client.get("/api/v1/nodes").await?;
    let page: JobPage = client.get("/api/v1/jobs?state=unfinished&limit=200").await?;
    let states: Vec<String> = cluster
        .jobs
        .iter()
        .map(|(state, n)| format!("{n} {state}"))
        .collect();
    let states = if states.is_empty() {
        "no jobs".to_owned()
    } else {
        states.join(", ")
    };
    let paused = if cluster.paused { "  PAUSED" } else { "" };
    let mut lines = vec![format!(
        "dovetail  {}  policy {} ({})  {}/{} GPUs on {} nodes  {states}{paused}",
        client.server(),
        cluster.policy,
        cluster.clock,
        cluster.used_gpus,
        cluster.gpus,
        cluster.nodes
    )];
    lines.extend(cluster.journal_error.iter().map(|why| format!("JOURNAL: {why}")));
    lines.push(String::new());
    let room = (rows / 2).saturating_sub(4).max(3);
    for node in nodes.iter().filter(|n| n.state != "lost").take(room) {
        let jobs: Vec<String> = node.jobs.iter().map(ToString::to_string).collect();
        let mark = if node.connected { ' ' } else { '?' };
        lines.push(format!(
            "{mark} {:<20} {} {:>3}/{:<3} {:<9} {}",
            node.name,
            bar(node.used_gpus, node.gpus),
            node.used_gpus,
            node.gpus,
            node.state,
            jobs.join(" ")
        ));
    }
    if nodes.len() > room {
        lines.push(format!("  ... and {} more nodes", nodes.len() - room));
    }
    lines.push(String::new());
    let room = rows.saturating_sub(lines.len() + 6).max(3);
    let mut jobs = page.jobs;
    jobs.truncate(room);
    lines.push(listing(&jobs, "No active jobs.").text(Output::Table)?);
    Ok(lines.join("\n"))
}

/// `####....` of at most 32 places.
fn bar(used: u32, all: u32) -> String {
    let places = all.clamp(1, 32);
    let full = (u64::from(used) * u64::from(places)).div_ceil(u64::from(all.max(1))) as u32;
    let full = full.min(places);
    format!(
        "{}{}",
        "█".repeat(full as usize),
        "░".repeat((places - full) as usize)
    )
}
