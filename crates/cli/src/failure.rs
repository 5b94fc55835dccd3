//! How a command fails: the request was wrong (2), or the work failed (1).

use std::fmt;
use std::process::ExitCode;

/// Why a command ends without success.
#[derive(Debug)]
pub enum Failure {
    /// A bad flag, a bad file, an unknown name.
    Request(anyhow::Error),
    /// The request was fine, but the work failed.
    Work(anyhow::Error),
}

impl Failure {
    /// A request that is wrong, in one sentence.
    pub fn request(message: impl fmt::Display) -> Self {
        Self::Request(anyhow::anyhow!("{message}"))
    }

    /// The exit code.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Request(_) => ExitCode::from(2),
            Self::Work(_) => ExitCode::from(1),
        }
    }

    /// Whether whoever read our output has gone away, which is no failure (`dovetail ... | head`).
    pub fn is_closed_pipe(&self) -> bool {
        let (Self::Request(error) | Self::Work(error)) = self;
        error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
            .any(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Request(error) | Self::Work(error)) = self;
        // Many errors already say what caused them: a cause is added only if it says something new.
        let mut text = error.to_string();
        for cause in error.chain().skip(1).map(ToString::to_string) {
            if !text.contains(&cause) {
                text = format!("{text}: {cause}");
            }
        }
        f.write_str(&text)
    }
}

/// Marks what went wrong as the request's fault or the work's.
pub trait Blame<T> {
    /// The request was wrong.
    ///
    /// # Errors
    /// The same error, marked.
    fn or_request(self) -> Result<T, Failure>;

    /// The work failed.
    ///
    /// # Errors
    /// The same error, marked.
    fn or_work(self) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> Blame<T> for Result<T, E> {
    fn or_request(self) -> Result<T, Failure> {
        self.map_err(|e| Failure::Request(e.into()))
    }

    fn or_work(self) -> Result<T, Failure> {
        self.map_err(|e| Failure::Work(e.into()))
    }
}
