//! Trainers talk to the agent through a unix socket, a line of JSON each way.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::error::{At, NodeError};

/// What a trainer says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromTrainer {
    /// First of all: the secret of its task and which rank it is.
    Hello { secret: String, rank: u32, world: u32 },
    /// The last step that is done.
    Progress {
        step: u64,
        #[serde(default)]
        total: u64,
        #[serde(default)]
        step_us: u64,
        #[serde(default)]
        checkpoint: u64,
    },
    /// It has begun this step, and begins no other before it is told when to stop.
    AtStep { step: u64 },
    /// It is through with all steps.
    Finished { step: u64 },
}

/// What a trainer is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToTrainer {
    /// It is to stop soon.
    Stop { reason: String },
    /// It is to stop after this step.
    StopAt { step: u64 },
}

/// What happens on the socket. Connections are counted.
#[derive(Debug)]
pub(crate) enum TrainerEvent {
    Arrived {
        connection: u64,
        secret: String,
        rank: u32,
        world: u32,
        replies: UnboundedSender<ToTrainer>,
    },
    Said {
        connection: u64,
        what: FromTrainer,
    },
    Left {
        connection: u64,
    },
}

/// A line is never longer than this.
const MOST_BYTES: u64 = 4096;

/// A path for a socket has to be short.
const LONGEST_PATH: usize = 100;

/// Where the socket is: in the agent's folder, unless that is too deep down.
pub(crate) fn place(given: Option<&Path>, folder: &Path, identity: u64) -> PathBuf {
    if let Some(path) = given {
        return path.to_owned();
    }
    let path = folder.join("agent.sock");
    if path.as_os_str().len() <= LONGEST_PATH {
        return path;
    }
    std::env::temp_dir().join(format!("dovetail-{identity:016x}.sock"))
}

/// Listens for trainers.
pub(crate) fn listen(path: &Path, events: UnboundedSender<TrainerEvent>) -> Result<(), NodeError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).at(path),
        _ => {}
    }
    let listener = UnixListener::bind(path).at(path)?;
    // Tasks of all users come here; each has a secret.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).at(path)?;
    tokio::spawn(async move {
        let mut connection = 0;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    connection += 1;
                    tokio::spawn(serve(stream, connection, events.clone()));
                }
                // Too many open files: others will close theirs.
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
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading);
    let Some(FromTrainer::Hello { secret, rank, world }) = next(&mut reading).await else {
        return;
    };
    let (replies, mut to_say) = unbounded_channel::<ToTrainer>();
    let arrived = TrainerEvent::Arrived {
        connection,
        secret,
        rank,
        world,
        replies,
    };
    if events.send(arrived).is_err() {
        return;
    }
    let talk = async {
        while let Some(what) = next(&mut reading).await {
            if events.send(TrainerEvent::Said { connection, what }).is_err() {
                return;
            }
        }
    };
    let answer = async {
        // The agent closes the connection by forgetting it.
        while let Some(word) = to_say.recv().await {
            let Ok(mut line) = serde_json::to_vec(&word) else {
                return;
            };
            line.push(b'\n');
            if writing.write_all(&line).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = talk => {}
        () = answer => {}
    }
    let _ = events.send(TrainerEvent::Left { connection });
}

/// The next line that makes sense; nothing at the end, or if it makes none.
async fn next(reading: &mut (impl AsyncBufRead + Unpin)) -> Option<FromTrainer> {
    let mut line = Vec::new();
    let read = reading.take(MOST_BYTES).read_until(b'\n', &mut line).await;
    read.ok()?;
    serde_json::from_slice(&line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Option<FromTrainer> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { next(&mut &bytes[..]).await })
    }

    #[test]
    fn lines_are_as_the_python_package_writes_them() {
        let hello = FromTrainer::Hello {
            secret: "s".into(),
            rank: 1,
            world: 2,
        };
        let line = b"{\"hello\": {\"secret\": \"s\", \"rank\": 1, \"world\": 2}}\n{}";
        assert_eq!(read(line), Some(hello));
        let line = b"{\"at_step\": {\"step\": 7}}\n";
        assert_eq!(read(line), Some(FromTrainer::AtStep { step: 7 }));
        let stop = serde_json::to_string(&ToTrainer::StopAt { step: 3 }).unwrap();
        assert_eq!(stop, "{\"stop_at\":{\"step\":3}}");
    }

    #[test]
    fn a_line_without_end_is_not_gathered_for_ever() {
        assert_eq!(read(&vec![b'x'; 1 << 20]), None);
    }

    proptest! {
        #[test]
        fn nothing_a_trainer_says_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = read(&bytes);
        }
    }
}
