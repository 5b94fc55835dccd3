//! Lines of a streamed response.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Incoming};

/// Lines of a streamed body.
#[derive(Debug)]
pub struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
    /// Start of the next line in the buffer.
    from: usize,
    /// End of the part that is known to have no line break.
    scanned: usize,
}

impl Lines {
    pub(crate) fn new(body: Incoming) -> Self {
        Self {
            body,
            buffer: Vec::new(),
            from: 0,
            scanned: 0,
        }
    }

    /// Returns the next line without its line break, or `None` at the end of the body. Text after the last line break is a
    /// line too.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, hyper::Error> {
        loop {
            if let Some(at) = self.buffer[self.scanned..].iter().position(|b| *b == b'\n') {
                let end = self.scanned + at;
                let line = self.buffer[self.from..end].to_vec();
                (self.from, self.scanned) = (end + 1, end + 1);
                return Ok(Some(line));
            }
            self.buffer.drain(..self.from);
            (self.from, self.scanned) = (0, self.buffer.len());
            match frame(&mut self.body).await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None if self.buffer.is_empty() => return Ok(None),
                None => {
                    self.scanned = 0;
                    return Ok(Some(std::mem::take(&mut self.buffer)));
                }
            }
        }
    }

    /// Whether a whole line is buffered.
    pub fn has_line(&self) -> bool {
        self.buffer[self.scanned..].contains(&b'\n')
    }
}

/// Returns the next data frame of a body.
pub(crate) async fn frame(body: &mut Incoming) -> Result<Option<hyper::body::Bytes>, hyper::Error> {
    loop {
        let next =
            std::future::poll_fn(|cx: &mut Context<'_>| -> Poll<_> { Pin::new(&mut *body).poll_frame(cx) });
        match next.await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Some(Err(e)) => return Err(e),
            None => return Ok(None),
        }
    }
}
