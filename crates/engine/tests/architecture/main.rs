//! The rules of `docs/architecture.md` that can be checked on the sources: what the deciding crates must not touch,
//! which crates may depend on which, and how large functions and files may be.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod layers;
mod purity;
mod shape;

use std::fs;
use std::path::{Path, PathBuf};

/// The folder that holds all crates.
fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All Rust files below a folder, sorted.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// A file's path relative to the folder of all crates, such as `engine/src/round.rs`.
fn shown(file: &Path) -> String {
    file.strip_prefix(crates()).unwrap().display().to_string()
}
