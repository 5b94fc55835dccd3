//! `dovetail user ...`.

use dovetail_web::views::{NewUser, Token, UserView};

use crate::failure::{Blame, Failure};
use crate::live::args::UserCommand;
use crate::live::client::{Client, ClientFile, block_on, query};
use crate::live::show::Listing;
use crate::show;

/// Runs `dovetail user ...`.
///
/// # Errors
/// When the scheduler cannot be reached, or refuses.
pub fn run(command: &UserCommand) -> Result<(), Failure> {
    match command {
        UserCommand::Add { name, admin, client } => {
            let own = ClientFile::find(client)?;
            let client = Client::new(&own)?;
            let new = NewUser {
                name: name.clone(),
                admin: *admin,
            };
            let token: Token = block_on(client.post("/api/v1/users", &new))?;
            let file = ClientFile {
                token: token.token,
                ..own
            };
            show::print(serde_saphyr::to_string(&file).or_work()?.trim_end())
        }
        UserCommand::Remove { name, client } => {
            let client = Client::open(client)?;
            block_on(client.delete(&format!("/api/v1/users/{}", query(name))))?;
            show::print(format!("user {name} is removed"))
        }
        UserCommand::List { output, client } => {
            let client = Client::open(client)?;
            let users: Vec<UserView> = block_on(client.get("/api/v1/users"))?;
            let row = |user: &UserView| {
                let role = if user.admin { "administrator" } else { "user" };
                vec![user.name.clone(), role.to_owned()]
            };
            let listing = Listing {
                headings: &["User", "Role"],
                narrow: 2,
                rows: users.iter().map(row).collect(),
                value: &users,
                none: "No users.",
            };
            show::print(listing.text(output.form())?)
        }
    }
}
