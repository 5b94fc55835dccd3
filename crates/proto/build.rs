//! Compiles the protocol without `protoc`.

#![allow(
    clippy::print_stdout,
    reason = "cargo reads a build script's instructions from its output"
)]

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["dovetail/v1/agent.proto"], ["proto"])?;
    tonic_prost_build::configure().btree_map(".").compile_fds(files)?;
    Ok(())
}
