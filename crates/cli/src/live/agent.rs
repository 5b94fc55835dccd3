//! `dovetail agent`: the program on every node.

use std::collections::BTreeMap;

use anyhow::Context;
use dovetail_agent::AgentConfig;
use dovetail_client::{block_on, data_folder};
use dovetail_console::{Failure, OrFailure};
use dovetail_server::host_name;
use tokio::signal::unix::{SignalKind, signal};

use crate::live::args::AgentArgs;

/// Parses `KEY=VALUE` pairs.
///
/// # Errors
/// Names the flag and the invalid value.
pub fn pairs(texts: &[String], flag: &str) -> Result<BTreeMap<String, String>, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Failure::request(format!(
            "{flag}: invalid value {text:?}: expected KEY=VALUE"
        ))),
    };
    texts.iter().map(pair).collect()
}

/// Runs the agent until a signal arrives; its tasks continue.
///
/// # Errors
/// If a setting is invalid, the folder is not usable, or the scheduler rejects the node.
pub fn run(args: &AgentArgs) -> Result<(), Failure> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .init();
    let folder = match &args.data {
        Some(folder) => folder.clone(),
        None => data_folder()?.join("agent"),
    };
    let folder = std::path::absolute(folder).or_request()?;
    let name = args.name.clone().or_else(host_name);
    let name = name.ok_or_else(|| Failure::request("this machine has no host name; set one with --name"))?;
    let server = args.server.trim_start_matches("https://").trim_end_matches('/');
    let mut config = AgentConfig::new(&name, server, folder.clone());
    let token = match &args.token_file {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .with_context(|| format!("{}", path.display()))
                .or_request()?,
        ),
        None => args.token.clone(),
    };
    config = match token {
        Some(token) => config.with_join_token(&token).or_request()?,
        None if folder.join("ca.pem").exists() => config,
        None => {
            return Err(Failure::request(
                "a node needs the join token when it joins for the first time: --token-file FILE (the server has it in \
                 its folder as join-token)",
            ));
        }
    };
    config.virtual_gpus = args.virtual_gpus;
    config.address = args.address.clone();
    config.rack = args.rack.clone();
    config.labels = pairs(&args.labels, "--label")?;
    config.cgroup = args.cgroup.clone();
    config.images = args.images.into();
    config.container_runtime = args.container_runtime.clone();
    block_on(async {
        let mut terminate = signal(SignalKind::terminate()).or_work()?;
        let mut interrupt = signal(SignalKind::interrupt()).or_work()?;
        let until = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        dovetail_agent::run(config, until).await.or_work()
    })
}
