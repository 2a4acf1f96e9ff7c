//! Holds the terminal while a job runs and restores it afterward.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::stdio::{dup2_stderr, dup2_stdout};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr, ttyname,
};

/// Environment variable that gives workers the terminal that their launcher holds for them.
pub const SCREEN: &str = "KOLO_DASHBOARD_TTY";

/// Switches to the alternate screen and hides the cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";

/// Resets attributes, shows the cursor, and switches back to the main screen.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// Reason why there is no dashboard.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoTerminal {
    /// Standard error is a file or a pipe.
    #[error(
        "standard error is no terminal to show it on; leave --dashboard out, or start the job in a terminal"
    )]
    NotTerminal,
    /// The terminal cannot draw.
    #[error("a terminal with TERM={term} cannot show it; leave --dashboard out, or use another terminal")]
    Dumb {
        /// Value of `TERM`.
        term: String,
    },
    /// The system refuses a required operation.
    #[error("the terminal cannot be used: {0}; leave --dashboard out")]
    System(#[from] io::Error),
}

/// Holds the terminal. The output of this process and its children is kept back and printed when the terminal
/// is restored: when this value is dropped, also by an error or a panic.
#[derive(Debug)]
pub struct Screen {
    tty: File,
    path: PathBuf,
    before: Termios,
    /// The streams that were terminals, in their original state, and the file to which they are redirected.
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    kept: File,
}

impl Screen {
    /// Checks that there is a terminal to hold.
    ///
    /// # Errors
    ///
    /// If standard error is not a terminal, or is one that cannot draw.
    pub fn check() -> Result<(), NoTerminal> {
        if !io::stderr().is_terminal() {
            return Err(NoTerminal::NotTerminal);
        }
        let term = std::env::var("TERM").unwrap_or_default();
        if term.is_empty() || term == "dumb" { Err(NoTerminal::Dumb { term }) } else { Ok(()) }
    }

    /// Takes the terminal of standard error.
    ///
    /// # Errors
    ///
    /// Those of [`Screen::check`], or if the system refuses a required operation on the terminal.
    pub fn hold() -> Result<Screen, NoTerminal> {
        Screen::check()?;
        let stderr = io::stderr();
        let name = ttyname(stderr.as_fd(), Vec::new()).map_err(io::Error::from)?;
        let path = PathBuf::from(name.to_string_lossy().into_owned());
        let mut tty = OpenOptions::new().read(true).write(true).open(&path)?;
        let before = tcgetattr(&tty).map_err(io::Error::from)?;
        let (kept, appended) = kept()?;
        let stdout = redirect(&io::stdout(), &appended, |file| dup2_stdout(file))?;
        let stderr = redirect(&stderr, &appended, |file| dup2_stderr(file))?;
        // From here on, dropping `screen` restores everything.
        let screen = Screen { tty: tty.try_clone()?, path, before, stdout, stderr, kept };
        tcsetattr(&tty, OptionalActions::Now, &quiet(&screen.before)).map_err(io::Error::from)?;
        tty.write_all(ENTER)?;
        Ok(screen)
    }

    /// Returns the path of the terminal, for the [`Painter`](crate::Painter).
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Errors are ignored: if the terminal is gone, nobody would see a report.
        let _ = io::stdout().flush();
        let _ = self.tty.write_all(LEAVE);
        let _ = tcsetattr(&self.tty, OptionalActions::Flush, &self.before);
        if let Some(stdout) = &self.stdout {
            let _ = dup2_stdout(stdout);
        }
        if let Some(stderr) = &self.stderr {
            let _ = dup2_stderr(stderr);
        }
        let _ = self.kept.rewind();
        let _ = io::copy(&mut self.kept, &mut self.tty);
    }
}

/// Returns an unnamed file, as a handle to read and one to write.
fn kept() -> io::Result<(File, File)> {
    let file = tempfile::NamedTempFile::new()?;
    // Both streams of several processes append to it.
    let appended = OpenOptions::new().append(true).open(file.path())?;
    Ok((file.into_file(), appended))
}

/// Redirects a stream to the file if it is a terminal, and returns the original.
fn redirect(
    stream: &(impl IsTerminal + AsFd),
    file: &File,
    lead: impl FnOnce(&File) -> rustix::io::Result<()>,
) -> io::Result<Option<OwnedFd>> {
    if !stream.is_terminal() {
        return Ok(None);
    }
    let before = stream.as_fd().try_clone_to_owned()?;
    lead(file)?;
    Ok(Some(before))
}

/// Turns off the echo of input, and Ctrl-S and Ctrl-Z, which would freeze the picture. Ctrl-C works as usual.
fn quiet(before: &Termios) -> Termios {
    let mut modes = before.clone();
    modes.local_modes.remove(LocalModes::ECHO);
    modes.input_modes.remove(InputModes::IXON);
    // This value disables a special character.
    modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
    modes
}
