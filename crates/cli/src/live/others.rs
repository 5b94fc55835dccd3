//! `nodes`, `node`, `events`, `usage`, `operate` and `user`.

use std::collections::BTreeMap;

use dovetail_control::{Operate, PolicyText};
use dovetail_model::Time;
use dovetail_web::views::{
    Because, ClusterView, EventView, NewUser, NodeView, Operation, Token, UsageRow, UserView,
};

use crate::failure::{Blame, Failure};
use crate::live::agent::pairs;
use crate::live::args::{
    EventsArgs, NodeCommand, NodesArgs, OperateCommand, Output, UsageArgs, UsageBy, UserCommand,
};
use crate::live::client::{Client, ClientFile, block_on, query};
use crate::live::show::{Listing, clock, now, span, watch};
use crate::live::{jobs, settings};
use crate::show;

/// A table of nodes.
pub fn node_listing(nodes: &Vec<NodeView>) -> Listing<'_, Vec<NodeView>> {
    let now = now();
    let row = |node: &NodeView| {
        let state = match (node.connected, node.state.as_str()) {
            (false, "up" | "draining") => format!("{} (silent)", node.state),
            _ => node.state.clone(),
        };
        let jobs: Vec<String> = node.jobs.iter().map(ToString::to_string).collect();
        vec![
            node.name.clone(),
            state,
            format!("{}/{}", node.used_gpus, node.gpus),
            node.gpu_type.clone(),
            format!("{}", node.cpu_milli / 1000),
            format!("{:.1} GiB", node.memory_mib as f64 / 1024.0),
            jobs.join(" "),
            node.detail.clone(),
            node.rack.clone(),
            node.address.clone(),
            span(now.since(node.since)),
        ]
    };
    Listing {
        headings: &[
            "Node",
            "State",
            "GPUs used",
            "Type",
            "CPUs",
            "Memory",
            "Jobs",
            "Detail",
            "Rack",
            "Address",
            "Since",
        ],
        narrow: 8,
        rows: nodes.iter().map(row).collect(),
        value: nodes,
        none: "No node has joined yet; `dovetail agent` on a node makes it join.",
    }
}

/// Runs `dovetail nodes`.
///
/// # Errors
/// When the scheduler cannot be reached, or refuses.
pub fn nodes(args: &NodesArgs) -> Result<(), Failure> {
    let client = Client::open(&args.client)?;
    let (client, form) = (&client, args.output.form());
    block_on(watch(args.watch, || async move {
        let nodes: Vec<NodeView> = client.get("/api/v1/nodes").await?;
        node_listing(&nodes).text(form)
    }))
}

/// Runs `dovetail node ...`.
///
/// # Errors
/// When the scheduler cannot be reached, or refuses.
pub fn node(command: &NodeCommand) -> Result<(), Failure> {
    let (client, name, action, why) = match command {
        NodeCommand::Drain { name, why, client } => (client, name, "drain", why.clone()),
        NodeCommand::Resume { name, client } => (client, name, "resume", String::new()),
    };
    let client = Client::open(client)?;
    block_on(async {
        let path = format!("/api/v1/nodes/{}/{action}", query(name));
        let node: NodeView = client.post(&path, &Because { why }).await?;
        let rest = match (node.state.as_str(), node.jobs.len()) {
            ("draining", 0) => "; nothing runs on it".to_owned(),
            ("draining", n) => format!("; {n} jobs still run on it"),
            _ => String::new(),
        };
        show::print(format!("{} is {}{rest}", node.name, node.state))
    })
}

/// Runs `dovetail events`.
///
/// # Errors
/// When the scheduler cannot be reached, or refuses.
pub fn events(args: &EventsArgs) -> Result<(), Failure> {
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

/// Runs `dovetail usage`.
///
/// # Errors
/// When the scheduler cannot be reached, or refuses.
pub fn usage(args: &UsageArgs) -> Result<(), Failure> {
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

/// Runs `dovetail operate ...`.
///
/// # Errors
/// When the scheduler cannot be reached, or refuses.
pub fn operate(command: &OperateCommand) -> Result<(), Failure> {
    let (client, operate, form) = match command {
        OperateCommand::Policy { name, parts, client } => {
            let text = PolicyText {
                policy: name.clone(),
                parts: pairs(parts, "--part")?,
            };
            (client, Some(Operate::Policy(text)), Output::Table)
        }
        OperateCommand::Round { length, client } => {
            let round = match length.as_str() {
                "events" => None,
                text => Some(Time::from_secs_f64(settings::span(text, "round")?)),
            };
            (client, Some(Operate::Round(round)), Output::Table)
        }
        OperateCommand::Pause(client) => (client, Some(Operate::Pause), Output::Table),
        OperateCommand::Resume(client) => (client, Some(Operate::Resume), Output::Table),
        OperateCommand::Show { output, client } => (client, None, output.form()),
    };
    let client = Client::open(client)?;
    block_on(async {
        let cluster: ClusterView = match operate {
            Some(operate) => client.post("/api/v1/operate", &Operation { operate }).await?,
            None => client.get("/api/v1/cluster").await?,
        };
        show::print(match form {
            Output::Json => serde_json::to_string_pretty(&cluster).or_work()?,
            Output::Yaml => serde_saphyr::to_string(&cluster).or_work()?,
            Output::Table | Output::Wide | Output::Csv => {
                let parts: Vec<String> = cluster.parts.iter().map(|(k, v)| format!(", {k} {v}")).collect();
                let paused = if cluster.paused {
                    " Scheduling is paused."
                } else {
                    ""
                };
                format!(
                    "Policy {}{}; decides by {}.{paused}",
                    cluster.policy,
                    parts.join(""),
                    cluster.clock
                )
            }
        })
    })
}

/// Runs `dovetail user ...`.
///
/// # Errors
/// When the scheduler cannot be reached, or refuses.
pub fn user(command: &UserCommand) -> Result<(), Failure> {
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
