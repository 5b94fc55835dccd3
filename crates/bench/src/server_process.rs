//! A server in a process of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::BenchError;
use crate::error::StepResult;

/// A running `dovetail server` or `dovetail up`. It is killed when the value is dropped.
pub(crate) struct ServerProcess(Child);

impl ServerProcess {
    /// Starts a command of this program on free ports, and waits until it prints its address.
    pub(crate) fn start(command: &[&str], folder: &Path) -> Result<Self, BenchError> {
        Self::start_on(0, command, folder)
    }

    /// The same, with this port for agents.
    pub(crate) fn start_on(port: u16, command: &[&str], folder: &Path) -> Result<Self, BenchError> {
        let step = "start the server";
        let grpc = format!("127.0.0.1:{port}");
        let mut child = Command::new(std::env::current_exe().step(step)?)
            .args(command)
            .args(["--http", "127.0.0.1:0", "--grpc", &grpc, "--data"])
            .arg(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .step(step)?;
        let output = child.stdout.take();
        let server = Self(child);
        if let Some(output) = output {
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line).step(step)?;
        }
        Ok(server)
    }

    /// Returns the CPU time of the process so far, in seconds.
    pub(crate) fn cpu_s(&self) -> Result<f64, BenchError> {
        let path = format!("/proc/{}/stat", self.0.id());
        let stat = std::fs::read_to_string(path).step("read the CPU time of the server")?;
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: Vec<u64> = fields
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse().ok())
            .collect();
        match ticks[..] {
            [user, system] => Ok((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64),
            _ => Err(BenchError::Unexpected(
                "no CPU time in the status of the server".to_owned(),
            )),
        }
    }

    /// Returns the resident memory of the process.
    pub(crate) fn memory_kib(&self) -> Result<u64, BenchError> {
        let path = format!("/proc/{}/status", self.0.id());
        let status = std::fs::read_to_string(path).step("read the memory of the server")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
        kib.ok_or_else(|| BenchError::Unexpected("no VmRSS in the status of the server".to_owned()))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
