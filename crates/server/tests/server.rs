//! A server in the process of the test.

use dovetail_agent::Images;
use dovetail_server::{LocalAgents, Overrides, Server, ServerConfig};

fn config(data: &std::path::Path) -> ServerConfig {
    let any_port = "127.0.0.1:0".parse().ok();
    let overrides = Overrides {
        data: Some(data.to_owned()),
        http: any_port,
        grpc: any_port,
        policy: Some("srsf".to_owned()),
        no_tls: true,
    };
    ServerConfig::read(overrides, None).expect("the settings are valid")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_creates_its_first_user_once_and_is_restored_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let agents = LocalAgents {
        nodes: 2,
        virtual_gpus: Some(4),
        images: Images::Ignore,
    };
    let server = Server::start(&config, Some(agents), &mut |_| {}).await.unwrap();
    assert!(server.url.starts_with("http://127.0.0.1:"), "{}", server.url);
    assert!(server.first_user.is_some());
    assert!(!server.restored);
    let client = std::fs::read_to_string(dir.path().join("client.yaml")).unwrap();
    assert!(client.contains(&server.url), "{client}");
    let joined = dir.path().join("agent-1/ca.pem");
    let has_joined = async {
        while !joined.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        "joined"
    };
    assert_eq!(server.run_until(has_joined).await.unwrap(), Some("joined"));

    let server = Server::start(&config, None, &mut |_| {}).await.unwrap();
    assert!(server.restored);
    assert_eq!(server.first_user, None);
    assert_eq!(server.run_until(async {}).await.unwrap(), Some(()));
}

#[tokio::test]
async fn an_address_in_use_is_an_error_that_names_the_setting() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = config(dir.path());
    config.grpc = taken.local_addr().unwrap();
    let error = Server::start(&config, None, &mut |_| {}).await.unwrap_err();
    let expected = format!("grpc {}: cannot listen", config.grpc);
    assert!(error.to_string().starts_with(&expected), "{error}");
    assert!(
        !dir.path().join("journal").exists(),
        "the journal belongs to the process with the sockets"
    );
}
