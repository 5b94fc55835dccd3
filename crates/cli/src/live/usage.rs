//! `dovetail usage`.

use std::collections::BTreeMap;

use dovetail_client::{Client, block_on, percent_encode};
use dovetail_console::{self as console, Failure};
use dovetail_web::views::UsageRow;

use crate::live::args::{UsageArgs, UsageBy};
use crate::live::show::Listing;
use crate::live::utilization;

/// Runs `dovetail usage`.
///
/// # Errors
/// If the scheduler is unreachable or rejects the request.
pub fn run(args: &UsageArgs) -> Result<(), Failure> {
    if let Some(interval) = &args.interval {
        return utilization::run(args, interval);
    }
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let mut query = Vec::new();
        query.extend(args.from.as_ref().map(|d| format!("from={}", percent_encode(d))));
        query.extend(args.to.as_ref().map(|d| format!("to={}", percent_encode(d))));
        let rows: Vec<UsageRow> = client.get(&format!("/api/v1/usage?{}", query.join("&"))).await?;
        let key = |row: &UsageRow| match args.by {
            UsageBy::User => vec![row.user.clone()],
            UsageBy::Tenant => vec![row.tenant.clone()],
            UsageBy::Day => vec![row.day.clone()],
            UsageBy::All => vec![row.day.clone(), row.user.clone(), row.tenant.clone()],
        };
        let mut sums: BTreeMap<Vec<String>, (f64, u64)> = BTreeMap::new();
        for row in &rows {
            let sum = sums.entry(key(row)).or_default();
            sum.0 += row.gpu_hours;
            sum.1 += row.jobs;
        }
        let headings: &[&str] = match args.by {
            UsageBy::User => &["User", "GPU-hours", "Jobs"],
            UsageBy::Tenant => &["Tenant", "GPU-hours", "Jobs"],
            UsageBy::Day => &["Day", "GPU-hours", "Jobs"],
            UsageBy::All => &["Day", "User", "Tenant", "GPU-hours", "Jobs"],
        };
        let row = |(key, (hours, jobs)): (Vec<String>, (f64, u64))| {
            key.into_iter()
                .chain([format!("{hours:.4}"), jobs.to_string()])
                .collect()
        };
        let listing = Listing {
            headings,
            narrow: headings.len(),
            rows: sums.into_iter().map(row).collect(),
            value: &rows,
            none: "No usage recorded.",
        };
        console::print(listing.text(args.output.form())?)
    })
}
