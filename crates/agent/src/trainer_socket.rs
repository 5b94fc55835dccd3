//! The unix socket that trainers connect to. Both sides send lines of JSON.
//!
//! The Python package of an older version may run in a task, so the keys of the messages do not change.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use dovetail_model::StepStage;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::error::{AgentError, IoResultExt};

/// A message of a trainer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TrainerMessage {
    /// The first message: the secret of the task and the rank of the trainer.
    Hello {
        secret: String,
        rank: u32,
        #[serde(rename = "world")]
        world_size: u32,
        /// Version of stage gates that it understands; zero for none.
        #[serde(default)]
        gates: u32,
    },
    /// The last step that is done.
    Progress {
        step: u64,
        #[serde(default)]
        total: u64,
        #[serde(default)]
        step_us: u64,
        #[serde(default)]
        data_us: u64,
        #[serde(default)]
        gpu_us: u64,
        #[serde(default)]
        net_us: u64,
        #[serde(default)]
        gate_us: u64,
        #[serde(default)]
        checkpoint: u64,
    },
    /// The last step that a stopping trainer has begun. It begins no further one until it knows when to stop.
    #[serde(rename = "at_step")]
    StepReached { step: u64 },
    /// All steps are done.
    Finished { step: u64 },
    /// It waits at the gate before a stage.
    Enter { stage: TrainerStage, step: u64 },
    /// It has done a stage.
    Leave { stage: TrainerStage, step: u64 },
    /// It has done a step; no further stage of it comes.
    Pass { step: u64 },
}

/// A stage of a step, as trainers name it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TrainerStage {
    Data,
    Gpu,
    Net,
}

impl From<TrainerStage> for StepStage {
    fn from(stage: TrainerStage) -> Self {
        match stage {
            TrainerStage::Data => Self::Data,
            TrainerStage::Gpu => Self::Gpu,
            TrainerStage::Net => Self::Network,
        }
    }
}

impl From<StepStage> for TrainerStage {
    fn from(stage: StepStage) -> Self {
        match stage {
            StepStage::Data => Self::Data,
            StepStage::Gpu => Self::Gpu,
            StepStage::Network => Self::Net,
        }
    }
}

/// A command to a trainer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TrainerCommand {
    /// Report the current step, and begin no further one.
    Stop { reason: String },
    /// Make a checkpoint and exit after this step.
    #[serde(rename = "stop_at")]
    StopAfterStep { step: u64 },
    /// Wait at stage gates from the next step on, or no longer.
    Gates {
        on: bool,
        /// How long to wait at a gate before proceeding without an answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patience_ms: Option<u64>,
    },
    /// Begin a stage; the answer to [`TrainerMessage::Enter`].
    Go { stage: TrainerStage, step: u64 },
    /// The CPU and memory of the task have changed.
    Resize { cpu_milli: u32, memory_mib: u64 },
}

/// An event of the socket. Connections are numbered.
#[derive(Debug)]
pub(crate) enum TrainerEvent {
    Connected {
        connection: u64,
        secret: String,
        rank: u32,
        world_size: u32,
        understands_gates: bool,
        commands: UnboundedSender<TrainerCommand>,
    },
    Received {
        connection: u64,
        message: TrainerMessage,
    },
    Disconnected {
        connection: u64,
    },
}

/// Maximum length of a message.
const MAX_LINE_BYTES: u64 = 4096;

/// Maximum length of the socket's path; the kernel allows 107 bytes.
const MAX_PATH_BYTES: usize = 100;

/// Returns the path of the socket: in the agent's folder, unless that path is too long.
pub(crate) fn path(configured: Option<&Path>, folder: &Path, identity: u64) -> PathBuf {
    if let Some(path) = configured {
        return path.to_owned();
    }
    let path = folder.join("agent.sock");
    if path.as_os_str().len() <= MAX_PATH_BYTES {
        return path;
    }
    std::env::temp_dir().join(format!("dovetail-{identity:016x}.sock"))
}

/// Listens for trainers.
pub(crate) fn listen(path: &Path, events: UnboundedSender<TrainerEvent>) -> Result<(), AgentError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).at(path),
        _ => {}
    }
    let listener = UnixListener::bind(path).at(path)?;
    // Tasks of all users connect; each has a secret.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).at(path)?;
    tokio::spawn(async move {
        let mut connection = 0;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    connection += 1;
                    tokio::spawn(serve(stream, connection, events.clone()));
                }
                // Usually too many open files, until other connections are closed.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
            }
            if events.is_closed() {
                return;
            }
        }
    });
    Ok(())
}

async fn serve(stream: UnixStream, connection: u64, events: UnboundedSender<TrainerEvent>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let Some(TrainerMessage::Hello {
        secret,
        rank,
        world_size,
        gates,
    }) = next(&mut reader).await
    else {
        return;
    };
    let (commands, mut queued) = unbounded_channel::<TrainerCommand>();
    let connected = TrainerEvent::Connected {
        connection,
        secret,
        rank,
        world_size,
        understands_gates: gates > 0,
        commands,
    };
    if events.send(connected).is_err() {
        return;
    }
    let receive = async {
        while let Some(message) = next(&mut reader).await {
            if events
                .send(TrainerEvent::Received { connection, message })
                .is_err()
            {
                return;
            }
        }
    };
    let send = async {
        // The agent closes the connection by dropping the sender.
        while let Some(command) = queued.recv().await {
            let Ok(mut line) = serde_json::to_vec(&command) else {
                return;
            };
            line.push(b'\n');
            if writer.write_all(&line).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = receive => {}
        () = send => {}
    }
    let _ = events.send(TrainerEvent::Disconnected { connection });
}

/// Reads the next message; `None` at the end of the connection or if the line is malformed.
async fn next(reader: &mut (impl AsyncBufRead + Unpin)) -> Option<TrainerMessage> {
    let mut line = Vec::new();
    let read = reader.take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await;
    read.ok()?;
    serde_json::from_slice(&line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Option<TrainerMessage> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { next(&mut &bytes[..]).await })
    }

    #[test]
    fn messages_have_the_keys_of_the_python_package() {
        let hello = TrainerMessage::Hello {
            secret: "s".into(),
            rank: 1,
            world_size: 2,
            gates: 0,
        };
        let line = b"{\"hello\": {\"secret\": \"s\", \"rank\": 1, \"world\": 2}}\n{}";
        assert_eq!(read(line), Some(hello));
        let line = b"{\"at_step\": {\"step\": 7}}\n";
        assert_eq!(read(line), Some(TrainerMessage::StepReached { step: 7 }));
        let line = b"{\"enter\": {\"stage\": \"gpu\", \"step\": 17}}\n";
        let stage = TrainerStage::Gpu;
        assert_eq!(read(line), Some(TrainerMessage::Enter { stage, step: 17 }));
        let line = b"{\"leave\": {\"stage\": \"gpu\", \"step\": 17, \"us\": 20312}}\n";
        assert_eq!(read(line), Some(TrainerMessage::Leave { stage, step: 17 }));
        assert_eq!(
            read(b"{\"pass\": {\"step\": 17}}\n"),
            Some(TrainerMessage::Pass { step: 17 })
        );
        let text = |command: &TrainerCommand| serde_json::to_string(command).unwrap();
        assert_eq!(
            text(&TrainerCommand::StopAfterStep { step: 3 }),
            "{\"stop_at\":{\"step\":3}}"
        );
        let on = TrainerCommand::Gates {
            on: true,
            patience_ms: Some(2000),
        };
        assert_eq!(text(&on), "{\"gates\":{\"on\":true,\"patience_ms\":2000}}");
        let off = TrainerCommand::Gates {
            on: false,
            patience_ms: None,
        };
        assert_eq!(text(&off), "{\"gates\":{\"on\":false}}");
        let stage = TrainerStage::Net;
        assert_eq!(
            text(&TrainerCommand::Go { stage, step: 17 }),
            "{\"go\":{\"stage\":\"net\",\"step\":17}}"
        );
        let resize = TrainerCommand::Resize {
            cpu_milli: 500,
            memory_mib: 64,
        };
        assert_eq!(
            text(&resize),
            "{\"resize\":{\"cpu_milli\":500,\"memory_mib\":64}}"
        );
    }

    #[test]
    fn a_line_without_end_is_not_buffered_without_limit() {
        assert_eq!(read(&vec![b'x'; 1 << 20]), None);
    }

    proptest! {
        #[test]
        fn no_message_causes_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = read(&bytes);
        }
    }
}
