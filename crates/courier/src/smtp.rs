//! Sending mail (RFC 5321), over TLS from the beginning or after STARTTLS, with PLAIN or LOGIN.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::mail::{Mail, is_address, stuffed};
use crate::{CourierError, Guard, Trust};

/// How the connection is kept from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Security {
    /// In the open first, encrypted before anything is said; nothing is sent if that cannot be.
    #[default]
    StartTls,
    /// Encrypted from the beginning.
    Tls,
    /// In the open.
    Off,
}

/// A server that takes mail.
#[derive(Debug, Clone)]
pub struct Smtp {
    /// Its name.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is kept from others.
    pub security: Security,
    /// Name and password, where it wants them.
    pub login: Option<(String, String)>,
    /// Who writes: `name@host`.
    pub from: String,
    /// What stands before the address, such as `Dovetail`.
    pub from_name: String,
    /// Whom to believe that it is the server.
    pub trust: Trust,
    /// The longest the whole may take.
    pub patience: Duration,
}

/// The most that is read before a line ends, and the most lines of an answer.
const LONGEST_LINE: usize = 2_048;
const MOST_LINES: usize = 100;

impl Smtp {
    /// Sends a message.
    ///
    /// # Errors
    /// When the server cannot be reached, does not take it, or takes too long.
    pub async fn send(&self, mail: &Mail) -> Result<(), CourierError> {
        for address in [&self.from, &mail.to] {
            if !is_address(address) {
                return Err(CourierError::Invalid(format!(
                    "{address:?} is no address of mail"
                )));
            }
        }
        tokio::time::timeout(self.patience, self.send_at_leisure(mail))
            .await
            .unwrap_or(Err(CourierError::TooSlow))
    }

    async fn send_at_leisure(&self, mail: &Mail) -> Result<(), CourierError> {
        let stream = crate::http::dial(&self.host, self.port, Guard::Any).await?;
        match self.security {
            Security::Off => {
                let mut talk = Talk::greeted(stream).await?;
                let offers = talk.hello().await?;
                self.deliver(talk, &offers, mail).await
            }
            Security::Tls => {
                let mut talk = Talk::greeted(self.trust.shake(&self.host, stream).await?).await?;
                let offers = talk.hello().await?;
                self.deliver(talk, &offers, mail).await
            }
            Security::StartTls => {
                let mut talk = Talk::greeted(stream).await?;
                if !talk.hello().await?.iter().any(|offer| offer == "STARTTLS") {
                    let what = "the server does not offer STARTTLS, and nothing is sent in the open";
                    return Err(CourierError::Refused(what.to_owned()));
                }
                talk.say("STARTTLS", 220).await?;
                // What came before the handshake could have been put there by anybody.
                let stream = talk.bare()?;
                let mut talk = Talk::new(self.trust.shake(&self.host, stream).await?);
                let offers = talk.hello().await?;
                self.deliver(talk, &offers, mail).await
            }
        }
    }

    async fn deliver<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut talk: Talk<S>,
        offers: &[String],
        mail: &Mail,
    ) -> Result<(), CourierError> {
        if let Some((name, password)) = &self.login {
            let auth = offers.iter().find_map(|offer| offer.strip_prefix("AUTH "));
            let ways: Vec<&str> = auth.unwrap_or_default().split(' ').collect();
            if ways.contains(&"PLAIN") {
                let secret = STANDARD.encode(format!("\0{name}\0{password}"));
                talk.say(&format!("AUTH PLAIN {secret}"), 235).await?;
            } else if ways.contains(&"LOGIN") {
                talk.say("AUTH LOGIN", 334).await?;
                talk.say(&STANDARD.encode(name), 334).await?;
                talk.say(&STANDARD.encode(password), 235).await?;
            } else {
                let what = "the server takes neither PLAIN nor LOGIN";
                return Err(CourierError::Refused(what.to_owned()));
            }
        }
        talk.say(&format!("MAIL FROM:<{}>", self.from), 250).await?;
        talk.say(&format!("RCPT TO:<{}>", mail.to), 250).await?;
        talk.say("DATA", 354).await?;
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
        talk.write(&stuffed(&mail.bytes(&from, host))).await?;
        talk.expect(250).await?;
        // It has been taken; how they part does not matter.
        let _ = talk.say("QUIT", 221).await;
        Ok(())
    }
}

/// A conversation: a line there, some lines back.
struct Talk<S> {
    stream: S,
    held: Vec<u8>,
}

impl Talk<TcpStream> {
    /// The stream, if nothing was said that was not asked for.
    fn bare(self) -> Result<TcpStream, CourierError> {
        match self.held.is_empty() {
            true => Ok(self.stream),
            false => Err(CourierError::Refused(
                "the server said something before the connection was encrypted".to_owned(),
            )),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Talk<S> {
    fn new(stream: S) -> Self {
        Self {
            stream,
            held: Vec::new(),
        }
    }

    async fn greeted(stream: S) -> Result<Self, CourierError> {
        let mut talk = Self::new(stream);
        talk.expect(220).await?;
        Ok(talk)
    }

    /// Says hello; what the server can do, in capitals.
    async fn hello(&mut self) -> Result<Vec<String>, CourierError> {
        self.write(b"EHLO dovetail\r\n").await?;
        let said = self.expect(250).await?;
        Ok(said
            .iter()
            .skip(1)
            .map(|line| line.to_ascii_uppercase())
            .collect())
    }

    async fn say(&mut self, words: &str, wanted: u16) -> Result<Vec<String>, CourierError> {
        self.write(format!("{words}\r\n").as_bytes()).await?;
        self.expect(wanted).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), CourierError> {
        self.stream
            .write_all(bytes)
            .await
            .map_err(CourierError::unreachable)?;
        self.stream.flush().await.map_err(CourierError::unreachable)
    }

    /// The lines of an answer, which must have this code.
    async fn expect(&mut self, wanted: u16) -> Result<Vec<String>, CourierError> {
        let strange = |line: &str| CourierError::Refused(format!("not an answer of a mail server: {line:?}"));
        let mut lines = Vec::new();
        loop {
            let line = self.line().await?;
            let code: u16 = line
                .get(..3)
                .and_then(|c| c.parse().ok())
                .ok_or_else(|| strange(&line))?;
            lines.push(line.get(4..).unwrap_or_default().to_owned());
            let is_last = line.as_bytes().get(3) != Some(&b'-');
            match code {
                _ if !is_last && lines.len() < MOST_LINES => {}
                _ if !is_last => return Err(strange("too many lines")),
                code if code == wanted => return Ok(lines),
                // 251: taken, and handed on.
                251 if wanted == 250 => return Ok(lines),
                400..500 => return Err(CourierError::Later(line)),
                _ => return Err(CourierError::Refused(line)),
            }
        }
    }

    async fn line(&mut self) -> Result<String, CourierError> {
        loop {
            if let Some(at) = self.held.iter().position(|b| *b == b'\n') {
                let rest = self.held.split_off(at + 1);
                let line = std::mem::replace(&mut self.held, rest);
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.held.len() > LONGEST_LINE {
                return Err(CourierError::Refused(
                    "a line of the server has no end".to_owned(),
                ));
            }
            let mut piece = [0; 1_024];
            let read = self
                .stream
                .read(&mut piece)
                .await
                .map_err(CourierError::unreachable)?;
            if read == 0 {
                return Err(CourierError::Unreachable("the server hung up".to_owned()));
            }
            self.held.extend_from_slice(&piece[..read]);
        }
    }
}
