//! SM activity of GPUs, as DCGM measures it: `dcgmi dmon` runs in the background, and its lines are read as they come.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// DCGM's program.
const PROGRAM: &str = "dcgmi";
/// DCGM's field `DCGM_FI_PROF_SM_ACTIVE`: a share from 0 to 1.
const SM_ACTIVE: &str = "1002";
/// Interval of measurements, in milliseconds.
const INTERVAL_MS: &str = "1000";
/// Age from which on a measurement is not used any more.
const MAX_AGE: Duration = Duration::from_secs(5);

/// The latest measurement of each GPU, in percent.
type Measurements = Arc<Mutex<BTreeMap<u32, (Instant, u32)>>>;

/// A running `dcgmi dmon`, which ends when the value is dropped.
pub(super) struct DcgmMonitor {
    child: Child,
    latest: Measurements,
}

impl DcgmMonitor {
    /// Starts the program; `None` if it is not installed.
    pub(super) fn start() -> Option<Self> {
        Self::start_program(PROGRAM)
    }

    fn start_program(program: &str) -> Option<Self> {
        let mut child = Command::new(program)
            .args(["dmon", "-e", SM_ACTIVE, "-d", INTERVAL_MS])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .inspect_err(|error| tracing::info!("no SM activity: {program}: {error}"))
            .ok()?;
        let output = child.stdout.take()?;
        let latest = Measurements::default();
        let measured = Arc::clone(&latest);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some((gpu, percent)) = parse(&line) {
                    let mut measured = measured.lock().unwrap_or_else(|e| e.into_inner());
                    measured.insert(gpu, (Instant::now(), percent));
                }
            }
        });
        Some(Self { child, latest })
    }

    /// Returns the SM activity of this many GPUs in percent; empty unless all were measured lately.
    pub(super) fn sm_activity(&self, gpus: u32) -> Vec<u32> {
        let latest = self.latest.lock().unwrap_or_else(|e| e.into_inner());
        let fresh = |gpu: u32| latest.get(&gpu).filter(|(at, _)| at.elapsed() < MAX_AGE);
        let values: Option<Vec<u32>> = (0..gpus).map(|gpu| Some(fresh(gpu)?.1)).collect();
        values.unwrap_or_default()
    }
}

impl Drop for DcgmMonitor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parses a line such as `GPU 0     0.432`: the GPU, and its SM activity in percent. Headings and `N/A` give nothing.
fn parse(line: &str) -> Option<(u32, u32)> {
    let mut words = line.split_ascii_whitespace();
    if words.next()? != "GPU" {
        return None;
    }
    let gpu = words.next()?.parse().ok()?;
    let share: f64 = words.next()?.parse().ok()?;
    (0.0..=1.0)
        .contains(&share)
        .then(|| (gpu, (share * 100.0).round() as u32))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn lines_of_dmon_are_parsed() {
        assert_eq!(parse("GPU 3     0.432     "), Some((3, 43)));
        assert_eq!(parse("    GPU 0     1.000"), Some((0, 100)));
        for line in ["#Entity   SMACT", "ID", "GPU 0     N/A", "GPU 0  7", "GPU", ""] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn the_output_of_a_process_is_read_as_it_comes() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("dcgmi");
        let script = "#!/bin/sh\necho \"$@\" > \"$0.args\"\necho '#Entity SMACT'\necho 'GPU 0 0.25'\necho 'GPU 1 0.5'\nexec sleep 60\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let monitor = DcgmMonitor::start_program(program.to_str().unwrap()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while monitor.sm_activity(2).is_empty() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(monitor.sm_activity(2), [25, 50]);
        assert!(monitor.sm_activity(3).is_empty(), "one GPU was not measured");
        let args = std::fs::read_to_string(dir.path().join("dcgmi.args")).unwrap();
        assert_eq!(args, "dmon -e 1002 -d 1000\n");
        assert!(DcgmMonitor::start_program("/nowhere/dcgmi").is_none());
    }
}
