//! `dovetail user ...`.

use dovetail_web::views::{AccountView, NewUser, NewUserSecrets};

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
                ..NewUser::default()
            };
            let secrets: NewUserSecrets = block_on(client.post("/api/v1/users", &new))?;
            let file = ClientFile {
                token: secrets.token,
                ..own
            };
            // The file goes to standard output; the password to whoever looks on.
            if let Some(password) = secrets.password {
                eprintln!("The password of {name} for the page, shown once: {password}");
            }
            show::print(serde_saphyr::to_string(&file).or_work()?.trim_end())
        }
        UserCommand::Remove { name, client } => {
            let client = Client::open(client)?;
            block_on(client.delete(&format!("/api/v1/users/{}", query(name))))?;
            show::print(format!("user {name} is removed"))
        }
        UserCommand::List { output, client } => {
            let client = Client::open(client)?;
            let users: Vec<AccountView> = block_on(client.get("/api/v1/users"))?;
            let row = |user: &AccountView| {
                let role = if user.admin { "administrator" } else { "user" };
                let roles = user
                    .roles
                    .iter()
                    .map(|(vc, role)| format!("{vc}: {}", role_word(*role)));
                vec![
                    user.name.clone(),
                    role.to_owned(),
                    roles.collect::<Vec<_>>().join(", "),
                    user.email.clone(),
                ]
            };
            let listing = Listing {
                headings: &["User", "Role", "In virtual clusters", "Mail"],
                narrow: 3,
                rows: users.iter().map(row).collect(),
                value: &users,
                none: "No users.",
            };
            show::print(listing.text(output.form())?)
        }
    }
}

fn role_word(role: dovetail_web::Role) -> String {
    let word = serde_json::to_value(role).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}
