//! The program that tests run as an agent (`agent SETTINGS.json`) and as a shim (`shim FOLDER [N]`), to kill it.

#![allow(clippy::print_stderr, reason = "tests read it")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use dovetail_agent::{AgentConfig, AgentError, Security};
use serde::Deserialize;

#[derive(Deserialize)]
struct Settings {
    node: String,
    server: String,
    folder: PathBuf,
    virtual_gpus: u32,
    address: Option<String>,
    token: Option<String>,
    fingerprint: Option<String>,
    log_segment_bytes: Option<u64>,
    log_keep_bytes: Option<u64>,
    keep_ended_bytes: Option<u64>,
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match args.split_first() {
        Some((first, rest)) if first == "shim" => {
            let code = dovetail_agent::shim(rest);
            ExitCode::from(u8::try_from(code).unwrap_or(1))
        }
        Some((first, [settings])) if first == "agent" => match agent(&PathBuf::from(settings)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        },
        _ => ExitCode::from(2),
    }
}

fn agent(path: &std::path::Path) -> Result<(), AgentError> {
    let invalid = |reason: String| AgentError::Config {
        field: "settings",
        reason,
    };
    let text = std::fs::read(path).map_err(|e| invalid(e.to_string()))?;
    let settings: Settings = serde_json::from_slice(&text).map_err(|e| invalid(e.to_string()))?;
    let mut config = AgentConfig::new(&settings.node, &settings.server, settings.folder);
    config.security = match settings.fingerprint {
        Some(fingerprint) => Security::CaFingerprint(fingerprint),
        None => Security::Off,
    };
    config.join_token = settings.token;
    config.virtual_gpus = Some(settings.virtual_gpus);
    config.address = settings.address;
    config.max_reconnect_delay = Duration::from_millis(200);
    config.log_segment_bytes = settings.log_segment_bytes.unwrap_or(config.log_segment_bytes);
    config.log_keep_bytes = settings.log_keep_bytes.unwrap_or(config.log_keep_bytes);
    config.keep_ended_bytes = settings.keep_ended_bytes.unwrap_or(config.keep_ended_bytes);
    let this = std::env::current_exe().map_err(|e| invalid(e.to_string()))?;
    config.shim = vec![this.into(), "shim".into()];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| invalid(e.to_string()))?;
    runtime.block_on(dovetail_agent::run(config, std::future::pending()))
}
