//! Runs a command in a container over WebSocket (`v5.channel.k8s.io`, or `v4` of older servers).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{CONNECTION, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use crate::client::Client;
use crate::error::{Error, Status};
use crate::websocket::{Frames, Message, Side, accept, frame};

/// A command to run in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRequest {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Container of the pod.
    pub container: String,
    /// The command and its arguments, without a shell.
    pub command: Vec<String>,
    /// Whether the command reads input.
    pub stdin: bool,
    /// Whether the command has a terminal, which also receives standard error.
    pub tty: bool,
}

/// Channel of a message, its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Channel {
    /// Standard input.
    Stdin = 0,
    /// Standard output.
    Stdout = 1,
    /// Standard error.
    Stderr = 2,
    /// The exit status.
    Status = 3,
    /// The size of the terminal.
    Resize = 4,
    /// The end of the channel named by the next byte.
    Close = 255,
}

/// Output of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Bytes of standard output.
    Stdout(Vec<u8>),
    /// Bytes of standard error.
    Stderr(Vec<u8>),
    /// The command has ended; nothing follows.
    Ended(Ended),
}

/// Exit status of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The exit code.
    Code(i32),
    /// The command did not start or its status is unknown, with the message of the server.
    Failed(String),
}

/// A running command: [`Exec::next`] returns its output, [`Exec::input`] accepts its input.
#[derive(Debug)]
pub struct Exec {
    what: String,
    stream: ReadHalf<TokioIo<Upgraded>>,
    frames: Frames,
    input: Input,
    pongs: mpsc::Sender<Message>,
}

/// Input of a command. It may be moved to another task.
#[derive(Debug, Clone)]
pub struct Input {
    messages: mpsc::Sender<Message>,
    /// Whether the server understands the end of the input.
    ends: bool,
}

impl Input {
    /// Sends input; waits while the other side is behind. Returns false if the connection is closed.
    pub async fn write(&self, bytes: &[u8]) -> bool {
        self.send(Channel::Stdin, bytes).await
    }

    /// Ends the input. Returns false if the server does not support it, as those before Kubernetes 1.30.
    pub async fn end(&self) -> bool {
        if self.ends {
            self.send(Channel::Close, &[Channel::Stdin as u8]).await;
        }
        self.ends
    }

    /// Sets the size of the terminal.
    pub async fn resize(&self, columns: u16, rows: u16) {
        let size = format!(r#"{{"Width":{columns},"Height":{rows}}}"#);
        self.send(Channel::Resize, size.as_bytes()).await;
    }

    async fn send(&self, channel: Channel, bytes: &[u8]) -> bool {
        let mut message = vec![channel as u8];
        message.extend_from_slice(bytes);
        self.messages.send(Message::Data(message)).await.is_ok()
    }
}

impl Client {
    /// Runs a command in a container of a pod.
    ///
    /// # Errors
    /// When the server refuses the request, or does not upgrade the connection.
    pub async fn exec(&self, request: &ExecRequest) -> Result<Exec, Error> {
        let path = request.path();
        let what = format!("exec in {}/{}", request.namespace, request.pod);
        let key = STANDARD.encode(random::<16>());
        let headers = [
            (CONNECTION.as_str(), "Upgrade"),
            (UPGRADE.as_str(), "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", &key),
            ("sec-websocket-protocol", "v5.channel.k8s.io, v4.channel.k8s.io"),
        ];
        let response = self.upgrade(&path, &headers).await?;
        let unreadable = |why: String| Error::Unreadable {
            what: what.clone(),
            why,
        };
        let header = |name: &str| {
            let value = response.headers().get(name).and_then(|v| v.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        if header("sec-websocket-accept") != accept(&key) {
            return Err(unreadable("the response is not a WebSocket handshake".to_owned()));
        }
        let protocol = header("sec-websocket-protocol");
        let ends = match protocol.as_str() {
            "v5.channel.k8s.io" => true,
            "v4.channel.k8s.io" => false,
            other => {
                return Err(unreadable(format!(
                    "unknown protocol {other:?}; expected v5.channel.k8s.io or v4.channel.k8s.io"
                )));
            }
        };
        let upgraded = hyper::upgrade::on(response).await;
        let upgraded = upgraded.map_err(|e| unreadable(e.to_string()))?;
        let (stream, sink) = tokio::io::split(TokioIo::new(upgraded));
        let (messages, queued_messages) = mpsc::channel(4);
        let (pongs, queued_pongs) = mpsc::channel(4);
        tokio::spawn(write_messages(sink, queued_messages, queued_pongs));
        Ok(Exec {
            what,
            stream,
            frames: Frames::new(Side::Server),
            input: Input { messages, ends },
            pongs,
        })
    }
}

impl ExecRequest {
    fn path(&self) -> String {
        let (stdin, tty) = (self.stdin, self.tty);
        let mut path = format!(
            "/api/v1/namespaces/{}/pods/{}/exec?container={}&stdin={stdin}&stdout=true&stderr={}&tty={tty}",
            escaped(&self.namespace),
            escaped(&self.pod),
            escaped(&self.container),
            // A terminal has one output.
            !tty
        );
        for word in &self.command {
            path.push_str("&command=");
            path.push_str(&escaped(word));
        }
        path
    }
}

/// Percent-encodes a text for a URL.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system provides random numbers");
    bytes
}

/// Sends messages, pongs first. It is a separate task, so that receiving never waits for sending.
async fn write_messages(
    mut sink: WriteHalf<TokioIo<Upgraded>>,
    mut messages: mpsc::Receiver<Message>,
    mut pongs: mpsc::Receiver<Message>,
) {
    loop {
        let message = tokio::select! {
            biased;
            Some(pong) = pongs.recv() => pong,
            Some(message) = messages.recv() => message,
            else => return,
        };
        let bytes = frame(&message, Some(random()));
        let written = async {
            sink.write_all(&bytes).await?;
            sink.flush().await
        };
        // The receiving side notices a closed connection.
        if written.await.is_err() || matches!(message, Message::Close(..)) {
            return;
        }
    }
}

#[derive(Deserialize)]
struct Outcome {
    #[serde(default)]
    status: String,
    #[serde(default)]
    details: Option<Details>,
    #[serde(flatten)]
    refusal: Status,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    causes: Vec<Cause>,
}

#[derive(Deserialize)]
struct Cause {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// Parses the status message.
fn parse_status(json: &[u8]) -> Result<Ended, serde_json::Error> {
    let outcome: Outcome = serde_json::from_slice(json)?;
    if outcome.status == "Success" {
        return Ok(Ended::Code(0));
    }
    let causes = outcome.details.into_iter().flat_map(|d| d.causes);
    let code = causes
        .filter(|cause| cause.reason == "ExitCode")
        .find_map(|cause| cause.message.parse().ok());
    Ok(match code {
        Some(code) if outcome.refusal.reason == "NonZeroExitCode" => Ended::Code(code),
        _ => Ended::Failed(outcome.refusal.message),
    })
}

impl Exec {
    /// Returns the input of the command.
    pub fn input(&self) -> Input {
        self.input.clone()
    }

    /// Returns the next output, or the exit status.
    ///
    /// # Errors
    /// When the connection breaks before the command has ended.
    pub async fn next(&mut self) -> Result<Output, Error> {
        loop {
            let message = self
                .frames
                .message()
                .map_err(|e| self.unreadable(e.to_string()))?;
            match message {
                Some(Message::Data(bytes)) => {
                    if let Some(output) = self.decode(bytes)? {
                        return Ok(output);
                    }
                }
                // If the queue is full, the connection is not idle.
                Some(Message::Ping(bytes)) => drop(self.pongs.try_send(Message::Pong(bytes))),
                Some(Message::Pong(_)) => {}
                Some(Message::Close(code, reason)) => {
                    let reason = if reason.is_empty() { "no reason" } else { &reason };
                    return Err(self.closed(&format!("code {code}, {reason}")));
                }
                None => self.read().await?,
            }
        }
    }

    async fn read(&mut self) -> Result<(), Error> {
        let mut bytes = vec![0; 16 << 10];
        match self.stream.read(&mut bytes).await {
            Ok(0) => Err(self.closed("no close message")),
            Ok(count) => {
                self.frames.feed(&bytes[..count]);
                Ok(())
            }
            Err(error) => Err(self.closed(&error.to_string())),
        }
    }

    fn decode(&mut self, mut bytes: Vec<u8>) -> Result<Option<Output>, Error> {
        const STDOUT: u8 = Channel::Stdout as u8;
        const STDERR: u8 = Channel::Stderr as u8;
        const STATUS: u8 = Channel::Status as u8;
        if bytes.len() < 2 {
            // Empty messages at the start show that the connection is open.
            return Ok(None);
        }
        let rest = bytes.split_off(1);
        match bytes[0] {
            STDOUT => Ok(Some(Output::Stdout(rest))),
            STDERR => Ok(Some(Output::Stderr(rest))),
            STATUS => {
                let ended =
                    parse_status(&rest).map_err(|e| self.unreadable(format!("invalid status: {e}")))?;
                let _ = self.pongs.try_send(Message::Close(1000, String::new()));
                Ok(Some(Output::Ended(ended)))
            }
            // The server closes a channel, or uses a later version.
            _ => Ok(None),
        }
    }

    fn unreadable(&self, why: String) -> Error {
        Error::Unreadable {
            what: self.what.clone(),
            why,
        }
    }

    fn closed(&self, how: &str) -> Error {
        Error::Unreachable {
            what: self.what.clone(),
            why: format!("the connection was closed before the command ended ({how})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_part_of_the_path() {
        let request = ExecRequest {
            namespace: "vision".to_owned(),
            pod: "train-0".to_owned(),
            container: "main".to_owned(),
            command: ["sh", "-c", "echo a&b %", "é"].map(str::to_owned).to_vec(),
            stdin: true,
            tty: false,
        };
        assert_eq!(
            request.path(),
            "/api/v1/namespaces/vision/pods/train-0/exec?container=main&stdin=true&stdout=true&stderr=true&tty=false\
             &command=sh&command=-c&command=echo%20a%26b%20%25&command=%C3%A9"
        );
        let terminal = ExecRequest { tty: true, ..request };
        assert!(terminal.path().contains("&stderr=false&tty=true"));
    }

    #[test]
    fn the_exit_code_is_read_from_the_status() {
        assert_eq!(
            parse_status(br#"{"metadata":{},"status":"Success"}"#).unwrap(),
            Ended::Code(0)
        );
        let failed =
            br#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code",
            "reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
        assert_eq!(parse_status(failed).unwrap(), Ended::Code(3));
        let never =
            br#"{"status":"Failure","message":"no such container","reason":"InternalError","code":500}"#;
        assert_eq!(
            parse_status(never).unwrap(),
            Ended::Failed("no such container".to_owned())
        );
        let odd = br#"{"status":"Failure","message":"odd","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"x"}]}}"#;
        assert_eq!(parse_status(odd).unwrap(), Ended::Failed("odd".to_owned()));
        assert!(parse_status(b"nonsense").is_err());
    }
}
