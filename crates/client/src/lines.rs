//! Answers that arrive line by line.

use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use crate::ClientError;
use crate::connection::next_chunk;

/// An answer that is read line by line, as the server sends it.
pub struct Lines {
    body: Incoming,
    /// Bytes that were received and not yet returned.
    buffer: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(body: Incoming) -> Self {
        Self {
            body,
            buffer: Vec::new(),
        }
    }

    /// Returns the next line without its line break, or `None` at the end of the answer.
    ///
    /// # Errors
    /// Fails when the connection breaks.
    pub async fn next(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            match next_chunk(&mut self.body).await {
                Some(data) => self
                    .buffer
                    .extend_from_slice(&data.map_err(ClientError::Disconnected)?),
                None if self.buffer.is_empty() => return Ok(None),
                None => {
                    let line = std::mem::take(&mut self.buffer);
                    return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
                }
            }
        }
    }

    /// Returns the value of the next server-sent event, or `None` at the end of the answer.
    ///
    /// # Errors
    /// Fails when the connection breaks, or the value is not of this type.
    pub async fn event<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ClientError> {
        while let Some(line) = self.next().await? {
            if let Some(data) = line.strip_prefix("data:") {
                return serde_json::from_str(data.trim())
                    .map(Some)
                    .map_err(ClientError::InvalidAnswer);
            }
        }
        Ok(None)
    }
}
