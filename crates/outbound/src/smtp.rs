//! SMTP client (RFC 5321): TLS from the start or after STARTTLS, authentication with PLAIN or LOGIN.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::mail::{Mail, dot_stuffed, is_address};
use crate::{AddressPolicy, OutboundError, Trust};

/// How the connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Security {
    /// With STARTTLS, before credentials or mail are sent. A server that does not offer it is rejected.
    #[default]
    StartTls,
    /// With TLS from the start.
    Tls,
    /// Not at all.
    Off,
}

/// A mail server and the account to send from.
#[derive(Debug, Clone)]
pub struct Smtp {
    /// Host name of the server.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// How the connection is encrypted.
    pub security: Security,
    /// User name and password; `None` for a server without authentication.
    pub login: Option<(String, String)>,
    /// Sender address, `name@host`.
    pub from: String,
    /// Display name of the sender, such as `Dovetail`.
    pub from_name: String,
    /// Authorities that may certify the server.
    pub trust: Trust,
    /// Time limit for sending one message.
    pub timeout: Duration,
}

/// Maximum length of a line in a reply, in bytes.
const MAX_LINE_BYTES: usize = 2_048;
/// Maximum number of lines in a reply.
const MAX_LINES: usize = 100;

impl Smtp {
    /// Sends a message.
    ///
    /// # Errors
    /// When an address is malformed, the server cannot be reached or rejects the message, or the timeout is exceeded.
    pub async fn send(&self, mail: &Mail) -> Result<(), OutboundError> {
        for address in [&self.from, &mail.to] {
            if !is_address(address) {
                return Err(OutboundError::Invalid(format!(
                    "invalid mail address {address:?}: expected name@host"
                )));
            }
        }
        tokio::time::timeout(self.timeout, self.send_unbounded(mail))
            .await
            .unwrap_or(Err(OutboundError::Timeout))
    }

    async fn send_unbounded(&self, mail: &Mail) -> Result<(), OutboundError> {
        let stream = crate::http::connect(&self.host, self.port, AddressPolicy::Any).await?;
        match self.security {
            Security::Off => {
                let mut session = Session::greeted(stream).await?;
                let offers = session.hello().await?;
                self.deliver(session, &offers, mail).await
            }
            Security::Tls => {
                let mut session = Session::greeted(self.trust.handshake(&self.host, stream).await?).await?;
                let offers = session.hello().await?;
                self.deliver(session, &offers, mail).await
            }
            Security::StartTls => {
                let mut session = Session::greeted(stream).await?;
                if !session.hello().await?.iter().any(|offer| offer == "STARTTLS") {
                    let reason = "the server does not offer STARTTLS, and mail is not sent unencrypted";
                    return Err(OutboundError::Rejected(reason.to_owned()));
                }
                session.command("STARTTLS", 220).await?;
                // Anything received before the handshake could have been injected.
                let stream = session.into_stream()?;
                let mut session = Session::new(self.trust.handshake(&self.host, stream).await?);
                let offers = session.hello().await?;
                self.deliver(session, &offers, mail).await
            }
        }
    }

    async fn deliver<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut session: Session<S>,
        offers: &[String],
        mail: &Mail,
    ) -> Result<(), OutboundError> {
        if let Some((name, password)) = &self.login {
            let auth = offers.iter().find_map(|offer| offer.strip_prefix("AUTH "));
            let methods: Vec<&str> = auth.unwrap_or_default().split(' ').collect();
            if methods.contains(&"PLAIN") {
                let secret = STANDARD.encode(format!("\0{name}\0{password}"));
                session.command(&format!("AUTH PLAIN {secret}"), 235).await?;
            } else if methods.contains(&"LOGIN") {
                session.command("AUTH LOGIN", 334).await?;
                session.command(&STANDARD.encode(name), 334).await?;
                session.command(&STANDARD.encode(password), 235).await?;
            } else {
                let reason = "the server supports neither AUTH PLAIN nor AUTH LOGIN";
                return Err(OutboundError::Rejected(reason.to_owned()));
            }
        }
        session
            .command(&format!("MAIL FROM:<{}>", self.from), 250)
            .await?;
        session.command(&format!("RCPT TO:<{}>", mail.to), 250).await?;
        session.command("DATA", 354).await?;
        let host = self.from.rsplit('@').next().unwrap_or("localhost");
        let name: String = self
            .from_name
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == ' ')
            .collect();
        let from = match name.trim() {
            "" => self.from.clone(),
            name => format!("{name} <{}>", self.from),
        };
        session.write(&dot_stuffed(&mail.bytes(&from, host))).await?;
        session.expect(250).await?;
        // The server has accepted the message; a failure to say goodbye does not matter.
        let _ = session.command("QUIT", 221).await;
        Ok(())
    }
}

/// An SMTP session: commands of one line, replies of one or more lines.
struct Session<S> {
    stream: S,
    /// Bytes received after the last complete line.
    buffer: Vec<u8>,
}

impl Session<TcpStream> {
    /// Returns the stream, unless the server has sent more than its replies.
    fn into_stream(self) -> Result<TcpStream, OutboundError> {
        match self.buffer.is_empty() {
            true => Ok(self.stream),
            false => Err(OutboundError::Rejected(
                "the server sent data between STARTTLS and the TLS handshake".to_owned(),
            )),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    fn new(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    async fn greeted(stream: S) -> Result<Self, OutboundError> {
        let mut session = Self::new(stream);
        session.expect(220).await?;
        Ok(session)
    }

    /// Sends EHLO and returns the extensions of the server, in upper case.
    async fn hello(&mut self) -> Result<Vec<String>, OutboundError> {
        self.write(b"EHLO dovetail\r\n").await?;
        let reply = self.expect(250).await?;
        Ok(reply
            .iter()
            .skip(1)
            .map(|line| line.to_ascii_uppercase())
            .collect())
    }

    /// Sends a command and returns the lines of the reply, whose code must be `expected`.
    async fn command(&mut self, line: &str, expected: u16) -> Result<Vec<String>, OutboundError> {
        self.write(format!("{line}\r\n").as_bytes()).await?;
        self.expect(expected).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), OutboundError> {
        self.stream
            .write_all(bytes)
            .await
            .map_err(OutboundError::unreachable)?;
        self.stream.flush().await.map_err(OutboundError::unreachable)
    }

    /// Reads a reply and returns its lines. Its code must be `expected`.
    async fn expect(&mut self, expected: u16) -> Result<Vec<String>, OutboundError> {
        let malformed =
            |line: &str| OutboundError::Rejected(format!("invalid reply from the mail server: {line:?}"));
        let mut lines = Vec::new();
        loop {
            let line = self.line().await?;
            let code: u16 = line
                .get(..3)
                .and_then(|c| c.parse().ok())
                .ok_or_else(|| malformed(&line))?;
            lines.push(line.get(4..).unwrap_or_default().to_owned());
            let is_last = line.as_bytes().get(3) != Some(&b'-');
            match code {
                _ if !is_last && lines.len() < MAX_LINES => {}
                _ if !is_last => return Err(malformed("more than 100 lines")),
                code if code == expected => return Ok(lines),
                // 251: the recipient is not local, and the server forwards the message.
                251 if expected == 250 => return Ok(lines),
                400..500 => return Err(OutboundError::Deferred(line)),
                _ => return Err(OutboundError::Rejected(line)),
            }
        }
    }

    async fn line(&mut self) -> Result<String, OutboundError> {
        loop {
            if let Some(at) = self.buffer.iter().position(|b| *b == b'\n') {
                let rest = self.buffer.split_off(at + 1);
                let line = std::mem::replace(&mut self.buffer, rest);
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(OutboundError::Rejected(format!(
                    "a reply line exceeds {MAX_LINE_BYTES} bytes"
                )));
            }
            let mut chunk = [0; 1_024];
            let read = self
                .stream
                .read(&mut chunk)
                .await
                .map_err(OutboundError::unreachable)?;
            if read == 0 {
                return Err(OutboundError::Unreachable(
                    "the server closed the connection".to_owned(),
                ));
            }
            self.buffer.extend_from_slice(&chunk[..read]);
        }
    }
}
