//! A command in a container that does not exist: a process on this machine, spoken to over WebSocket as a kubelet is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use dovetail_kubeapi::{Channel, Frames, Message, Side, accept, frame};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use rustls::{ServerConnection, StreamOwned};
use serde_json::{Value, json};

type Stream = BufReader<StreamOwned<ServerConnection, TcpStream>>;

/// What is asked for.
pub(crate) struct Asked {
    /// Namespace, pod and container.
    place: [String; 3],
    command: Vec<String>,
    stdin: bool,
    tty: bool,
    key: String,
    protocols: Vec<String>,
}

/// How long nothing is looked at but the socket.
const LOOK: Duration = Duration::from_millis(2);

impl Asked {
    pub(crate) fn new(place: [&str; 3], query: &str, headers: &BTreeMap<String, String>) -> Self {
        let of = |name: &str| -> Vec<String> {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let mine = pairs.filter(|(key, _)| *key == name);
            mine.map(|(_, value)| plain(value)).collect()
        };
        let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
        Self {
            place: place.map(str::to_owned),
            command: of("command"),
            stdin: of("input") == ["1"],
            tty: of("tty") == ["1"],
            key: header("sec-websocket-key"),
            protocols: header("sec-websocket-protocol")
                .split(',')
                .map(|p| p.trim().to_owned())
                .collect(),
        }
    }
}

/// An escaped part of an address, as it was.
fn plain(text: &str) -> String {
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

/// What the process does, from threads that read what it prints.
enum Heard {
    Printed(Channel, Vec<u8>),
    /// One of its outputs is at its end.
    Silent,
}

/// A process, and the ways to it.
struct Process {
    child: Child,
    stdin: Option<Input>,
    heard: mpsc::Receiver<Heard>,
    /// Outputs that are not at their end.
    open: usize,
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

fn listen(channel: Channel, mut from: impl Read + Send + 'static, tell: mpsc::Sender<Heard>) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 8192];
        // The end of a terminal is an error.
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let _ = tell.send(Heard::Printed(channel, bytes[..count].to_vec()));
        }
        let _ = tell.send(Heard::Silent);
    });
}

impl Process {
    fn start(asked: &Asked) -> std::io::Result<Self> {
        let none = std::io::Error::other("no command");
        let (program, words) = asked.command.split_first().ok_or(none)?;
        let [namespace, pod, container] = &asked.place;
        let mut command = Command::new(program);
        command
            .args(words)
            .env("KUBELAB_CONTAINER", format!("{namespace}/{pod}/{container}"));
        let (tell, heard) = mpsc::channel();
        if asked.tty {
            let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
            grantpt(&master)?;
            unlockpt(&master)?;
            let name = ptsname(&master, Vec::new())?;
            let path = name.to_string_lossy().into_owned();
            let side = || File::options().read(true).write(true).open(&path);
            command.stdin(side()?).stdout(side()?).stderr(side()?);
            let child = command.spawn()?;
            // Our own ends of it are closed with the command, so that the terminal has an end.
            drop(command);
            let terminal = File::from(master);
            listen(Channel::Stdout, terminal.try_clone()?, tell);
            return Ok(Self {
                child,
                stdin: Some(Input::Terminal(terminal.try_clone()?)),
                heard,
                open: 1,
                terminal: Some(terminal),
            });
        }
        let input = if asked.stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        };
        let mut child = command
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(out) = child.stdout.take() {
            listen(Channel::Stdout, out, tell.clone());
        }
        if let Some(err) = child.stderr.take() {
            listen(Channel::Stderr, err, tell);
        }
        Ok(Self {
            stdin: child.stdin.take().map(Input::Pipe),
            child,
            heard,
            open: 2,
            terminal: None,
        })
    }

    /// A message of the client.
    fn told(&mut self, message: &[u8]) {
        match message {
            [0, bytes @ ..] => {
                // A process that reads no more is no mistake.
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

/// Speaks WebSocket until the command is over, or the client is gone.
pub(crate) fn serve(mut stream: Stream, asked: &Asked, is_old: bool) -> std::io::Result<()> {
    let known: &[&str] = match is_old {
        true => &["v4.channel.k8s.io"],
        false => &["v5.channel.k8s.io", "v4.channel.k8s.io"],
    };
    let protocol = known.iter().find(|p| asked.protocols.iter().any(|a| a == *p));
    let protocol = protocol.copied().unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\
         Sec-WebSocket-Protocol: {protocol}\r\n\r\n",
        accept(&asked.key)
    );
    let mut frames = Frames::new(Side::Client);
    frames.feed(stream.buffer());
    let stream = stream.get_mut();
    stream.write_all(answer.as_bytes())?;
    // As kubelets do, to show that the line is open.
    say(stream, &Message::Data(vec![Channel::Stdout as u8]))?;
    say(stream, &Message::Ping(b"there?".to_vec()))?;
    let status = match Process::start(asked) {
        Ok(mut process) => {
            stream.sock.set_read_timeout(Some(LOOK))?;
            let ended = speak(stream, &mut frames, &mut process);
            if ended.is_err() {
                let _ = process.child.kill();
            }
            let ended = process.child.wait()?;
            outcome(ended.code().unwrap_or(-1))
        }
        Err(error) => json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
            "message": format!("{}: {error}", asked.command.join(" "))}),
    };
    let mut last = vec![Channel::Status as u8];
    last.extend(status.to_string().into_bytes());
    say(stream, &Message::Data(last))?;
    say(stream, &Message::Close(1000, String::new()))?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// How a kubelet says with what a command ended.
fn outcome(code: i32) -> Value {
    match code {
        0 => json!({"metadata": {}, "status": "Success"}),
        code => json!({"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}}),
    }
}

fn say(stream: &mut impl Write, message: &Message) -> std::io::Result<()> {
    stream.write_all(&frame(message, None))?;
    stream.flush()
}

/// Passes on what is said in both directions until the process prints no more.
fn speak<S: Read + Write>(stream: &mut S, frames: &mut Frames, process: &mut Process) -> std::io::Result<()> {
    let mut bytes = vec![0; 8192];
    while process.open > 0 {
        while let Ok(heard) = process.heard.try_recv() {
            match heard {
                Heard::Silent => process.open -= 1,
                Heard::Printed(channel, printed) => {
                    let mut message = vec![channel as u8];
                    message.extend(printed);
                    say(stream, &Message::Data(message))?;
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
                Message::Data(message) => process.told(&message),
                Message::Ping(bytes) => say(stream, &Message::Pong(bytes))?,
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
    fn what_is_asked_for_stands_in_the_address() {
        let query = "command=sh&command=-c&command=echo+a%26b%20%25&input=1&output=1&tty=0";
        let asked = Asked::new(["space", "pod", "main"], query, &BTreeMap::new());
        assert_eq!(asked.command, ["sh", "-c", "echo a&b %"]);
        assert!(asked.stdin && !asked.tty);
    }
}
