//! Commands in simulated containers: each runs as a process on this machine and is served over WebSocket, like a kubelet does.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use dovetail_kubeapi::{Channel, Frames, Message, Side, accept, frame};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use rustls::{ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::Subprocess;

type Stream = BufReader<StreamOwned<ServerConnection, TcpStream>>;

/// A request to run a command in a container.
pub(crate) struct ExecRequest {
    /// Namespace, pod and container.
    container: [String; 3],
    command: Vec<String>,
    stdin: bool,
    tty: bool,
    key: String,
    protocols: Vec<String>,
}

/// Read timeout of the socket, after which the output of the process is forwarded.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

impl ExecRequest {
    pub(crate) fn new(container: [&str; 3], query: &str, headers: &BTreeMap<String, String>) -> Self {
        let parameter = |name: &str| -> Vec<String> {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let matching = pairs.filter(|(key, _)| *key == name);
            matching.map(|(_, value)| unescape(value)).collect()
        };
        let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
        Self {
            container: container.map(str::to_owned),
            command: parameter("command"),
            stdin: parameter("input") == ["1"],
            tty: parameter("tty") == ["1"],
            key: header("sec-websocket-key"),
            protocols: header("sec-websocket-protocol")
                .split(',')
                .map(|p| p.trim().to_owned())
                .collect(),
        }
    }
}

/// Decodes a query parameter.
fn unescape(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, more @ ..] = rest {
        rest = more;
        match (first, more) {
            (b'+', _) => out.push(b' '),
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                let number = std::str::from_utf8(&digits)
                    .ok()
                    .and_then(|d| u8::from_str_radix(d, 16).ok());
                out.push(number.unwrap_or(b'?'));
                rest = after;
            }
            _ => out.push(*first),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Output of the process, from the threads that read it.
enum ProcessOutput {
    Printed(Channel, Vec<u8>),
    /// One of its outputs has ended.
    Ended,
}

/// A running command with its standard streams.
struct Process {
    child: Subprocess,
    stdin: Option<Input>,
    output: mpsc::Receiver<ProcessOutput>,
    /// Number of outputs that have not ended.
    open_outputs: usize,
    terminal: Option<File>,
}

enum Input {
    Pipe(ChildStdin),
    Terminal(File),
}

impl Input {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.write_all(bytes).and_then(|()| pipe.flush()),
            Self::Terminal(file) => file.write_all(bytes),
        }
    }
}

fn forward(channel: Channel, mut from: impl Read + Send + 'static, to: mpsc::Sender<ProcessOutput>) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 8192];
        // A terminal reports its end as an error.
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let _ = to.send(ProcessOutput::Printed(channel, bytes[..count].to_vec()));
        }
        let _ = to.send(ProcessOutput::Ended);
    });
}

impl Process {
    fn start(request: &ExecRequest) -> std::io::Result<Self> {
        let missing = std::io::Error::other("missing command");
        let (program, words) = request.command.split_first().ok_or(missing)?;
        let [namespace, pod, container] = &request.container;
        let mut command = Command::new(program);
        command
            .args(words)
            .env("KUBELAB_CONTAINER", format!("{namespace}/{pod}/{container}"));
        let (sender, output) = mpsc::channel();
        if request.tty {
            let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
            grantpt(&master)?;
            unlockpt(&master)?;
            let name = ptsname(&master, Vec::new())?;
            let path = name.to_string_lossy().into_owned();
            let side = || File::options().read(true).write(true).open(&path);
            command.stdin(side()?).stdout(side()?).stderr(side()?);
            let child = Subprocess::spawn(&mut command)?;
            // Closes our copies of the terminal, so that it ends with the process.
            drop(command);
            let terminal = File::from(master);
            forward(Channel::Stdout, terminal.try_clone()?, sender);
            return Ok(Self {
                child,
                stdin: Some(Input::Terminal(terminal.try_clone()?)),
                output,
                open_outputs: 1,
                terminal: Some(terminal),
            });
        }
        let input = if request.stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        };
        let streams = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Subprocess::spawn(streams)?;
        if let Some(out) = child.stdout.take() {
            forward(Channel::Stdout, out, sender.clone());
        }
        if let Some(err) = child.stderr.take() {
            forward(Channel::Stderr, err, sender);
        }
        Ok(Self {
            stdin: child.stdin.take().map(Input::Pipe),
            child,
            output,
            open_outputs: 2,
            terminal: None,
        })
    }

    /// Handles a message of the client.
    fn receive(&mut self, message: &[u8]) {
        match message {
            [0, bytes @ ..] => {
                // The process may have closed its standard input.
                let _ = self.stdin.as_mut().map(|to| to.write(bytes));
            }
            [4, size @ ..] => {
                let size: Value = serde_json::from_slice(size).unwrap_or_default();
                let number = |key: &str| size[key].as_u64().and_then(|n| u16::try_from(n).ok());
                if let (Some(terminal), Some(columns), Some(rows)) =
                    (&self.terminal, number("Width"), number("Height"))
                {
                    let size = Winsize {
                        ws_row: rows,
                        ws_col: columns,
                        ws_xpixel: 0,
                        ws_ypixel: 0,
                    };
                    let _ = tcsetwinsize(terminal, size);
                }
            }
            [255, 0] => drop(self.stdin.take()),
            _ => {}
        }
    }
}

/// Serves the WebSocket until the command has ended or the client has disconnected.
pub(crate) fn serve(mut stream: Stream, request: &ExecRequest, is_pre_1_30: bool) -> std::io::Result<()> {
    let supported: &[&str] = match is_pre_1_30 {
        true => &["v4.channel.k8s.io"],
        false => &["v5.channel.k8s.io", "v4.channel.k8s.io"],
    };
    let protocol = supported
        .iter()
        .find(|p| request.protocols.iter().any(|a| a == *p));
    let protocol = protocol.copied().unwrap_or_default();
    let response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\
         Sec-WebSocket-Protocol: {protocol}\r\n\r\n",
        accept(&request.key)
    );
    let mut frames = Frames::new(Side::Client);
    frames.feed(stream.buffer());
    let stream = stream.get_mut();
    stream.write_all(response.as_bytes())?;
    // Kubelets send an empty message to show that the connection works.
    send(stream, &Message::Data(vec![Channel::Stdout as u8]))?;
    send(stream, &Message::Ping(b"ping".to_vec()))?;
    let status = match Process::start(request) {
        Ok(mut process) => {
            stream.sock.set_read_timeout(Some(POLL_INTERVAL))?;
            if exchange(stream, &mut frames, &mut process).is_err() {
                let _ = process.child.kill();
            }
            let exit_status = process.child.wait()?;
            command_status(exit_status.code().unwrap_or(-1))
        }
        Err(error) => json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
            "message": format!("{}: {error}", request.command.join(" "))}),
    };
    let mut last = vec![Channel::Status as u8];
    last.extend(status.to_string().into_bytes());
    send(stream, &Message::Data(last))?;
    send(stream, &Message::Close(1000, String::new()))?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// Returns the status object in which a kubelet reports the exit code of a command.
fn command_status(code: i32) -> Value {
    match code {
        0 => json!({"metadata": {}, "status": "Success"}),
        code => json!({"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}}),
    }
}

fn send(stream: &mut impl Write, message: &Message) -> std::io::Result<()> {
    stream.write_all(&frame(message, None))?;
    stream.flush()
}

/// Forwards messages in both directions until all outputs of the process have ended.
fn exchange<S: Read + Write>(
    stream: &mut S,
    frames: &mut Frames,
    process: &mut Process,
) -> std::io::Result<()> {
    let mut bytes = vec![0; 8192];
    while process.open_outputs > 0 {
        while let Ok(output) = process.output.try_recv() {
            match output {
                ProcessOutput::Ended => process.open_outputs -= 1,
                ProcessOutput::Printed(channel, printed) => {
                    let mut message = vec![channel as u8];
                    message.extend(printed);
                    send(stream, &Message::Data(message))?;
                }
            }
        }
        match stream.read(&mut bytes) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => frames.feed(&bytes[..count]),
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            Err(e) => return Err(e),
        }
        while let Some(message) = frames.message().map_err(std::io::Error::other)? {
            match message {
                Message::Data(message) => process.receive(&message),
                Message::Ping(bytes) => send(stream, &Message::Pong(bytes))?,
                Message::Pong(_) => {}
                Message::Close(..) => return Err(std::io::ErrorKind::ConnectionAborted.into()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_parsed_from_the_query() {
        let query = "command=sh&command=-c&command=echo+a%26b%20%25&input=1&output=1&tty=0";
        let request = ExecRequest::new(["space", "pod", "main"], query, &BTreeMap::new());
        assert_eq!(request.command, ["sh", "-c", "echo a&b %"]);
        assert!(request.stdin && !request.tty);
    }
}
