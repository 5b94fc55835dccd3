//! `/healthz`, `/readyz` and `/metrics`, for the kubelet and for Prometheus.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answer to `/readyz`.
pub(super) enum Readiness {
    /// The service works, in this role.
    Ready(&'static str),
    /// The service does not work yet, for this reason.
    NotReady(&'static str),
}

/// Source of the answers.
pub(super) trait Answers: Send + Sync + 'static {
    /// Returns whether the service is ready.
    fn readiness(&self) -> Readiness;
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
            let timeout = std::time::Duration::from_secs(5);
            let Ok(Ok(length)) = tokio::time::timeout(timeout, stream.read(&mut request)).await else {
                return;
            };
            let text = String::from_utf8_lossy(&request[..length]);
            let path = text.split_whitespace().nth(1).unwrap_or("/");
            let (status, body) = match path {
                "/healthz" | "/livez" => ("200 OK", "ok\n".to_owned()),
                "/readyz" => match answers.readiness() {
                    Readiness::Ready(role) => ("200 OK", format!("{role}\n")),
                    Readiness::NotReady(reason) => ("503 Service Unavailable", format!("{reason}\n")),
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
