//! `dovetail events`.

use dovetail_client::{Client, block_on};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_web::views::EventView;

use crate::live::args::EventsArgs;
use crate::live::jobs;
use crate::live::show::clock;

/// Runs `dovetail events`.
///
/// # Errors
/// If the scheduler is unreachable or rejects the request.
pub fn run(args: &EventsArgs) -> Result<(), Failure> {
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let mut path = format!("/api/v1/events?since={}&follow={}", args.since, args.follow);
        if let Some(selector) = &args.job {
            let ids = jobs::select(&client, selector).await?;
            let [id] = ids.as_slice() else {
                return Err(Failure::request(format!(
                    "--job: {selector} selects several jobs: expected one"
                )));
            };
            path += &format!("&job={id}");
        }
        let mut events = client.lines(&path).await?;
        while let Some(event) = events.event::<EventView>().await? {
            let of = event.job.map(|job| format!("job {job}")).unwrap_or_default();
            console::print(match args.json {
                true => serde_json::to_string(&event).or_work()?,
                false => format!(
                    "{:>6} {} {of:<9} {:<16} {}",
                    event.number,
                    clock(event.at),
                    event.kind,
                    event.text
                )
                .trim_end()
                .to_owned(),
            })?;
        }
        Ok(())
    })
}
