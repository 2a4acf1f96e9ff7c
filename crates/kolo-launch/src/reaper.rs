//! The reaper: a process that ends the workers' children when the launcher is killed.
//!
//! A worker dies with its launcher ([`die_with_launcher`](crate::die_with_parent::die_with_launcher)), but
//! its children do not: under `kolo launch -- sh -c 'prepare; train'` the trainer would live on. A small
//! shell therefore waits for the launcher's end, which the kernel reports even if the launcher cannot. It
//! then kills the process groups that were registered with it. It costs one sleeping process. On a machine
//! without `/bin/sh` there is no reaper, and children of workers survive a SIGKILL to the launcher.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::net::{SendFlags, send};
use rustix::process::Pid;

/// The shell script. `$1` is the folder to remove. Standard input has one group per line, with a minus if
/// the group has ended, and closes with the launcher.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
groups=
while read -r line; do
    case $line in
    -*)
        left=
        for group in $groups; do [ "-$group" = "$line" ] || left="$left $group"; done
        groups=$left
        ;;
    *) groups="$groups $line" ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
rm -rf -- "$1"
"#;

/// The running reaper. Dropping it ends it before it acts.
#[derive(Debug)]
pub(crate) struct Reaper {
    process: Child,
    pub socket: ReaperSocket,
}

/// The socket at which groups are registered with the reaper. The reaper acts when all copies of the socket
/// are closed, so none may outlive the launcher.
#[derive(Debug)]
pub(crate) struct ReaperSocket(UnixStream);

impl Reaper {
    /// Starts the reaper of a job whose error files are in `folder`; `None` if there is no shell.
    pub fn start(folder: &Path) -> Option<Reaper> {
        let (ours, theirs) = UnixStream::pair().ok()?;
        let process = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "kolo-reaper"])
            .arg(folder)
            // The reaper must not keep files of the launcher's callers open, nor end by their Ctrl-C.
            .current_dir("/")
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Reaper { process, socket: ReaperSocket(ours) })
    }

    /// Returns a copy of the socket, for a child that registers its group before it executes a program.
    pub fn socket(&self) -> io::Result<ReaperSocket> {
        Ok(ReaperSocket(self.socket.0.try_clone()?))
    }
}

impl ReaperSocket {
    /// Registers a process group to be killed.
    ///
    /// Safe between fork and exec: it neither allocates nor takes a lock.
    pub fn register(&self, group: Pid) {
        self.write_line("", group);
    }

    /// Unregisters a group that has ended, because its number may be reused.
    pub fn forget(&self, group: Pid) {
        self.write_line("-", group);
    }

    fn write_line(&self, sign: &str, group: Pid) {
        let mut text = [0; 16];
        let mut rest = &mut text[..];
        // The longest number, its sign and its line end take 12 of the 16 bytes.
        let _ = writeln!(rest, "{sign}{}", group.as_raw_nonzero());
        let left = rest.len();
        // A killed reaper must neither end the job nor cause a SIGPIPE: an orderly end does not need it.
        let _ = send(&self.0, &text[..text.len() - left], SendFlags::NOSIGNAL);
    }
}

/// A launcher that gets here ends in order and has ended the groups itself. The socket is still open, so the
/// reaper ends before it can act.
impl Drop for Reaper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
