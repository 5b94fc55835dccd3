//! What may help with a job that failed, by how it ended and what it said last.

use dovetail_control::book::End;

/// Words in the output, and what they usually mean. The first that is found counts.
const WORDS: &[(&str, &str)] = &[
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
        "The GPU has a fault in its memory: drain the node and have it looked at; the job itself is fine.",
    ),
    (
        "Watchdog caught collective operation timeout",
        "The processes waited for each other until they gave up: one of them hangs, or the network is stuck.",
    ),
    (
        "NCCL error",
        "The processes cannot talk over NCCL: look at NCCL_DEBUG=INFO, NCCL_SOCKET_IFNAME and the firewall between nodes.",
    ),
    (
        "CUDA driver version is insufficient",
        "The program was built for a newer CUDA than the node's driver knows.",
    ),
    (
        "no kernel image is available",
        "The program was built for other GPUs than these: ask for another gpu_type, or build it for these.",
    ),
    (
        "No space left on device",
        "A disk is full: write less, or to another folder.",
    ),
    (
        "ModuleNotFoundError",
        "A Python package is missing in the job's environment: install it, or name the right python.",
    ),
    (
        "ImportError",
        "A Python package is missing or too old in the job's environment.",
    ),
    (
        "SyntaxError",
        "The script is not Python this interpreter can read.",
    ),
    (
        "FileNotFoundError",
        "A file is not there: paths are those of the node, and workdir is where the job starts.",
    ),
    (
        "Permission denied",
        "The job may not read or write something: look at the account it runs as (run_as).",
    ),
    (
        "Address already in use",
        "A port is taken: use MASTER_PORT, which the scheduler chooses for each launch.",
    ),
    (
        "command not found",
        "A program is not there on the node, or not on its PATH.",
    ),
    ("not found", "A program or file is not there on the node."),
];

/// A sentence that may help; empty if nothing comes to mind.
pub(crate) fn hint(end: Option<&End>, last_words: &str) -> String {
    let said = match end {
        Some(End::Failed { .. }) => WORDS.iter().find(|(words, _)| last_words.contains(words)),
        _ => None,
    };
    if let Some((_, hint)) = said {
        return (*hint).to_owned();
    }
    let text = match end {
        Some(End::Failed { why, .. }) if why.starts_with("out of memory") => {
            "It used more memory than it was given: ask for more (memory_per_gpu)."
        }
        Some(End::Failed { exit_code: 126, .. }) => {
            "The program is there but cannot be run: is it executable?"
        }
        Some(End::Failed { exit_code: 127, .. }) => "A program is not there on the node, or not on its PATH.",
        Some(End::Failed { signal: 9, .. }) => {
            "Someone or the system killed it; where memory is short, that is the kernel."
        }
        Some(End::Failed { signal: 11, .. }) => {
            "A native library crashed: run it alone with `python -X faulthandler` to see where."
        }
        Some(End::TimeLimit) => "Give it more time (time_limit), or let it go on from its checkpoint.",
        _ => "",
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_says_more_than_the_code() {
        let failed = |exit_code: i32, signal: i32| End::Failed {
            exit_code,
            signal,
            why: String::new(),
        };
        let of = |end: &End, words: &str| hint(Some(end), words);
        assert!(of(&failed(1, 0), "RuntimeError: CUDA out of memory. Tried").contains("smaller batch"));
        assert!(of(&failed(127, 0), "").contains("PATH"));
        assert!(of(&failed(0, 11), "").contains("crashed"));
        assert!(of(&End::Completed, "CUDA out of memory").is_empty());
        assert!(hint(None, "").is_empty() && of(&failed(3, 0), "fine").is_empty());
    }
}
