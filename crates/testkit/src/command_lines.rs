//! Commands as text, to compare those of two runtimes.

use dovetail_model::{Allocation, Command, NodeShare, Time};

/// A command and its time, without the numbers of attempts.
pub type CommandLine = (Time, String);

/// Returns an allocation as text.
pub fn place_text(allocation: &Allocation) -> String {
    let share = |s: &NodeShare| {
        let gpus: Vec<String> = s.gpus.iter().map(|gpu| gpu.to_string()).collect();
        let (node, gpus) = (s.node.0, gpus.join(","));
        format!("{node}:{gpus} {}m {}MiB", s.cpu_milli, s.memory_mib)
    };
    allocation.shares.iter().map(share).collect::<Vec<_>>().join(" ")
}

/// Returns a command of the engine as text.
pub fn command_line((at, command): &(Time, Command)) -> CommandLine {
    let text = match command {
        Command::Launch { job, allocation, .. } => format!("launch {} on {}", job.0, place_text(allocation)),
        Command::Resize { job, allocation, .. } => format!("resize {} to {}", job.0, place_text(allocation)),
        Command::Stop { job, .. } => format!("stop {}", job.0),
        Command::Reject { job, .. } => format!("reject {}", job.0),
    };
    (*at, text)
}

/// Compares the commands of a live runtime with those of the simulator, whatever their order within a moment. Returns their
/// number.
///
/// # Panics
/// If they differ, with the first difference.
pub fn assert_same_commands(mut live: Vec<CommandLine>, mut simulated: Vec<CommandLine>) -> usize {
    live.sort();
    simulated.sort();
    let differs = live.iter().zip(&simulated).position(|(a, b)| a != b);
    assert!(
        differs.is_none() && live.len() == simulated.len(),
        "{} live and {} simulated commands; the first difference: live {:?}, simulated {:?}",
        live.len(),
        simulated.len(),
        differs.map(|i| &live[i]),
        differs.map(|i| &simulated[i])
    );
    live.len()
}

/// Returns a function that draws numbers below a limit, always the same ones.
pub fn draws() -> impl FnMut(u64) -> u64 {
    let mut draw = 12_345_u64;
    move |below| {
        draw = draw
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (draw >> 33) % below
    }
}
