//! The reaper: a process that ends the workers' children when the launcher is killed outright.
//!
//! A worker dies with its launcher by itself
//! ([`die_with_launcher`](crate::die_with_parent::die_with_launcher)), but its children do not: under
//! `kolo launch -- sh -c 'prepare; train'` the trainer would live on. So a small shell waits for the
//! launcher's end, of which the kernel tells it even if the launcher cannot, and then kills the process
//! groups that were registered with it. It costs one sleeping process. On a machine without `/bin/sh` there
//! is no reaper, and children of workers survive a SIGKILL to the launcher.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::net::{SendFlags, send};
use rustix::process::Pid;

/// `$1` is the folder to remove. Standard input brings one group a line, with a minus one that is over, and
/// ends with the launcher.
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

/// The running reaper. Dropping it ends it, before it acts.
#[derive(Debug)]
pub(crate) struct Reaper {
    process: Child,
    socket: ReaperSocket,
}

/// The socket at which groups are registered with the reaper. The reaper acts when all copies of it are
/// closed, so none may outlive the launcher.
#[derive(Debug)]
pub(crate) struct ReaperSocket(UnixStream);

impl Reaper {
    /// Starts the reaper of a job whose error files are in `folder`; `None` where there is no shell.
    pub fn start(folder: &Path) -> Option<Reaper> {
        let (ours, theirs) = UnixStream::pair().ok()?;
        let process = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "kolo-reaper"])
            .arg(folder)
            // It must not keep open what the launcher's callers wait for, nor end by their Ctrl-C.
            .current_dir("/")
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Reaper { process, socket: ReaperSocket(ours) })
    }

    /// The group of a worker that others have survived is over: it is to be killed no more.
    pub fn forget(&self, group: Pid) {
        self.socket.forget(group);
    }

    /// A copy of the socket, for a child that registers its group before it becomes another program.
    pub fn socket(&self) -> io::Result<ReaperSocket> {
        Ok(ReaperSocket(self.socket.0.try_clone()?))
    }
}

impl ReaperSocket {
    /// Registers one more process group to be killed.
    ///
    /// Safe between fork and exec: it neither allocates nor takes a lock.
    pub fn register(&self, group: Pid) {
        self.say("", group);
    }

    /// A group is over, and its number is about to be free for others.
    pub fn forget(&self, group: Pid) {
        self.say("-", group);
    }

    fn say(&self, sign: &str, group: Pid) {
        let mut text = [0; 16];
        let mut rest = &mut text[..];
        // The longest number, its sign and its line end take 12 of the 16 bytes.
        let _ = writeln!(rest, "{sign}{}", group.as_raw_nonzero());
        let left = rest.len();
        // A reaper that somebody has killed is no reason to end a job, nor to die of a broken pipe: its
        // absence changes nothing for a launcher that ends in order.
        let _ = send(&self.0, &text[..text.len() - left], SendFlags::NOSIGNAL);
    }
}

/// The launcher that gets here ends in order and has ended the groups itself. The socket is still open, so
/// the reaper ends before it could act.
impl Drop for Reaper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
