//! `dovetail nodes` and `dovetail node ...`.

use dovetail_client::{Client, block_on, percent_encode};
use dovetail_console::{self as console, Failure};
use dovetail_web::views::{DrainRequest, NodeView};

use crate::live::args::{MpsCommand, NodeCommand, NodesArgs};
use crate::live::show::{Listing, now, span, watch};

/// Returns a table of nodes.
fn listing(nodes: &Vec<NodeView>) -> Listing<'_, Vec<NodeView>> {
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
        none: "No nodes have joined; start `dovetail agent` on a node.",
    }
}

/// Runs `dovetail nodes`.
///
/// # Errors
/// If the scheduler is unreachable or rejects the request.
pub fn list(args: &NodesArgs) -> Result<(), Failure> {
    let client = Client::open(args.client.config.as_deref())?;
    let (client, form) = (&client, args.output.form());
    block_on(watch(args.watch, || async move {
        let nodes: Vec<NodeView> = client.get("/api/v1/nodes").await?;
        listing(&nodes).text(form)
    }))
}

/// Runs `dovetail node ...`.
///
/// # Errors
/// If the scheduler is unreachable or rejects the request.
pub fn act(command: &NodeCommand) -> Result<(), Failure> {
    let (client, name, action, why) = match command {
        NodeCommand::Mps(command) => return switch_mps(command),
        NodeCommand::Drain { name, why, client } => (client, name, "drain", why.clone()),
        NodeCommand::Resume { name, client } => (client, name, "resume", String::new()),
    };
    let client = Client::open(client.config.as_deref())?;
    block_on(async {
        let path = format!("/api/v1/nodes/{}/{action}", percent_encode(name));
        let node: NodeView = client.post(&path, &DrainRequest { reason: why }).await?;
        let rest = match (node.state.as_str(), node.jobs.len()) {
            ("draining", 0) => "; no jobs run on it".to_owned(),
            ("draining", 1) => "; 1 job still runs on it".to_owned(),
            ("draining", n) => format!("; {n} jobs still run on it"),
            _ => String::new(),
        };
        console::print(format!("{} is {}{rest}", node.name, node.state))
    })
}

fn switch_mps(command: &MpsCommand) -> Result<(), Failure> {
    let (args, action, done) = match command {
        MpsCommand::Start(args) => (args, "mps-start", "MPS runs"),
        MpsCommand::Stop(args) => (args, "mps-stop", "MPS does not run"),
    };
    let client = Client::open(args.client.config.as_deref())?;
    block_on(async {
        let path = format!("/api/v1/nodes/{}/{action}", percent_encode(&args.name));
        let node: NodeView = client.post(&path, &DrainRequest::default()).await?;
        let rest = match node.state.as_str() {
            "draining" => format!("; `dovetail node resume {}` starts jobs again", node.name),
            _ => String::new(),
        };
        console::print(format!("{done} on {}{rest}", node.name))
    })
}
