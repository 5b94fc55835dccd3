//! Advice for failed jobs, from how they ended and from their last output.

use dovetail_cluster::state::End;

/// Text in the output, and advice for it. The first match counts.
const OUTPUT_HINTS: &[(&str, &str)] = &[
    (
        "CUDA out of memory",
        "The GPU ran out of memory: use a smaller batch, or GPUs with more memory (gpu_memory).",
    ),
    (
        "CUBLAS_STATUS_ALLOC_FAILED",
        "The GPU ran out of memory: use a smaller batch, or GPUs with more memory (gpu_memory).",
    ),
    (
        "uncorrectable ECC",
        "The GPU has a memory fault: drain the node and have it checked. The job itself is not at fault.",
    ),
    (
        "Watchdog caught collective operation timeout",
        "A collective operation timed out: one of the processes hangs, or the network is stuck.",
    ),
    (
        "NCCL error",
        "NCCL communication failed: check NCCL_DEBUG=INFO, NCCL_SOCKET_IFNAME and the firewall between nodes.",
    ),
    (
        "CUDA driver version is insufficient",
        "The program needs a newer CUDA version than the driver of the node supports.",
    ),
    (
        "no kernel image is available",
        "The program was not built for this GPU type: request another gpu_type, or build it for this one.",
    ),
    (
        "No space left on device",
        "A disk is full: write less, or to another directory.",
    ),
    (
        "ModuleNotFoundError",
        "A Python package is missing in the environment of the job: install it, or use another Python.",
    ),
    (
        "ImportError",
        "A Python package is missing or too old in the environment of the job.",
    ),
    (
        "SyntaxError",
        "The script is not valid for this version of Python.",
    ),
    (
        "FileNotFoundError",
        "A file is missing: paths are those of the node, relative to the working directory (workdir).",
    ),
    (
        "Permission denied",
        "Access was denied: check the account that the job runs as (run_as).",
    ),
    (
        "Address already in use",
        "A port is already in use: use MASTER_PORT, which the scheduler chooses for each attempt.",
    ),
    (
        "command not found",
        "A program is not installed on the node, or not on the PATH.",
    ),
    ("not found", "A program or file is missing on the node."),
];

/// Returns advice for a job that has ended; empty if there is none.
pub(crate) fn failure_hint(end: &End, last_output: &str) -> String {
    let by_output = match end {
        End::Failed { .. } => OUTPUT_HINTS.iter().find(|(text, _)| last_output.contains(text)),
        _ => None,
    };
    if let Some((_, hint)) = by_output {
        return (*hint).to_owned();
    }
    let hint = match end {
        End::Failed { reason, .. } if reason.starts_with("out of memory") => {
            "The job exceeded its memory: request more (memory_per_gpu)."
        }
        End::Failed { exit_code: 126, .. } => "The program cannot be executed: check its permissions.",
        End::Failed { exit_code: 127, .. } => "A program is not installed on the node, or not on the PATH.",
        End::Failed { signal: 9, .. } => {
            "A user or the system killed the job; the kernel does so when the node runs out of memory."
        }
        End::Failed { signal: 11, .. } => {
            "A native library crashed: run the script with `python -X faulthandler` to see where."
        }
        End::TimeLimit => {
            "Raise the limit (time_limit), or resubmit the job to continue from its checkpoint."
        }
        _ => "",
    };
    hint.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_takes_precedence_over_the_exit_code() {
        let failed = |exit_code: i32, signal: i32| End::Failed {
            exit_code,
            signal,
            reason: String::new(),
        };
        assert!(
            failure_hint(&failed(1, 0), "RuntimeError: CUDA out of memory. Tried").contains("smaller batch")
        );
        assert!(failure_hint(&failed(127, 0), "").contains("PATH"));
        assert!(failure_hint(&failed(0, 11), "").contains("crashed"));
        assert!(failure_hint(&End::Completed, "CUDA out of memory").is_empty());
        assert!(failure_hint(&failed(3, 0), "fine").is_empty());
    }
}
