//! The terminal of a job: held while it runs, and given back in order.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::stdio::{dup2_stderr, dup2_stdout};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr, ttyname,
};

/// The environment variable by which workers know the terminal that their launcher holds for them.
pub const SCREEN: &str = "KOLO_DASHBOARD_TTY";

/// To the alternate screen, without a cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";

/// Attributes as usual, the cursor, and back to the usual screen.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";

/// Why there is no dashboard.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoTerminal {
    /// Standard error is a file or a pipe.
    #[error(
        "standard error is no terminal to show it on; leave --dashboard out, or start the job in a terminal"
    )]
    NotTerminal,
    /// It is a terminal that draws nothing.
    #[error("a terminal with TERM={term} cannot show it; leave --dashboard out, or use another terminal")]
    Dumb {
        /// What `TERM` says.
        term: String,
    },
    /// The system refuses what is needed of it.
    #[error("the terminal cannot be used: {0}; leave --dashboard out")]
    System(#[from] io::Error),
}

/// Holds the terminal. What this process and its children print meanwhile is kept back, and comes when the
/// terminal is given back: when this is dropped, by an error or a panic as well.
pub struct Screen {
    tty: File,
    path: PathBuf,
    before: Termios,
    /// The streams that were terminals, as they were, and where they lead meanwhile.
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    kept: File,
}

impl Screen {
    /// Whether there is a terminal to hold.
    ///
    /// # Errors
    ///
    /// Standard error is none, or one that cannot draw.
    pub fn check() -> Result<(), NoTerminal> {
        if !io::stderr().is_terminal() {
            return Err(NoTerminal::NotTerminal);
        }
        let term = std::env::var("TERM").unwrap_or_default();
        if term.is_empty() || term == "dumb" { Err(NoTerminal::Dumb { term }) } else { Ok(()) }
    }

    /// Takes the terminal that standard error is.
    ///
    /// # Errors
    ///
    /// As [`Screen::check`], or the system refuses what is needed of the terminal.
    pub fn hold() -> Result<Screen, NoTerminal> {
        Screen::check()?;
        let stderr = io::stderr();
        let name = ttyname(stderr.as_fd(), Vec::new()).map_err(io::Error::from)?;
        let path = PathBuf::from(name.to_string_lossy().into_owned());
        let mut tty = OpenOptions::new().read(true).write(true).open(&path)?;
        let before = tcgetattr(&tty).map_err(io::Error::from)?;
        let (kept, mine) = kept()?;
        let stdout = keep_back(&io::stdout(), &mine, |file| dup2_stdout(file))?;
        let stderr = keep_back(&stderr, &mine, |file| dup2_stderr(file))?;
        // From here on dropping it puts everything in order.
        let screen = Screen { tty: tty.try_clone()?, path, before, stdout, stderr, kept };
        tcsetattr(&tty, OptionalActions::Now, &quiet(&screen.before)).map_err(io::Error::from)?;
        tty.write_all(ENTER)?;
        Ok(screen)
    }

    /// The terminal, for those who paint on it.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nobody to whom it could be told that the terminal is gone.
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

/// A file without a name, to be read and to be written.
fn kept() -> io::Result<(File, File)> {
    let file = tempfile::NamedTempFile::new()?;
    // Both streams, of several processes, add to its end.
    let mine = OpenOptions::new().append(true).open(file.path())?;
    Ok((file.into_file(), mine))
}

/// Leads a stream to the file if it is a terminal, and gives what it was.
fn keep_back(
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

/// Nothing that is typed is shown, and neither Ctrl-S nor Ctrl-Z leave a picture that stands still. Ctrl-C
/// is as ever.
fn quiet(before: &Termios) -> Termios {
    let mut modes = before.clone();
    modes.local_modes.remove(LocalModes::ECHO);
    modes.input_modes.remove(InputModes::IXON);
    // The value that turns a special character off.
    modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
    modes
}
