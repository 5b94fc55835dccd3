//! Child processes that do not outlive this one, even if it is killed with `SIGKILL`.

use std::io;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Output, Stdio};

/// Kills the process given as its argument when its standard input ends.
const WATCHER: &str = "trap '' INT TERM HUP; read -r _; kill -9 \"$1\"";

/// A child process that is killed when the value is dropped or this process ends for any reason.
///
/// A watcher process kills the child when a pipe from this process closes, which the kernel does also after `SIGKILL`.
/// `PR_SET_PDEATHSIG` is no alternative: it fires when the starting thread ends, and test threads end early.
#[derive(Debug)]
pub struct Subprocess {
    child: Child,
    watcher: Child,
}

impl Subprocess {
    /// Starts a command.
    ///
    /// # Errors
    /// If the command or the watcher does not start.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let watcher = Command::new("sh")
            .args(["-c", WATCHER, "sh", &child.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match watcher {
            Ok(watcher) => Ok(Self { child, watcher }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Runs a command to its end and returns its output.
    ///
    /// # Errors
    /// If the command does not start or its output cannot be read.
    pub fn output(command: &mut Command) -> io::Result<Output> {
        let mut process = Self::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        process.wait_with_output()
    }

    /// Closes standard input, reads standard output and standard error to their ends, and waits until the process ends.
    ///
    /// # Errors
    /// If the output cannot be read.
    pub fn wait_with_output(&mut self) -> io::Result<Output> {
        drop(self.child.stdin.take());
        let errors = self.child.stderr.take();
        let errors = std::thread::spawn(move || read_all(errors));
        let stdout = read_all(self.child.stdout.take())?;
        let stderr = errors
            .join()
            .map_err(|_| io::Error::other("reading standard error failed"))??;
        let status = self.child.wait()?;
        Ok(Output {
            status,
            stdout,
            stderr,
        })
    }
}

fn read_all(from: Option<impl io::Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        from.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

impl Deref for Subprocess {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Subprocess {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Subprocess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The watcher must not see its pipe close: the ID of the child may belong to another process by then.
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
    }
}
