//! Real sockets: a web server and a mail server in this process, well-behaved and otherwise.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dovetail_courier::{Client, CourierError, Guard, Mail, Outgoing, Security, Smtp, Trust};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A certificate for loopback, and the file it is believed by.
fn identity(name: &str) -> (Arc<rustls::ServerConfig>, PathBuf) {
    let made =
        rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let path = std::env::temp_dir().join(format!("courier-{name}-{}.pem", std::process::id()));
    std::fs::write(&path, made.cert.pem()).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    (Arc::new(config), path)
}

/// How a mail server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Well,
    /// It offers LOGIN only.
    Login,
    /// It has no room for now.
    Busy,
    /// It knows nobody.
    Refuses,
    /// It says something between STARTTLS and the handshake.
    Injects,
    /// It says nothing.
    Silent,
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    manner: Manner,
    starttls: bool,
    seen: &UnboundedSender<String>,
) -> Option<S> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return None;
        }
        let words = line.trim_end().to_owned();
        seen.send(words.clone()).unwrap();
        let answer = match words.split(' ').next().unwrap() {
            "EHLO" => {
                let auth = if manner == Manner::Login {
                    "LOGIN"
                } else {
                    "PLAIN LOGIN"
                };
                let tls = if starttls { "250-STARTTLS\r\n" } else { "" };
                format!("250-mail\r\n{tls}250-SIZE 1000\r\n250 AUTH {auth}\r\n")
            }
            "STARTTLS" if manner == Manner::Injects => "220 go\r\n250 injected\r\n".to_owned(),
            "STARTTLS" => {
                stream.write_all(b"220 go\r\n").await.unwrap();
                return Some(stream.into_inner());
            }
            "AUTH" if words == "AUTH LOGIN" => "334 VXNlcm5hbWU6\r\n".to_owned(),
            "AUTH" => "235 welcome\r\n".to_owned(),
            "Ym90" => "334 UGFzc3dvcmQ6\r\n".to_owned(),
            "aHVzaA==" => "235 welcome\r\n".to_owned(),
            "MAIL" if manner == Manner::Busy => "451 try later\r\n".to_owned(),
            "MAIL" => "250 ok\r\n".to_owned(),
            "RCPT" if manner == Manner::Refuses => "550 nobody of that name\r\n".to_owned(),
            "RCPT" => "250 ok\r\n".to_owned(),
            "DATA" => {
                stream.write_all(b"354 go on\r\n").await.unwrap();
                let mut message = String::new();
                while !message.ends_with("\r\n.\r\n") {
                    assert_ne!(stream.read_line(&mut message).await.unwrap(), 0);
                }
                seen.send(message).unwrap();
                "250 taken\r\n".to_owned()
            }
            "QUIT" => "221 bye\r\n".to_owned(),
            _ => "500 what?\r\n".to_owned(),
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

async fn mail_server(
    manner: Manner,
    security: Security,
    tls: Arc<rustls::ServerConfig>,
) -> (u16, UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, heard) = unbounded_channel();
    let acceptor = tokio_rustls::TlsAcceptor::from(tls);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            if manner == Manner::Silent {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            match security {
                Security::Tls => {
                    let Ok(mut stream) = acceptor.accept(stream).await else {
                        continue;
                    };
                    stream.write_all(b"220 mail\r\n").await.unwrap();
                    serve(stream, manner, false, &seen).await;
                }
                Security::Off => {
                    stream.write_all(b"220-mail\r\n220 ready\r\n").await.unwrap();
                    serve(stream, manner, false, &seen).await;
                }
                Security::StartTls => {
                    stream.write_all(b"220 mail\r\n").await.unwrap();
                    if let Some(stream) = serve::<TcpStream>(stream, manner, true, &seen).await
                        && let Ok(stream) = acceptor.accept(stream).await
                    {
                        seen.send("(encrypted)".to_owned()).unwrap();
                        serve(stream, manner, false, &seen).await;
                    }
                }
            }
        }
    });
    (port, heard)
}

fn mail() -> Mail {
    Mail {
        to: "ann@example.org".to_owned(),
        subject: "job 7 has failed\r\nBcc: eve@example.org".to_owned(),
        text: "It said:\n.\n.hidden\nQUIT\n".to_owned(),
        at: 1_794_882_707,
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
        patience: Duration::from_secs(5),
    }
}

#[tokio::test]
async fn mail_is_taken_in_the_open_over_tls_and_after_starttls() {
    let (tls, ca) = identity("mail");
    for security in [Security::Off, Security::Tls, Security::StartTls] {
        for manner in [Manner::Well, Manner::Login] {
            let (port, mut heard) = mail_server(manner, security, Arc::clone(&tls)).await;
            let smtp = smtp(port, security, Trust::open(Some(&ca)).unwrap());
            smtp.send(&mail()).await.unwrap();
            let mut said = Vec::new();
            while let Ok(words) = heard.try_recv() {
                said.push(words);
            }
            let message = said.iter().find(|w| w.starts_with("Date: ")).unwrap();
            assert!(
                message.contains("\r\nSubject: job 7 has failed  Bcc: eve@example.org\r\n"),
                "{message}"
            );
            assert!(
                message.contains("\r\nFrom: Dovetail <dovetail@example.org>\r\n"),
                "{message}"
            );
            assert!(
                message.ends_with("It said:\r\n..\r\n..hidden\r\nQUIT\r\n.\r\n"),
                "{message}"
            );
            let before: Vec<&String> = said.iter().take_while(|w| *w != "(encrypted)").collect();
            if security == Security::StartTls {
                assert_eq!(
                    before,
                    ["EHLO dovetail", "STARTTLS"],
                    "no secret goes over the wire in the open"
                );
            }
            assert_eq!(said.iter().filter(|w| w.starts_with("RCPT")).count(), 1);
        }
    }
    std::fs::remove_file(ca).unwrap();
}

#[tokio::test]
async fn what_a_mail_server_says_is_understood() {
    let (tls, ca) = identity("manners");
    let trust = || Trust::open(Some(&ca)).unwrap();
    let fails = async |manner: Manner, security: Security, patience: u64| {
        let (port, _heard) = mail_server(manner, security, Arc::clone(&tls)).await;
        let mut smtp = smtp(port, security, trust());
        smtp.patience = Duration::from_millis(patience);
        smtp.send(&mail()).await.unwrap_err()
    };
    assert!(matches!(
        fails(Manner::Busy, Security::Off, 5_000).await,
        CourierError::Later(_)
    ));
    let refused = fails(Manner::Refuses, Security::Off, 5_000).await;
    assert!(
        matches!(&refused, CourierError::Refused(why) if why.contains("nobody")),
        "{refused}"
    );
    assert!(!refused.may_pass());
    assert!(matches!(
        fails(Manner::Injects, Security::StartTls, 5_000).await,
        CourierError::Refused(_)
    ));
    assert_eq!(
        fails(Manner::Silent, Security::Off, 200).await,
        CourierError::TooSlow
    );
    // A server that cannot encrypt is told nothing, and one that nobody vouches for neither.
    let (port, mut heard) = mail_server(Manner::Well, Security::Off, Arc::clone(&tls)).await;
    let refused = smtp(port, Security::StartTls, trust())
        .send(&mail())
        .await
        .unwrap_err();
    assert!(matches!(refused, CourierError::Refused(_)), "{refused}");
    assert_eq!(heard.recv().await.unwrap(), "EHLO dovetail");
    let (_, other) = identity("other");
    let (port, mut heard) = mail_server(Manner::Well, Security::Tls, Arc::clone(&tls)).await;
    let stranger = smtp(port, Security::Tls, Trust::open(Some(&other)).unwrap());
    assert!(matches!(
        stranger.send(&mail()).await.unwrap_err(),
        CourierError::Unreachable(_)
    ));
    assert!(heard.try_recv().is_err());
    let mut wrong = mail();
    wrong.to = "ann@example.org>\r\nRCPT TO:<eve@example.org".to_owned();
    let refused = smtp(port, Security::Tls, trust()).send(&wrong).await.unwrap_err();
    assert!(matches!(refused, CourierError::Invalid(_)), "{refused}");
    for path in [ca, other] {
        std::fs::remove_file(path).unwrap();
    }
}

/// A web server that answers each request with these bytes, and tells what it was sent.
async fn web_server(answer: &'static [u8]) -> (u16, UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (seen, heard) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let seen = seen.clone();
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
                seen.send(text).unwrap();
                let _ = stream.write_all(answer).await;
                if answer.is_empty() {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
            });
        }
    });
    (port, heard)
}

fn client(guard: Guard, patience_ms: u64) -> Client {
    let trust = Trust::open(None).unwrap();
    Client::new(trust, guard, Duration::from_millis(patience_ms))
}

fn post() -> Outgoing {
    Outgoing {
        method: "POST".to_owned(),
        headers: vec![("content-type".to_owned(), "text/plain".to_owned())],
        body: b"hello".to_vec(),
    }
}

#[tokio::test]
async fn a_request_is_sent_and_nothing_is_followed() {
    let (port, mut heard) =
        web_server(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 2\r\n\r\nno")
            .await;
    let url = format!("http://127.0.0.1:{port}/hook?x=1").parse().unwrap();
    let reply = client(Guard::Any, 5_000).send(&url, post()).await.unwrap();
    assert_eq!((reply.status, reply.body.as_slice()), (302, &b"no"[..]));
    let seen = heard.recv().await.unwrap();
    assert!(seen.starts_with("POST /hook?x=1 HTTP/1.1\r\n"), "{seen}");
    assert!(
        seen.to_lowercase().contains("content-length: 5\r\n") && seen.ends_with("hello"),
        "{seen}"
    );
}

#[tokio::test]
async fn this_machine_is_not_dialled_unless_that_is_allowed() {
    let (port, mut heard) = web_server(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let url = format!("http://{host}:{port}/").parse().unwrap();
        let refused = client(Guard::Others, 5_000).send(&url, post()).await.unwrap_err();
        assert!(matches!(refused, CourierError::Forbidden(_)), "{host}: {refused}");
    }
    assert!(heard.try_recv().is_err());
}

#[tokio::test]
async fn whoever_hangs_or_talks_without_end_is_left() {
    let (port, _heard) = web_server(b"").await;
    let url = format!("http://127.0.0.1:{port}/").parse().unwrap();
    let error = client(Guard::Any, 300).send(&url, post()).await.unwrap_err();
    assert_eq!(error, CourierError::TooSlow);
    assert!(error.may_pass());
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
    let (port, _heard) = web_server(LONG).await;
    let url = format!("http://127.0.0.1:{port}/").parse().unwrap();
    let error = client(Guard::Any, 5_000).send(&url, post()).await.unwrap_err();
    assert!(matches!(error, CourierError::Refused(_)), "{error}");
    let nobody = "http://127.0.0.1:1/".parse().unwrap();
    let error = client(Guard::Any, 5_000).send(&nobody, post()).await.unwrap_err();
    assert!(matches!(error, CourierError::Unreachable(_)), "{error}");
}
