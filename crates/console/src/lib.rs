//! What all commands share: failures with exit codes, tables, progress bars, temporary folders and readable names.

mod failure;
mod names;
mod output;
mod progress;
mod scratch;

pub use failure::{Failure, OrFailure};
pub use names::Names;
pub use output::{align_numbers, colours, error_label, print, table, width};
pub use progress::{ProgressBar, progress_bar};
pub use scratch::{ScratchError, ScratchFolder};
