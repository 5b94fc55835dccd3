//! An in-memory Kubernetes with the guarantees that the extender relies on, the extender behind a real socket, and
//! requests as kube-scheduler sends them.

#![allow(dead_code, reason = "each test uses a part of this module")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dovetail_cells::Layout;
use dovetail_extender::kubernetes::{Cluster, ClusterError, CommandFuture};
use dovetail_extender::server::{SharedExtender, router, serve};
use dovetail_extender::{BindCommand, Eviction, Extender, Rules};
use dovetail_hived::{ENABLE, SPEC};
use dovetail_kubeapi::{Node, Pod};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// Pods by uid, and nodes with their readiness.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) pods: BTreeMap<String, Value>,
    pub(crate) nodes: BTreeMap<String, bool>,
    bindings: u32,
    names: u32,
}

#[derive(Clone, Default)]
pub(crate) struct Kubernetes(pub(crate) Arc<Mutex<Memory>>);

impl Kubernetes {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Memory) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    pub(crate) fn nodes(&self) -> Vec<Node> {
        self.with(|m| {
            let node = |(name, ready): (&String, &bool)| {
                let ready = if *ready { "True" } else { "False" };
                json!({"metadata": {"name": name}, "spec": {},
                    "status": {"conditions": [{"type": "Ready", "status": ready}]}})
            };
            m.nodes.iter().map(node).map(parsed).collect()
        })
    }

    pub(crate) fn pods(&self) -> Vec<Pod> {
        self.with(|m| m.pods.values().cloned().map(parsed).collect())
    }

    pub(crate) fn pod(&self, uid: &str) -> Option<Pod> {
        self.with(|m| m.pods.get(uid).cloned()).map(parsed)
    }

    /// Creates a pod as OpenPAI does. Returns its uid.
    pub(crate) fn create(&self, name: &str, spec: &str) -> String {
        self.with(|m| {
            m.names += 1;
            let uid = format!("{name}#{}", m.names);
            m.pods.insert(uid.clone(), pod(name, &uid, spec));
            uid
        })
    }
}

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn pod(name: &str, uid: &str, spec: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "test", "uid": uid, "annotations": {SPEC: spec},
            "creationTimestamp": "2026-11-17T00:00:00Z"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {ENABLE: "1"}}}]},
        "status": {"phase": "Pending"}})
}

impl Cluster for Kubernetes {
    fn bind<'a>(&'a self, command: &'a BindCommand) -> CommandFuture<'a> {
        Box::pin(async move {
            let refused = |code: u16, message: &str| {
                Err(ClusterError {
                    code: Some(code),
                    message: message.to_owned(),
                })
            };
            self.with(|m| {
                m.bindings += 1;
                let at = m.bindings;
                let Some(pod) = m.pods.get_mut(&command.pod.uid) else {
                    return refused(404, "the pod does not exist");
                };
                if pod["spec"]["nodeName"].is_string() {
                    return refused(409, "the pod is bound already");
                }
                pod["spec"]["nodeName"] = json!(command.node);
                for (key, value) in &command.annotations {
                    pod["metadata"]["annotations"][key] = json!(value);
                }
                let time = format!("2026-11-17T{:02}:{:02}:{:02}Z", at / 3600, at / 60 % 60, at % 60);
                pod["status"]["conditions"] =
                    json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": time}]);
                Ok(())
            })
        })
    }

    fn evict<'a>(&'a self, eviction: &'a Eviction) -> CommandFuture<'a> {
        Box::pin(async move {
            self.with(|m| m.pods.remove(&eviction.pod.uid));
            Ok(())
        })
    }
}

/// The extender behind a socket. It stops when the value is dropped.
pub(crate) struct Server {
    pub(crate) shared: Arc<SharedExtender>,
    pub(crate) address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    runtime: Runtime,
}

impl Server {
    pub(crate) fn start(layout: Layout, rules: Rules, kubernetes: &Kubernetes, wait_delay: Duration) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let shared = Arc::new(SharedExtender::new(
            Extender::new(layout, rules),
            kubernetes.clone(),
            wait_delay,
        ));
        shared.sync_nodes(&kubernetes.nodes());
        shared.sync_pods(&kubernetes.pods());
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let routes = router(Arc::clone(&shared));
        runtime.spawn(serve(listener, routes, async move { drop(ended.await) }));
        Self {
            shared,
            address,
            end: Some(end),
            runtime,
        }
    }

    /// Reports the present state of a pod, as a watch does.
    pub(crate) fn report(&self, kubernetes: &Kubernetes, uid: &str) {
        match kubernetes.pod(uid) {
            Some(pod) => self.shared.with(|e, now| e.update_pod(&pod, now)),
            None => self.shared.with(|e, now| e.remove_pod(uid, now)),
        }
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        request(self.address, "GET", path, b"")
    }

    pub(crate) fn post(&self, verb: &str, body: &Value) -> (u16, Value) {
        let path = format!("/v1/extender/{verb}");
        request(self.address, "POST", &path, body.to_string().as_bytes())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.end.take());
    }
}

/// Sends one request over its own connection.
pub(crate) fn request(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses a body may not read all of it.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n").expect("a response has a header");
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, serde_json::from_str(body).unwrap_or(Value::Null))
}
