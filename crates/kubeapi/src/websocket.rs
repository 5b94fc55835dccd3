//! WebSocket frames (RFC 6455) without a socket: decodes bytes into messages, and encodes messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;

/// Maximum length of a message, in bytes. Kubernetes sends some ten kilobytes at a time.
const MAX_MESSAGE: usize = 16 << 20;
/// Maximum length of a control message in the standard, in bytes.
const MAX_CONTROL: usize = 125;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Text or bytes; the reader knows which.
    Data(Vec<u8>),
    /// A ping; the answer must contain the same bytes.
    Ping(Vec<u8>),
    /// The answer to a ping.
    Pong(Vec<u8>),
    /// The end of the connection, with code and reason. The code is 1005 if none was sent.
    Close(u16, String),
}

/// An invalid frame. Nothing after it can be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Bits are set that are reserved for extensions.
    #[error("frame has reserved bits set, but no extension was negotiated")]
    Reserved,
    /// Unknown kind of frame.
    #[error("unknown frame kind {0}; expected 0, 1, 2, 8, 9 or 10")]
    Kind(u8),
    /// Clients must mask frames, servers must not.
    #[error("frame is {}", if *.0 { "masked; expected an unmasked frame from a server" } else { "not masked; expected a masked frame from a client" })]
    Masked(bool),
    /// A control message is too long or fragmented.
    #[error("ping, pong or close is fragmented or longer than {MAX_CONTROL} bytes")]
    Control,
    /// A continuation without a start, or a start within a message.
    #[error("fragments of a message are out of order")]
    Order,
    /// The message is too long.
    #[error("message exceeds {MAX_MESSAGE} bytes")]
    Long,
    /// The code of a close is incomplete, or its reason is not text.
    #[error("close must have a two-byte code and a reason in UTF-8")]
    Close,
}

/// The sender of the frames that are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A client, which masks its frames.
    Client,
    /// A server, which does not.
    Server,
}

/// Decodes messages from bytes that arrive in any pieces.
#[derive(Debug)]
pub struct Frames {
    from: Side,
    buffer: Vec<u8>,
    /// Fragments of the current message.
    pieces: Option<Vec<u8>>,
}

/// Header of a frame.
struct Head {
    is_last: bool,
    kind: u8,
    mask: Option<[u8; 4]>,
    /// Length of the header, in bytes.
    own: usize,
    /// Length of the payload, in bytes.
    payload: usize,
}

impl Frames {
    /// Returns a decoder without data.
    pub fn new(from: Side) -> Self {
        Self {
            from,
            buffer: Vec::new(),
            pieces: None,
        }
    }

    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete message.
    ///
    /// # Errors
    /// When a frame is invalid.
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
            apply_mask(head.mask, &mut payload);
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
        if kind >= 8 && (!is_last || short > MAX_CONTROL) {
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
        let payload = usize::try_from(payload).ok().filter(|n| *n <= MAX_MESSAGE);
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

    /// Takes a complete frame; returns the message that it completes.
    fn take(&mut self, head: &Head, payload: Vec<u8>) -> Result<Option<Message>, FrameError> {
        match (head.kind, self.pieces.take()) {
            (8.., pieces) => {
                self.pieces = pieces;
                control(head.kind, payload).map(Some)
            }
            (0, Some(mut pieces)) => {
                if pieces.len() + payload.len() > MAX_MESSAGE {
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

fn apply_mask(mask: Option<[u8; 4]>, payload: &mut [u8]) {
    if let Some(mask) = mask {
        for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
    }
}

/// Encodes a message as one frame. A client must give an unpredictable mask.
pub fn frame(message: &Message, mask: Option<[u8; 4]>) -> Vec<u8> {
    let closing;
    let (kind, payload) = match message {
        Message::Data(bytes) => (2_u8, bytes.as_slice()),
        Message::Ping(bytes) => (9, bytes.as_slice()),
        Message::Pong(bytes) => (10, bytes.as_slice()),
        // 1005 means a close without a code, and is never sent.
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
    let start = out.len();
    out.extend_from_slice(payload);
    apply_mask(mask, &mut out[start..]);
    out
}

/// Returns the answer of a server to a client's key in the handshake.
pub fn accept(key: &str) -> String {
    let both = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, both.as_bytes()))
}

#[cfg(test)]
mod tests;
