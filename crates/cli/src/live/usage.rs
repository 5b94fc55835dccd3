//! `dovetail usage`.

use std::collections::BTreeMap;

use dovetail_web::views::UsageRow;

use crate::failure::Failure;
use crate::live::args::{UsageArgs, UsageBy};
use crate::live::client::{Client, block_on, query};
use crate::live::show::Listing;
use crate::show;

/// Runs `dovetail usage`.
///
/// # Errors
/// When the scheduler cannot be reached, or refuses.
pub fn run(args: &UsageArgs) -> Result<(), Failure> {
    let client = Client::open(&args.client)?;
    block_on(async {
        let mut wanted = Vec::new();
        wanted.extend(args.from.as_ref().map(|d| format!("from={}", query(d))));
        wanted.extend(args.to.as_ref().map(|d| format!("to={}", query(d))));
        let rows: Vec<UsageRow> = client.get(&format!("/api/v1/usage?{}", wanted.join("&"))).await?;
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
            none: "Nothing has been used.",
        };
        show::print(listing.text(args.output.form())?)
    })
}
