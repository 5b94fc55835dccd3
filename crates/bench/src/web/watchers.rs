//! Pages that follow events.

use std::time::{Duration, Instant};

use dovetail_cluster::Handle;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::http::HttpClient;
use crate::BenchError;
use crate::error::StepResult;
use crate::live::job_request;
use crate::measurement::{GoalMeasurement, process_cpu_seconds};

const PAGES: usize = 1_000;
const CHANGES: usize = 20;

/// Measures how long it takes until all pages have received a change, and what that costs.
pub(super) async fn measure(
    client: &HttpClient,
    handle: &Handle,
) -> Result<Vec<GoalMeasurement>, BenchError> {
    let mut pages = Vec::new();
    for _ in 0..PAGES {
        pages.push(client.stream("/api/v1/events?follow=true").await?);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (mut worst, cpu, start) = (0.0f64, process_cpu_seconds(), Instant::now());
    for _ in 0..CHANGES {
        let changed = Instant::now();
        let mut request = job_request(1);
        request.hold = true;
        handle.submit("bench", request).then(|_| {});
        pages = receive_change(pages).await?;
        worst = worst.max(changed.elapsed().as_secs_f64());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (cpu, seconds) = (process_cpu_seconds() - cpu, start.elapsed().as_secs_f64());
    Ok(vec![
        GoalMeasurement::below(
            format!("change received by {PAGES} pages: the last of them"),
            worst * 1e3,
            "ms",
            1000.0,
        ),
        GoalMeasurement::below(
            format!("CPU of a change received by {PAGES} pages, pages included"),
            cpu / CHANGES as f64 * 1e3,
            "ms",
            1000.0,
        ),
        GoalMeasurement::below(
            format!(
                "cores used at {:.0} changes per second, pages included",
                CHANGES as f64 / seconds
            ),
            cpu / seconds,
            "",
            1.0,
        ),
    ])
}

/// Waits until every page has received the event of a held job, which is the last event of its submission.
async fn receive_change(pages: Vec<TcpStream>) -> Result<Vec<TcpStream>, BenchError> {
    let waiting: Vec<_> = pages
        .into_iter()
        .map(|mut page| {
            tokio::spawn(async move {
                let mut piece = [0u8; 4096];
                loop {
                    let n = page.read(&mut piece).await.unwrap_or(0);
                    if n == 0 || piece[..n].windows(6).any(|w| w == b"\"held\"") {
                        return page;
                    }
                }
            })
        })
        .collect();
    let mut pages = Vec::new();
    for page in waiting {
        pages.push(page.await.step("read an event stream")?);
    }
    Ok(pages)
}
