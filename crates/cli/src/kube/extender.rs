//! `dovetail kube extender`: a replacement for HiveD's scheduler extender.

use dovetail_console::{self as console, Failure, OrFailure};
use dovetail_extender::{Options, RunError, Service};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::args::ExtenderArgs;

/// Runs the extender until a signal arrives; pods continue.
///
/// # Errors
/// If the file is invalid, Kubernetes is not configured, or the address is not usable.
pub fn run(args: &ExtenderArgs) -> Result<(), Failure> {
    let level = match args.verbose {
        true => tracing::Level::DEBUG,
        false => tracing::Level::INFO,
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(level)
        .init();
    let options = Options {
        config: args.config.clone(),
        kubeconfig: args.kubeconfig.clone(),
        listen: args.listen.clone(),
        leave_eviction: args.leave_eviction,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .or_work()?;
    runtime.block_on(async {
        let service = Service::open(options).await.map_err(|error| match error {
            RunError::Settings(_) | RunError::Kubernetes(_) => Failure::Request(error.into()),
            RunError::Listen { .. } => Failure::Work(error.into()),
        })?;
        let mut terminate = signal(SignalKind::terminate()).or_work()?;
        let mut interrupt = signal(SignalKind::interrupt()).or_work()?;
        let mut hang_up = signal(SignalKind::hangup()).or_work()?;
        let (ask, reload) = mpsc::channel(1);
        tokio::spawn(async move {
            while hang_up.recv().await.is_some() {
                let _ = ask.try_send(());
            }
        });
        console::print(format!(
            "The extender listens on http://{}/v1/extender.",
            service.address().or_work()?
        ))?;
        let until = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        service.run(reload, until).await.or_work()
    })
}
