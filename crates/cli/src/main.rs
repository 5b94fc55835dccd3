//! The `dovetail` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    dovetail::main()
}
