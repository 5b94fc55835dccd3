//! `dovetail user ...`.

use dovetail_client::{Client, ClientFile, block_on, percent_encode};
use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_web::views::{AccountView, NewUser, NewUserSecrets};

use crate::live::args::UserCommand;
use crate::live::show::Listing;

/// Runs `dovetail user ...`.
///
/// # Errors
/// If the scheduler is unreachable or rejects the request.
pub fn run(command: &UserCommand) -> Result<(), Failure> {
    match command {
        UserCommand::Add { name, admin, client } => {
            let own = ClientFile::find(client.config.as_deref())?;
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
            // The file goes to standard output, the password to the terminal.
            if let Some(password) = secrets.password {
                eprintln!("password of {name} for the page (shown once): {password}");
            }
            console::print(serde_saphyr::to_string(&file).or_work()?.trim_end())
        }
        UserCommand::Remove { name, client } => {
            let client = Client::open(client.config.as_deref())?;
            block_on(client.delete(&format!("/api/v1/users/{}", percent_encode(name))))?;
            console::print(format!("user {name} removed"))
        }
        UserCommand::List { output, client } => {
            let client = Client::open(client.config.as_deref())?;
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
            console::print(listing.text(output.form())?)
        }
    }
}

fn role_word(role: dovetail_web::Role) -> String {
    let word = serde_json::to_value(role).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}
