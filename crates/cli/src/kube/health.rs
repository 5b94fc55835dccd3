//! `/healthz`, `/readyz` and `/metrics`, for the kubelet and for Prometheus.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Source of the answers.
pub(super) trait Answers: Send + Sync + 'static {
    /// Returns the reason if the service is unhealthy.
    fn health(&self) -> Result<String, String>;
    /// Returns metrics for Prometheus.
    fn metrics(&self) -> String;
}

/// Serves requests until the task is dropped.
pub(super) async fn serve(listener: TcpListener, answers: Arc<dyn Answers>) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            continue;
        };
        let answers = Arc::clone(&answers);
        tokio::spawn(async move {
            let mut request = vec![0; 2048];
            let patience = std::time::Duration::from_secs(5);
            let Ok(Ok(length)) = tokio::time::timeout(patience, stream.read(&mut request)).await else {
                return;
            };
            let text = String::from_utf8_lossy(&request[..length]);
            let path = text.split_whitespace().nth(1).unwrap_or("/");
            let (status, body) = match path {
                "/healthz" | "/livez" => ("200 OK", "ok\n".to_owned()),
                "/readyz" => match answers.health() {
                    Ok(how) => ("200 OK", format!("{how}\n")),
                    Err(why) => ("503 Service Unavailable", format!("{why}\n")),
                },
                "/metrics" => ("200 OK", answers.metrics()),
                _ => (
                    "404 Not Found",
                    "not found: expected /healthz, /readyz or /metrics\n".to_owned(),
                ),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(body.as_bytes()).await;
        });
    }
}
