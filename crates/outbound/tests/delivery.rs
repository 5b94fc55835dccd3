//! Requests and mail over real sockets, to servers in this process that behave well or badly.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dovetail_outbound::{AddressPolicy, Client, HttpRequest, Mail, OutboundError, Security, Smtp, Trust};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Returns the TLS configuration of a server on loopback, and the file with its certificate.
fn identity(name: &str) -> (Arc<rustls::ServerConfig>, PathBuf) {
    let signed =
        rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let path = std::env::temp_dir().join(format!("outbound-{name}-{}.pem", std::process::id()));
    std::fs::write(&path, signed.cert.pem()).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    (Arc::new(config), path)
}

/// How a mail server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behavior {
    Normal,
    /// Offers AUTH LOGIN only.
    Login,
    /// Defers all mail.
    Busy,
    /// Rejects all recipients.
    Rejects,
    /// Sends data between STARTTLS and the handshake.
    Injects,
    /// Never answers.
    Silent,
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    behavior: Behavior,
    starttls: bool,
    received: &UnboundedSender<String>,
) -> Option<S> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return None;
        }
        let words = line.trim_end().to_owned();
        received.send(words.clone()).unwrap();
        let answer = match words.split(' ').next().unwrap() {
            "EHLO" => {
                let auth = if behavior == Behavior::Login {
                    "LOGIN"
                } else {
                    "PLAIN LOGIN"
                };
                let tls = if starttls { "250-STARTTLS\r\n" } else { "" };
                format!("250-mail\r\n{tls}250-SIZE 1000\r\n250 AUTH {auth}\r\n")
            }
            "STARTTLS" if behavior == Behavior::Injects => "220 go\r\n250 injected\r\n".to_owned(),
            "STARTTLS" => {
                stream.write_all(b"220 go\r\n").await.unwrap();
                return Some(stream.into_inner());
            }
            "AUTH" if words == "AUTH LOGIN" => "334 VXNlcm5hbWU6\r\n".to_owned(),
            "AUTH" => "235 welcome\r\n".to_owned(),
            "Ym90" => "334 UGFzc3dvcmQ6\r\n".to_owned(),
            "aHVzaA==" => "235 welcome\r\n".to_owned(),
            "MAIL" if behavior == Behavior::Busy => "451 try later\r\n".to_owned(),
            "MAIL" => "250 ok\r\n".to_owned(),
            "RCPT" if behavior == Behavior::Rejects => "550 no such user\r\n".to_owned(),
            "RCPT" => "250 ok\r\n".to_owned(),
            "DATA" => {
                stream.write_all(b"354 start\r\n").await.unwrap();
                let mut message = String::new();
                while !message.ends_with("\r\n.\r\n") {
                    assert_ne!(stream.read_line(&mut message).await.unwrap(), 0);
                }
                received.send(message).unwrap();
                "250 taken\r\n".to_owned()
            }
            "QUIT" => "221 bye\r\n".to_owned(),
            _ => "500 what?\r\n".to_owned(),
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

async fn mail_server(
    behavior: Behavior,
    security: Security,
    tls: Arc<rustls::ServerConfig>,
) -> (u16, UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (received, lines) = unbounded_channel();
    let acceptor = tokio_rustls::TlsAcceptor::from(tls);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            if behavior == Behavior::Silent {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            match security {
                Security::Tls => {
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        continue;
                    };
                    stream.write_all(b"220 mail\r\n").await.unwrap();
                    serve(stream, behavior, false, &received).await;
                }
                Security::Off => {
                    stream.write_all(b"220-mail\r\n220 ready\r\n").await.unwrap();
                    serve(stream, behavior, false, &received).await;
                }
                Security::StartTls => {
                    stream.write_all(b"220 mail\r\n").await.unwrap();
                    if let Some(stream) = serve::<TcpStream>(stream, behavior, true, &received).await
                        && let Ok(stream) = acceptor.accept(stream).await
                    {
                        received.send("(encrypted)".to_owned()).unwrap();
                        serve(stream, behavior, false, &received).await;
                    }
                }
            }
        }
    });
    (port, lines)
}

fn mail() -> Mail {
    Mail {
        to: "ann@example.org".to_owned(),
        subject: "job 7 has failed\r\nBcc: eve@example.org".to_owned(),
        text: "Output:\n.\n.hidden\nQUIT\n".to_owned(),
        sent_at_s: 1_794_882_707,
        id: "1".to_owned(),
    }
}

fn smtp(port: u16, security: Security, trust: Trust) -> Smtp {
    Smtp {
        host: "127.0.0.1".to_owned(),
        port,
        security,
        login: Some(("bot".to_owned(), "hush".to_owned())),
        from: "dovetail@example.org".to_owned(),
        from_name: "Dovetail".to_owned(),
        trust,
        timeout: Duration::from_secs(5),
    }
}

#[tokio::test]
async fn mail_is_delivered_in_plain_text_over_tls_and_after_starttls() {
    let (tls, ca) = identity("mail");
    for security in [Security::Off, Security::Tls, Security::StartTls] {
        for behavior in [Behavior::Normal, Behavior::Login] {
            let (port, mut lines) = mail_server(behavior, security, Arc::clone(&tls)).await;
            let smtp = smtp(port, security, Trust::open(Some(&ca)).unwrap());
            smtp.send(&mail()).await.unwrap();
            let mut received = Vec::new();
            while let Ok(line) = lines.try_recv() {
                received.push(line);
            }
            let message = received.iter().find(|w| w.starts_with("Date: ")).unwrap();
            assert!(
                message.contains("\r\nSubject: job 7 has failed  Bcc: eve@example.org\r\n"),
                "{message}"
            );
            assert!(
                message.contains("\r\nFrom: Dovetail <dovetail@example.org>\r\n"),
                "{message}"
            );
            assert!(
                message.ends_with("Output:\r\n..\r\n..hidden\r\nQUIT\r\n.\r\n"),
                "{message}"
            );
            let before: Vec<&String> = received.iter().take_while(|w| *w != "(encrypted)").collect();
            if security == Security::StartTls {
                assert_eq!(
                    before,
                    ["EHLO dovetail", "STARTTLS"],
                    "credentials must not be sent before the handshake"
                );
            }
            assert_eq!(received.iter().filter(|w| w.starts_with("RCPT")).count(), 1);
        }
    }
    std::fs::remove_file(ca).unwrap();
}

#[tokio::test]
async fn replies_of_a_mail_server_become_errors() {
    let (tls, ca) = identity("replies");
    let trust = || Trust::open(Some(&ca)).unwrap();
    let fails = async |behavior: Behavior, security: Security, timeout_ms: u64| {
        let (port, _lines) = mail_server(behavior, security, Arc::clone(&tls)).await;
        let mut smtp = smtp(port, security, trust());
        smtp.timeout = Duration::from_millis(timeout_ms);
        smtp.send(&mail()).await.unwrap_err()
    };
    assert!(matches!(
        fails(Behavior::Busy, Security::Off, 5_000).await,
        OutboundError::Deferred(_)
    ));
    let rejected = fails(Behavior::Rejects, Security::Off, 5_000).await;
    assert!(
        matches!(&rejected, OutboundError::Rejected(reason) if reason.contains("no such user")),
        "{rejected}"
    );
    assert!(!rejected.is_transient());
    assert!(matches!(
        fails(Behavior::Injects, Security::StartTls, 5_000).await,
        OutboundError::Rejected(_)
    ));
    assert_eq!(
        fails(Behavior::Silent, Security::Off, 200).await,
        OutboundError::Timeout
    );
    // A server that cannot encrypt receives no credentials, nor does one with an untrusted certificate.
    let (port, mut lines) = mail_server(Behavior::Normal, Security::Off, Arc::clone(&tls)).await;
    let rejected = smtp(port, Security::StartTls, trust())
        .send(&mail())
        .await
        .unwrap_err();
    assert!(matches!(rejected, OutboundError::Rejected(_)), "{rejected}");
    assert_eq!(lines.recv().await.unwrap(), "EHLO dovetail");
    let (_, other) = identity("other");
    let (port, mut lines) = mail_server(Behavior::Normal, Security::Tls, Arc::clone(&tls)).await;
    let untrusted = smtp(port, Security::Tls, Trust::open(Some(&other)).unwrap());
    assert!(matches!(
        untrusted.send(&mail()).await.unwrap_err(),
        OutboundError::Unreachable(_)
    ));
    assert!(lines.try_recv().is_err());
    let mut malformed = mail();
    malformed.to = "ann@example.org>\r\nRCPT TO:<eve@example.org".to_owned();
    let invalid = smtp(port, Security::Tls, trust())
        .send(&malformed)
        .await
        .unwrap_err();
    assert!(matches!(invalid, OutboundError::Invalid(_)), "{invalid}");
    for path in [ca, other] {
        std::fs::remove_file(path).unwrap();
    }
}

/// A web server that answers each request with these bytes and passes on what it received.
async fn web_server(answer: &'static [u8]) -> (u16, UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (received, requests) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let received = received.clone();
            tokio::spawn(async move {
                let mut bytes = vec![0; 65_536];
                let mut text = String::new();
                while !text.contains("\r\n\r\n") || text.contains("hello") == text.ends_with("\r\n\r\n") {
                    let read = stream.read(&mut bytes).await.unwrap_or(0);
                    text.push_str(&String::from_utf8_lossy(&bytes[..read]));
                    if read == 0 || text.ends_with("hello") || text.starts_with("GET") {
                        break;
                    }
                }
                received.send(text).unwrap();
                let _ = stream.write_all(answer).await;
                if answer.is_empty() {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
            });
        }
    });
    (port, requests)
}

fn client(policy: AddressPolicy, timeout_ms: u64) -> Client {
    let trust = Trust::open(None).unwrap();
    Client::new(trust, policy, Duration::from_millis(timeout_ms))
}

fn post() -> HttpRequest {
    HttpRequest {
        method: "POST".to_owned(),
        headers: vec![("content-type".to_owned(), "text/plain".to_owned())],
        body: b"hello".to_vec(),
    }
}

#[tokio::test]
async fn a_request_is_sent_and_its_redirect_is_not_followed() {
    let (port, mut requests) =
        web_server(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 2\r\n\r\nno")
            .await;
    let url = format!("http://127.0.0.1:{port}/hook?x=1").parse().unwrap();
    let response = client(AddressPolicy::Any, 5_000)
        .send(&url, post())
        .await
        .unwrap();
    assert_eq!((response.status, response.body.as_slice()), (302, &b"no"[..]));
    let request = requests.recv().await.unwrap();
    assert!(request.starts_with("POST /hook?x=1 HTTP/1.1\r\n"), "{request}");
    assert!(
        request.to_lowercase().contains("content-length: 5\r\n") && request.ends_with("hello"),
        "{request}"
    );
}

#[tokio::test]
async fn local_addresses_are_not_connected_to_unless_allowed() {
    let (port, mut requests) = web_server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let url = format!("http://{host}:{port}/").parse().unwrap();
        let error = client(AddressPolicy::NonLocal, 5_000)
            .send(&url, post())
            .await
            .unwrap_err();
        assert!(matches!(error, OutboundError::Forbidden(_)), "{host}: {error}");
    }
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn a_server_that_hangs_or_answers_without_end_is_given_up() {
    let (port, _requests) = web_server(b"").await;
    let url = format!("http://127.0.0.1:{port}/").parse().unwrap();
    let error = client(AddressPolicy::Any, 300)
        .send(&url, post())
        .await
        .unwrap_err();
    assert_eq!(error, OutboundError::Timeout);
    assert!(error.is_transient());
    const LONG: &[u8] = &{
        let mut bytes = [b'x'; 3 << 20];
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n";
        let mut at = 0;
        while at < head.len() {
            bytes[at] = head[at];
            at += 1;
        }
        bytes
    };
    let (port, _requests) = web_server(LONG).await;
    let url = format!("http://127.0.0.1:{port}/").parse().unwrap();
    let error = client(AddressPolicy::Any, 5_000)
        .send(&url, post())
        .await
        .unwrap_err();
    assert!(matches!(error, OutboundError::Rejected(_)), "{error}");
    let closed = "http://127.0.0.1:1/".parse().unwrap();
    let error = client(AddressPolicy::Any, 5_000)
        .send(&closed, post())
        .await
        .unwrap_err();
    assert!(matches!(error, OutboundError::Unreachable(_)), "{error}");
}
