//! The failure of a command and its exit code.

use std::fmt;
use std::process::ExitCode;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The request was wrong: a bad flag, a bad file, an unknown name. Exit code 2.
    Request(anyhow::Error),
    /// The request was valid, but the work failed. Exit code 1.
    Work(anyhow::Error),
}

impl Failure {
    /// Creates the failure of a wrong request.
    pub fn request(message: impl fmt::Display) -> Self {
        Self::Request(anyhow::anyhow!("{message}"))
    }

    /// Creates the failure of work that could not be completed.
    pub fn work(message: impl fmt::Display) -> Self {
        Self::Work(anyhow::anyhow!("{message}"))
    }

    /// Returns the exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Request(_) => ExitCode::from(2),
            Self::Work(_) => ExitCode::from(1),
        }
    }

    /// Returns whether the reader of our output closed the pipe (`dovetail ... | head`), which counts as success.
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
        // Many errors include the text of their cause; a cause is appended only if it adds something.
        let mut text = error.to_string();
        for cause in error.chain().skip(1).map(ToString::to_string) {
            if !text.contains(&cause) {
                text = format!("{text}: {cause}");
            }
        }
        f.write_str(&text)
    }
}

/// Turns any error into a [`Failure`] of the request or of the work.
pub trait OrFailure<T> {
    /// Marks the error as a wrong request.
    ///
    /// # Errors
    /// The same error as [`Failure::Request`].
    fn or_request(self) -> Result<T, Failure>;

    /// Marks the error as work that failed.
    ///
    /// # Errors
    /// The same error as [`Failure::Work`].
    fn or_work(self) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrFailure<T> for Result<T, E> {
    fn or_request(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::Request(error.into()))
    }

    fn or_work(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::Work(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_shown_once() {
        let io = || std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let plain = Err::<(), _>(anyhow::Error::new(io()).context("cannot read a.yaml")).or_request();
        assert_eq!(plain.unwrap_err().to_string(), "cannot read a.yaml: no such file");
        let repeated =
            Err::<(), _>(anyhow::Error::new(io()).context("cannot read a.yaml: no such file")).or_work();
        assert_eq!(
            repeated.unwrap_err().to_string(),
            "cannot read a.yaml: no such file"
        );
    }

    #[test]
    fn a_closed_pipe_is_recognised_below_its_context() {
        let pipe = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let failure = Failure::Work(anyhow::Error::new(pipe).context("standard output"));
        assert!(failure.is_closed_pipe());
        assert!(!Failure::request("unknown policy").is_closed_pipe());
    }
}
