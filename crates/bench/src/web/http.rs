//! A minimal HTTP client that adds as little time as possible.

use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::BenchError;
use crate::error::StepResult;
use crate::measurement::median;

/// Length of an answer that is quoted in messages, in bytes.
const QUOTED_BYTES: usize = 300;

/// A user of the API.
pub(super) struct HttpClient {
    pub(super) port: u16,
    pub(super) token: String,
}

impl HttpClient {
    /// Sends a request, and returns the stream of the answer. `connection` is the header of that name.
    async fn get(&self, path: &str, connection: &str) -> Result<TcpStream, BenchError> {
        let step = format!("request {path}");
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.step(&step)?;
        let token = &self.token;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: {connection}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.step(&step)?;
        Ok(stream)
    }

    /// Opens a stream that stays open, after its first bytes.
    pub(super) async fn stream(&self, path: &str) -> Result<TcpStream, BenchError> {
        let mut stream = self.get(path, "keep-alive").await?;
        let mut head = [0u8; 4096];
        let _ = stream.read(&mut head).await.step(&format!("read {path}"))?;
        Ok(stream)
    }

    /// Returns the median time of several requests, in seconds.
    pub(super) async fn median_seconds(&self, path: &str, requests: usize) -> Result<f64, BenchError> {
        let mut seconds = Vec::new();
        for _ in 0..requests {
            let start = Instant::now();
            let mut stream = self.get(path, "close").await?;
            let mut answer = Vec::new();
            stream
                .read_to_end(&mut answer)
                .await
                .step(&format!("read {path}"))?;
            if !answer.starts_with(b"HTTP/1.1 200") {
                let quoted = String::from_utf8_lossy(&answer[..answer.len().min(QUOTED_BYTES)]);
                return Err(BenchError::Unexpected(format!("{path}: {quoted}")));
            }
            seconds.push(start.elapsed().as_secs_f64());
        }
        Ok(median(seconds))
    }
}
