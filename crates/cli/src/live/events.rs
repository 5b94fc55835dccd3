//! `dovetail events`.

use dovetail_web::views::EventView;

use crate::failure::{Blame, Failure};
use crate::live::args::EventsArgs;
use crate::live::client::{Client, block_on};
use crate::live::jobs;
use crate::live::show::clock;
use crate::show;

/// Runs `dovetail events`.
///
/// # Errors
/// When the scheduler cannot be reached, or refuses.
pub fn run(args: &EventsArgs) -> Result<(), Failure> {
    let client = Client::open(&args.client)?;
    block_on(async {
        let mut path = format!("/api/v1/events?since={}&follow={}", args.since, args.follow);
        if let Some(word) = &args.job {
            let ids = jobs::select(&client, word).await?;
            let [id] = ids.as_slice() else {
                return Err(Failure::request(format!(
                    "--job: {word} is several jobs; expected one"
                )));
            };
            path += &format!("&job={id}");
        }
        let mut events = client.lines(&path).await?;
        while let Some(event) = events.event::<EventView>().await? {
            let of = event.job.map(|job| format!("job {job}")).unwrap_or_default();
            show::print(match args.json {
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
