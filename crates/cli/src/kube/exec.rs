//! `dovetail kube exec`: a command in a pod of a job, through the API server.

use std::io::{Read, Write};
use std::process::ExitCode;

use dovetail_console::{Failure, OrFailure};
use dovetail_kube::{place, pods_in};
use dovetail_kubeapi::{Client, Config, Ended, Exec, ExecRequest, Input, Output};
use tokio::sync::mpsc;

use super::args::ExecArgs;

/// Runs a command and returns its exit code.
pub(super) fn run(args: &ExecArgs) -> Result<ExitCode, Failure> {
    let config = Config::find(args.kubeconfig.as_deref(), args.context.as_deref()).or_request()?;
    let namespace = args.namespace.clone().unwrap_or_else(|| config.namespace.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .or_work()?;
    let client = Client::new(config);
    let ended = runtime.block_on(async {
        let pods = pods_in(&client, &namespace).await.or_work()?;
        let place = place(&pods, &args.name, args.task.as_ref(), args.container.as_deref());
        let place = place.map_err(|error| Failure::request(format!("namespace {namespace}: {error}")))?;
        if place.among > 1 {
            eprintln!(
                "note: using pod {}, the first of {} running; choose another with --task",
                place.pod, place.among
            );
        }
        let request = ExecRequest {
            namespace,
            pod: place.pod,
            container: place.container,
            command: args.command.clone(),
            stdin: args.stdin,
            tty: args.tty,
        };
        let exec = client.exec(&request).await.or_work()?;
        follow(exec, &request).await
    })?;
    match ended {
        // Exit codes end at 255; a negative one means that it is unknown.
        Ended::Code(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
        Ended::Failed(reason) => Err(Failure::work(format!("{}: {reason}", args.name))),
    }
}

/// Forwards input and output until the command ends.
async fn follow(mut exec: Exec, request: &ExecRequest) -> Result<Ended, Failure> {
    let _terminal = terminal::Terminal::begin(request, exec.input());
    if request.stdin {
        tokio::spawn(forward_stdin(exec.input()));
    }
    loop {
        match exec.next().await.or_work()? {
            Output::Stdout(bytes) => print(&mut std::io::stdout(), &bytes)?,
            Output::Stderr(bytes) => print(&mut std::io::stderr(), &bytes)?,
            Output::Ended(ended) => return Ok(ended),
        }
    }
}

fn print(to: &mut impl Write, bytes: &[u8]) -> Result<(), Failure> {
    to.write_all(bytes).and_then(|()| to.flush()).or_work()
}

/// Forwards standard input.
async fn forward_stdin(input: Input) {
    let (sender, mut pieces) = mpsc::channel::<Vec<u8>>(4);
    // On its own thread, because a blocking read cannot be interrupted; it ends with the process.
    std::thread::spawn(move || {
        let mut bytes = vec![0; 8192];
        while let Ok(count @ 1..) = std::io::stdin().lock().read(&mut bytes) {
            if sender.blocking_send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    while let Some(bytes) = pieces.recv().await {
        if !input.write(&bytes).await {
            return;
        }
    }
    if !input.end().await {
        eprintln!(
            "note: this API server does not support closing the input; end the command yourself if it waits for more"
        );
    }
}

/// The local terminal, while the command has one.
#[cfg(target_os = "linux")]
mod terminal {
    use std::io::{IsTerminal, stdin};

    use dovetail_kubeapi::{ExecRequest, Input};
    use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
    use tokio::signal::unix::{SignalKind, signal};

    /// Switches the terminal to raw mode; dropping the value restores it.
    pub(super) struct Terminal {
        before: Option<Termios>,
    }

    impl Terminal {
        pub(super) fn begin(request: &ExecRequest, input: Input) -> Self {
            if !request.tty {
                return Self { before: None };
            }
            tokio::spawn(send_size(input));
            let before = tcgetattr(stdin())
                .ok()
                .filter(|_| request.stdin && stdin().is_terminal());
            if let Some(mut raw) = before.clone() {
                raw.make_raw();
                let _ = tcsetattr(stdin(), OptionalActions::Now, &raw);
            }
            Self { before }
        }
    }

    impl Drop for Terminal {
        fn drop(&mut self) {
            if let Some(before) = &self.before {
                let _ = tcsetattr(stdin(), OptionalActions::Now, before);
            }
        }
    }

    /// Sends the terminal size, and again whenever it changes.
    async fn send_size(input: Input) {
        let Ok(mut changes) = signal(SignalKind::window_change()) else {
            return;
        };
        loop {
            // Output may be redirected while input is a terminal.
            let size = tcgetwinsize(stdin()).or_else(|_| tcgetwinsize(std::io::stdout()));
            if let Ok(size) = size {
                input.resize(size.ws_col, size.ws_row).await;
            }
            if changes.recv().await.is_none() {
                return;
            }
        }
    }
}

/// On other systems input is line-buffered, and the size is not sent.
#[cfg(not(target_os = "linux"))]
mod terminal {
    use dovetail_kubeapi::{ExecRequest, Input};

    pub(super) struct Terminal;

    impl Terminal {
        pub(super) fn begin(_: &ExecRequest, _: Input) -> Self {
            Self
        }
    }
}
