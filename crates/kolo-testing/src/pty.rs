//! A terminal for programs that behave differently on one.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

/// Time within which output must appear on the terminal.
const LIMIT: Duration = Duration::from_secs(60);

/// A pseudoterminal, with all output that was ever written to it.
pub struct PseudoTerminal {
    master: File,
    /// Kept open, so that the end of a program does not close the terminal.
    own: File,
    written: Arc<(Mutex<Vec<u8>>, Condvar)>,
}

kolo_comm::opaque_debug!(PseudoTerminal);

impl PseudoTerminal {
    /// Opens a terminal of 100 columns and 30 lines.
    pub fn open() -> PseudoTerminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let own = OpenOptions::new().read(true).write(true).open(path).unwrap();
        tcsetwinsize(&own, Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let master = File::from(master);
        let written = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let (mut reader, all) = (master.try_clone().unwrap(), written.clone());
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut piece) {
                all.0.lock().unwrap().extend(&piece[..count]);
                all.1.notify_all();
            }
        });
        PseudoTerminal { master, own, written }
    }

    /// Starts a program on this terminal, as a shell would.
    pub fn spawn(&self, command: &mut Command) -> Child {
        // A new session gets its standard input as its controlling terminal. Programs inherit ignored
        // signals, and Ctrl-C is ignored in tests that a script runs in the background.
        let mut session = Command::new("setsid");
        session.args(["--ctty", "env", "--default-signal=INT"]);
        session.arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            session.current_dir(folder);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        let stream = || Stdio::from(self.own.try_clone().unwrap());
        session.env("TERM", OsStr::new("xterm")).stdin(stream()).stdout(stream()).stderr(stream());
        session.spawn().unwrap()
    }

    /// Types a text.
    pub fn type_in(&self, text: &str) {
        (&self.master).write_all(text.as_bytes()).unwrap();
    }

    /// Waits until `what` is on the terminal. Returns all of its output.
    pub fn wait_for(&self, what: &str) -> String {
        let until = Instant::now() + LIMIT;
        let mut written = self.written.0.lock().unwrap();
        loop {
            let text = String::from_utf8_lossy(&written).into_owned();
            if text.contains(what) {
                return text;
            }
            assert!(Instant::now() < until, "`{what}` is not on the terminal: {text}");
            written = self.written.1.wait_timeout(written, LIMIT).unwrap().0;
        }
    }

    /// Returns the modes of the terminal.
    pub fn modes(&self) -> Termios {
        tcgetattr(&self.own).unwrap()
    }
}
