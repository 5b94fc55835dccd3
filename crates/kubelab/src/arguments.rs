//! Command-line arguments of the control plane's components.

use std::path::{Path, PathBuf};

use crate::ports::Ports;
use crate::settings::{Scheduler, Settings};
use crate::{LabError, kubeconfig};

/// Builds the arguments of each component from the lab's folder and ports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arguments<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) ports: &'a Ports,
    /// Kubeconfig of the administrator.
    pub(crate) kubeconfig: &'a Path,
    pub(crate) settings: &'a Settings,
}

impl Arguments<'_> {
    pub(crate) fn etcd(&self) -> Vec<String> {
        vec![
            format!("--data-dir={}", self.path("etcd").display()),
            format!("--client-url=http://127.0.0.1:{}", self.ports.etcd),
            format!("--peer-url=http://127.0.0.1:{}", self.ports.etcd_peers),
        ]
    }

    pub(crate) fn api_server(&self) -> Vec<String> {
        let accounts = self.path("service-accounts");
        let mut args = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--client-ca-file={}", self.path("ca.pem").display()),
            format!("--service-account-key-file={}.pub", accounts.display()),
            format!("--service-account-signing-key-file={}.key", accounts.display()),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--anonymous-auth=false".to_owned(),
            // No controller creates default service accounts or removes taints from new nodes.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--allow-privileged=true".to_owned(),
            // Node names do not resolve.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!(
                "--kubelet-client-certificate={}",
                self.path("kubelab-admin.pem").display()
            ),
            format!(
                "--kubelet-client-key={}",
                self.path("kubelab-admin.key").display()
            ),
            // Benchmarks measure the scheduler, not the server's rate limits.
            "--enable-priority-and-fairness=false".to_owned(),
            "--max-requests-inflight=4000".to_owned(),
            "--max-mutating-requests-inflight=4000".to_owned(),
            "--shutdown-delay-duration=0s".to_owned(),
            // Open watches would delay the shutdown by a minute.
            "--shutdown-watch-termination-grace-period=1s".to_owned(),
            "--profiling=false".to_owned(),
        ];
        args.extend(self.serving(self.ports.api));
        args.extend(self.feature_gates());
        let runtime_config = &self.settings.runtime_config;
        if !runtime_config.is_empty() {
            args.push(format!("--runtime-config={}", runtime_config.join(",")));
        }
        args.extend(self.settings.api_server.iter().cloned());
        args
    }

    pub(crate) fn controller_manager(&self) -> Vec<String> {
        let mut args = vec![
            format!("--controllers={}", self.settings.controllers.join(",")),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!(
                "--service-account-private-key-file={}",
                self.path("service-accounts.key").display()
            ),
            format!("--root-ca-file={}", self.path("ca.pem").display()),
            "--kube-api-qps=5000".to_owned(),
            "--kube-api-burst=5000".to_owned(),
            "--leader-elect=false".to_owned(),
        ];
        args.extend(self.delegated_authentication());
        args.extend(self.serving(self.ports.controllers));
        args.extend(self.feature_gates());
        args.extend(self.settings.controller_manager.iter().cloned());
        args
    }

    /// Writes the scheduler's configuration file and returns the arguments that name it.
    pub(crate) fn scheduler(&self, scheduler: &Scheduler) -> Result<Vec<String>, LabError> {
        let file = self.path("kube-scheduler.yaml");
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: {kubeconfig}
  qps: {rate}
  burst: {rate}
leaderElection:
  leaderElect: false
{configuration}",
            kubeconfig = self.kubeconfig.display(),
            rate = scheduler.requests_per_second,
            configuration = scheduler.configuration,
        );
        kubeconfig::write_private(&file, &text)?;
        let mut args = vec![format!("--config={}", file.display())];
        args.extend(self.delegated_authentication());
        args.extend(self.serving(self.ports.scheduler));
        args.extend(self.feature_gates());
        Ok(args)
    }

    /// Arguments of a component that lets the API server authenticate and authorize its own clients.
    fn delegated_authentication(&self) -> [String; 3] {
        let kubeconfig = self.kubeconfig.display();
        [
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            format!("--client-ca-file={}", self.path("ca.pem").display()),
        ]
    }

    fn serving(&self, port: u16) -> [String; 4] {
        [
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", self.path("server.pem").display()),
            format!("--tls-private-key-file={}", self.path("server.key").display()),
        ]
    }

    fn feature_gates(&self) -> Option<String> {
        let gates = &self.settings.feature_gates;
        (!gates.is_empty()).then(|| format!("--feature-gates={}", gates.join(",")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
