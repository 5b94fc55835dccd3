//! A command in a container: what it reads and prints, over WebSocket (`v5.channel.k8s.io`, or `v4` of older servers).

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

/// What to run, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRequest {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// Its container.
    pub container: String,
    /// The command and its arguments; no shell looks at them.
    pub command: Vec<String>,
    /// Whether it gets input.
    pub stdin: bool,
    /// Whether it has a terminal; errors are printed there, too.
    pub tty: bool,
}

/// Channels of a message: its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Channel {
    /// What the command reads.
    Stdin = 0,
    /// What it prints.
    Stdout = 1,
    /// What it prints of errors.
    Stderr = 2,
    /// How it ended.
    Status = 3,
    /// The size of the terminal.
    Resize = 4,
    /// Nothing more comes on the channel of the next byte.
    Close = 255,
}

/// Something that was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// The command has printed this.
    Stdout(Vec<u8>),
    /// The command has printed this as an error.
    Stderr(Vec<u8>),
    /// The command is over; nothing follows.
    Ended(Ended),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With this code.
    Code(i32),
    /// It did not start, or nobody knows: what the server says.
    Failed(String),
}

/// A command that runs. What it prints is heard here; what it reads is said through [`Exec::input`].
#[derive(Debug)]
pub struct Exec {
    what: String,
    stream: ReadHalf<TokioIo<Upgraded>>,
    frames: Frames,
    input: Input,
    pongs: mpsc::Sender<Message>,
}

/// The way to what a command reads. It may be given to another task.
#[derive(Debug, Clone)]
pub struct Input {
    messages: mpsc::Sender<Message>,
    /// Whether the end of the input can be said.
    ends: bool,
}

impl Input {
    /// What the command reads next; whether anybody still listens. Waits while the other side is behind.
    pub async fn write(&self, bytes: &[u8]) -> bool {
        self.say(Channel::Stdin, bytes).await
    }

    /// There is no more to read; whether the server can be told, which those before Kubernetes 1.30 cannot.
    pub async fn end(&self) -> bool {
        if self.ends {
            self.say(Channel::Close, &[Channel::Stdin as u8]).await;
        }
        self.ends
    }

    /// The terminal has this size now.
    pub async fn resize(&self, columns: u16, rows: u16) {
        let size = format!(r#"{{"Width":{columns},"Height":{rows}}}"#);
        self.say(Channel::Resize, size.as_bytes()).await;
    }

    async fn say(&self, channel: Channel, bytes: &[u8]) -> bool {
        let mut message = vec![channel as u8];
        message.extend_from_slice(bytes);
        self.messages.send(Message::Data(message)).await.is_ok()
    }
}

impl Client {
    /// Runs a command in a container of a pod.
    ///
    /// # Errors
    /// As the server says.
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
            return Err(unreadable("it is not WebSocket".to_owned()));
        }
        let protocol = header("sec-websocket-protocol");
        let ends = match protocol.as_str() {
            "v5.channel.k8s.io" => true,
            "v4.channel.k8s.io" => false,
            other => {
                return Err(unreadable(format!(
                    "protocol {other:?}; expected v5.channel.k8s.io or v4.channel.k8s.io"
                )));
            }
        };
        let upgraded = hyper::upgrade::on(response).await;
        let upgraded = upgraded.map_err(|e| unreadable(e.to_string()))?;
        let (stream, sink) = tokio::io::split(TokioIo::new(upgraded));
        let (messages, to_say) = mpsc::channel(4);
        let (pongs, to_answer) = mpsc::channel(4);
        tokio::spawn(speak(sink, to_say, to_answer));
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

/// Bytes that mean something in an address are written as numbers.
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
        .expect("the system has random numbers, without which there is no TLS either");
    bytes
}

/// Sends messages, answers to pings first. On its own, so that what is heard never waits for what is said.
async fn speak(
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
        let said = async {
            sink.write_all(&bytes).await?;
            sink.flush().await
        };
        // Whoever listens notices that the line is cut.
        if said.await.is_err() || matches!(message, Message::Close(..)) {
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
    said: Status,
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

/// What the last message says.
fn outcome(json: &[u8]) -> Result<Ended, String> {
    let outcome: Outcome = serde_json::from_slice(json).map_err(|e| format!("its status: {e}"))?;
    if outcome.status == "Success" {
        return Ok(Ended::Code(0));
    }
    let causes = outcome.details.into_iter().flat_map(|d| d.causes);
    let code = causes
        .filter(|cause| cause.reason == "ExitCode")
        .find_map(|cause| cause.message.parse().ok());
    Ok(match code {
        Some(code) if outcome.said.reason == "NonZeroExitCode" => Ended::Code(code),
        _ => Ended::Failed(outcome.said.message),
    })
}

impl Exec {
    /// The way to what the command reads.
    pub fn input(&self) -> Input {
        self.input.clone()
    }

    /// What the command prints next, or how it ended.
    ///
    /// # Errors
    /// When the line breaks before the command is over.
    pub async fn next(&mut self) -> Result<Output, Error> {
        loop {
            let message = self
                .frames
                .message()
                .map_err(|e| self.unreadable(e.to_string()))?;
            match message {
                Some(Message::Data(bytes)) => {
                    if let Some(output) = self.heard(bytes)? {
                        return Ok(output);
                    }
                }
                // If so many wait already, the line is not idle.
                Some(Message::Ping(bytes)) => drop(self.pongs.try_send(Message::Pong(bytes))),
                Some(Message::Pong(_)) => {}
                Some(Message::Close(code, reason)) => {
                    let reason = if reason.is_empty() { "no reason" } else { &reason };
                    return Err(self.broken(&format!("code {code}, {reason}")));
                }
                None => self.read().await?,
            }
        }
    }

    async fn read(&mut self) -> Result<(), Error> {
        let mut bytes = vec![0; 16 << 10];
        match self.stream.read(&mut bytes).await {
            Ok(0) => Err(self.broken("without a word")),
            Ok(count) => {
                self.frames.feed(&bytes[..count]);
                Ok(())
            }
            Err(error) => Err(self.broken(&error.to_string())),
        }
    }

    fn heard(&mut self, mut bytes: Vec<u8>) -> Result<Option<Output>, Error> {
        const STDOUT: u8 = Channel::Stdout as u8;
        const STDERR: u8 = Channel::Stderr as u8;
        const STATUS: u8 = Channel::Status as u8;
        if bytes.len() < 2 {
            // Empty ones come at the start, to show that the line is open.
            return Ok(None);
        }
        let rest = bytes.split_off(1);
        match bytes[0] {
            STDOUT => Ok(Some(Output::Stdout(rest))),
            STDERR => Ok(Some(Output::Stderr(rest))),
            STATUS => {
                let ended = outcome(&rest).map_err(|why| self.unreadable(why))?;
                let _ = self.pongs.try_send(Message::Close(1000, String::new()));
                Ok(Some(Output::Ended(ended)))
            }
            // The other side closes a channel, or says something of a later version.
            _ => Ok(None),
        }
    }

    fn unreadable(&self, why: String) -> Error {
        Error::Unreadable {
            what: self.what.clone(),
            why,
        }
    }

    fn broken(&self, how: &str) -> Error {
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
    fn a_command_is_part_of_the_address() {
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
    fn how_a_command_ended_is_in_its_status() {
        assert_eq!(
            outcome(br#"{"metadata":{},"status":"Success"}"#),
            Ok(Ended::Code(0))
        );
        let failed =
            br#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code",
            "reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
        assert_eq!(outcome(failed), Ok(Ended::Code(3)));
        let never =
            br#"{"status":"Failure","message":"no such container","reason":"InternalError","code":500}"#;
        assert_eq!(outcome(never), Ok(Ended::Failed("no such container".to_owned())));
        let odd = br#"{"status":"Failure","message":"odd","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"x"}]}}"#;
        assert_eq!(outcome(odd), Ok(Ended::Failed("odd".to_owned())));
        assert!(outcome(b"nonsense").is_err());
    }
}
