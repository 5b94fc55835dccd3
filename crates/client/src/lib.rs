//! A client of Dovetail's HTTP API.
//!
//! Each request uses a connection of its own, over TLS with the certificate authority of the server.

mod connection;
mod error;
mod file;
mod lines;

use std::path::Path;

use hyper::body::Incoming;
use hyper::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use connection::{Connection, read_body};
pub use error::ClientError;
pub use file::{ClientFile, data_folder};
pub use lines::Lines;

/// A client of one server.
#[derive(Clone)]
pub struct Client {
    connection: Connection,
}

impl Client {
    /// Creates a client from the given `client.yaml`, or from the first one found; see [`ClientFile::find`].
    ///
    /// # Errors
    /// Fails when there is no such file, or its content is invalid.
    pub fn open(config: Option<&Path>) -> Result<Self, ClientError> {
        Self::new(&ClientFile::find(config)?)
    }

    /// Creates a client from the content of a `client.yaml`.
    ///
    /// # Errors
    /// Fails when the address or the certificate is invalid.
    pub fn new(file: &ClientFile) -> Result<Self, ClientError> {
        Ok(Self {
            connection: Connection::new(file)?,
        })
    }

    /// Returns the address of the server.
    pub fn server(&self) -> &str {
        self.connection.server()
    }

    /// Reads a value.
    ///
    /// # Errors
    /// Fails when the server cannot be reached or rejects the request.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        decode(self.connection.send(Method::GET, path, String::new()).await?).await
    }

    /// Posts a value and reads the answer.
    ///
    /// # Errors
    /// Fails when the server cannot be reached or rejects the request.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        decode(self.connection.send(Method::POST, path, encode(body)?).await?).await
    }

    /// Replaces a value and reads the answer.
    ///
    /// # Errors
    /// Fails when the server cannot be reached or rejects the request.
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        decode(self.connection.send(Method::PUT, path, encode(body)?).await?).await
    }

    /// Deletes something.
    ///
    /// # Errors
    /// Fails when the server cannot be reached or rejects the request.
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.connection
            .send(Method::DELETE, path, String::new())
            .await
            .map(drop)
    }

    /// Deletes something and reads the answer.
    ///
    /// # Errors
    /// Fails when the server cannot be reached or rejects the request.
    pub async fn delete_and_read<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        decode(self.connection.send(Method::DELETE, path, String::new()).await?).await
    }

    /// Reads an answer line by line, as the server sends it.
    ///
    /// # Errors
    /// Fails when the server cannot be reached or rejects the request.
    pub async fn lines(&self, path: &str) -> Result<Lines, ClientError> {
        let response = self.connection.send(Method::GET, path, String::new()).await?;
        Ok(Lines::new(response.into_body()))
    }
}

fn encode(body: &impl Serialize) -> Result<String, ClientError> {
    serde_json::to_string(body).map_err(ClientError::InvalidRequest)
}

async fn decode<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, ClientError> {
    let bytes = read_body(response.into_body()).await?;
    serde_json::from_slice(&bytes).map_err(ClientError::InvalidAnswer)
}

/// Runs a future to its end on a runtime of its own.
///
/// # Errors
/// The future's error, or that of a runtime that cannot be created.
pub fn block_on<T, E: From<ClientError>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ClientError::Runtime)?;
    runtime.block_on(work)
}

/// Percent-encodes a value for the query of a request.
pub fn percent_encode(value: &str) -> String {
    let is_unreserved = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    value
        .bytes()
        .map(|b| {
            if is_unreserved(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_characters_are_percent_encoded() {
        assert_eq!(percent_encode("lr=0.1 & é"), "lr%3D0.1%20%26%20%C3%A9");
        assert_eq!(percent_encode("a-b_c.d~e"), "a-b_c.d~e");
    }
}
