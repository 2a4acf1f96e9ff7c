//! Runs of this program as child processes, for commands that compare runs.

use std::fs;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use kolo_program::Failure;

/// Time between two polls of a run.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// A launcher, killed on drop; its workers end with it.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Waits at most `limit` for the end of the run.
    ///
    /// # Errors
    ///
    /// The operating system does not report the run's state.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>, Failure> {
        self.wait_unless(limit, || false)
    }

    /// Waits for the end of the run until `limit` has passed or `enough` returns true. Returns `None` if the
    /// run has not ended by then.
    ///
    /// # Errors
    ///
    /// The operating system does not report the run's state.
    pub(crate) fn wait_unless(
        &mut self,
        limit: Duration,
        mut enough: impl FnMut() -> bool,
    ) -> Result<Option<ExitStatus>, Failure> {
        let until = Instant::now() + limit;
        loop {
            match self.0.try_wait() {
                Ok(None) if Instant::now() < until && !enough() => std::thread::sleep(LOOK),
                Ok(status) => return Ok(status),
                Err(e) => return Err(Failure::work(format!("cannot wait for a run: {e}"))),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail if the run has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the last error in a run's output, or its last line, as a line to append to a message.
pub(crate) fn last_error(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let error = text.lines().rfind(|line| line.starts_with("error:")).or_else(|| text.lines().last());
    error.map(|line| format!("\nits last words: {line}")).unwrap_or_default()
}
