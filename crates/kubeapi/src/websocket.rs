//! Frames of WebSocket (RFC 6455), without a socket: bytes come in, messages come out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;

/// The longest message that is taken. Kubernetes sends pieces of some ten kilobytes.
const LONGEST: usize = 16 << 20;
/// The longest message about the connection itself, as the standard has it.
const LONGEST_CONTROL: usize = 125;

/// Something the other side said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Text or bytes; whoever reads them knows which.
    Data(Vec<u8>),
    /// It wants to know whether we are there, and these bytes back.
    Ping(Vec<u8>),
    /// The answer to a ping.
    Pong(Vec<u8>),
    /// Nothing comes any more: the code, and why in words. 1005 where no code was said.
    Close(u16, String),
}

/// What is not WebSocket. Nothing after it can be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Bits that only an agreed extension may set.
    #[error("a frame with reserved bits, which nobody agreed on")]
    Reserved,
    /// A kind that does not exist.
    #[error("a frame of kind {0}; expected 0, 1, 2, 8, 9 or 10")]
    Kind(u8),
    /// Clients mask what they send, servers do not.
    #[error("a frame that is {}", if *.0 { "masked, as only a client's are" } else { "not masked, as a client's are" })]
    Masked(bool),
    /// A message about the connection that is long, or in pieces.
    #[error("a ping, pong or close that is in pieces or longer than {LONGEST_CONTROL} bytes")]
    Control,
    /// A piece of nothing, or a beginning within a message.
    #[error("pieces of a message out of order")]
    Order,
    /// More than anybody should send.
    #[error("a message of more than {LONGEST} bytes")]
    Long,
    /// A code alone has one byte, or the reason is no text.
    #[error("a close without a whole code and a reason in UTF-8")]
    Close,
}

/// Whose frames are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A client: what it sends is masked.
    Client,
    /// A server: what it sends is not.
    Server,
}

/// Makes messages of bytes, however they are cut.
#[derive(Debug)]
pub struct Frames {
    from: Side,
    buffer: Vec<u8>,
    /// The message of which pieces have come.
    pieces: Option<Vec<u8>>,
}

/// The first bytes of a frame.
struct Head {
    is_last: bool,
    kind: u8,
    mask: Option<[u8; 4]>,
    /// How many bytes it has itself, and how many follow.
    own: usize,
    payload: usize,
}

impl Frames {
    /// Nothing has come yet.
    pub fn new(from: Side) -> Self {
        Self {
            from,
            buffer: Vec::new(),
            pieces: None,
        }
    }

    /// Bytes that have come.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message, once it is whole.
    ///
    /// # Errors
    /// When that is not WebSocket.
    pub fn message(&mut self) -> Result<Option<Message>, FrameError> {
        loop {
            let Some(head) = self.head()? else {
                return Ok(None);
            };
            let Some(payload) = self.buffer.get(head.own..head.own + head.payload) else {
                return Ok(None);
            };
            let mut payload = payload.to_vec();
            self.buffer.drain(..head.own + head.payload);
            apply(head.mask, &mut payload);
            if let Some(message) = self.take(&head, payload)? {
                return Ok(Some(message));
            }
        }
    }

    fn head(&self) -> Result<Option<Head>, FrameError> {
        let [first, second, rest @ ..] = self.buffer.as_slice() else {
            return Ok(None);
        };
        let kind = first & 0x0f;
        if first & 0x70 != 0 {
            return Err(FrameError::Reserved);
        }
        if !matches!(kind, 0..=2 | 8..=10) {
            return Err(FrameError::Kind(kind));
        }
        let is_masked = second & 0x80 != 0;
        if is_masked != (self.from == Side::Client) {
            return Err(FrameError::Masked(is_masked));
        }
        let is_last = first & 0x80 != 0;
        let short = usize::from(second & 0x7f);
        if kind >= 8 && (!is_last || short > LONGEST_CONTROL) {
            return Err(FrameError::Control);
        }
        let wide = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some(length) = rest.get(..wide) else {
            return Ok(None);
        };
        let long = length.iter().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
        let payload = if wide == 0 { short as u64 } else { long };
        let payload = usize::try_from(payload).ok().filter(|n| *n <= LONGEST);
        let payload = payload.ok_or(FrameError::Long)?;
        let mask = match (is_masked, rest.get(wide..wide + 4)) {
            (false, _) => None,
            (true, Some(&[a, b, c, d])) => Some([a, b, c, d]),
            (true, _) => return Ok(None),
        };
        Ok(Some(Head {
            is_last,
            kind,
            mask,
            own: 2 + wide + if is_masked { 4 } else { 0 },
            payload,
        }))
    }

    /// A frame is whole; what it completes.
    fn take(&mut self, head: &Head, payload: Vec<u8>) -> Result<Option<Message>, FrameError> {
        match (head.kind, self.pieces.take()) {
            (8.., pieces) => {
                self.pieces = pieces;
                control(head.kind, payload).map(Some)
            }
            (0, Some(mut pieces)) => {
                if pieces.len() + payload.len() > LONGEST {
                    return Err(FrameError::Long);
                }
                pieces.extend(payload);
                Ok(self.piece(head, pieces))
            }
            (1.., None) => Ok(self.piece(head, payload)),
            (0, None) | (1.., Some(_)) => Err(FrameError::Order),
        }
    }

    fn piece(&mut self, head: &Head, so_far: Vec<u8>) -> Option<Message> {
        if head.is_last {
            return Some(Message::Data(so_far));
        }
        self.pieces = Some(so_far);
        None
    }
}

fn control(kind: u8, payload: Vec<u8>) -> Result<Message, FrameError> {
    match (kind, payload.as_slice()) {
        (9, _) => Ok(Message::Ping(payload)),
        (10, _) => Ok(Message::Pong(payload)),
        (_, []) => Ok(Message::Close(1005, String::new())),
        (_, &[high, low, ref reason @ ..]) => {
            let reason = std::str::from_utf8(reason).map_err(|_| FrameError::Close)?;
            Ok(Message::Close(u16::from_be_bytes([high, low]), reason.to_owned()))
        }
        (_, [_]) => Err(FrameError::Close),
    }
}

fn apply(mask: Option<[u8; 4]>, payload: &mut [u8]) {
    if let Some(mask) = mask {
        for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
    }
}

/// A message as one frame; a client gives a mask that nobody can foresee.
pub fn frame(message: &Message, mask: Option<[u8; 4]>) -> Vec<u8> {
    let closing;
    let (kind, payload) = match message {
        Message::Data(bytes) => (2_u8, bytes.as_slice()),
        Message::Ping(bytes) => (9, bytes.as_slice()),
        Message::Pong(bytes) => (10, bytes.as_slice()),
        // 1005 stands for a close without a code, and is never sent.
        Message::Close(1005, _) => (8, [].as_slice()),
        Message::Close(code, reason) => {
            let code = code.to_be_bytes();
            closing = [code.as_slice(), reason.as_bytes()].concat();
            (8, closing.as_slice())
        }
    };
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let mut out = vec![0x80 | kind];
    match u16::try_from(payload.len()) {
        Ok(short @ 0..=125) => out.push(masked | short.to_be_bytes()[1]),
        Ok(medium) => {
            out.push(masked | 126);
            out.extend(medium.to_be_bytes());
        }
        Err(_) => {
            out.push(masked | 127);
            out.extend((payload.len() as u64).to_be_bytes());
        }
    }
    out.extend(mask.iter().flatten());
    let begins = out.len();
    out.extend_from_slice(payload);
    apply(mask, &mut out[begins..]);
    out
}

/// What a server has to answer to a client's key, so that it is known to speak WebSocket.
pub fn accept(key: &str) -> String {
    let both = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, both.as_bytes()))
}

#[cfg(test)]
mod tests;
