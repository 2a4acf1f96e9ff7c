//! What ends the workers' children when the launcher is killed outright.
//!
//! A worker dies with its launcher by itself ([`die_with_parent`](crate::die_with_parent)), but its children
//! do not: under `kolo launch -- sh -c 'prepare; train'` the trainer would live on. So a small shell listens
//! for the launcher's end, which the kernel tells it even if the launcher cannot, and then kills the groups it
//! has been told of. It costs one sleeping process. On a machine without `/bin/sh` there is no warden, and
//! children of workers survive a SIGKILL to the launcher.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::net::{SendFlags, send};
use rustix::process::Pid;

/// `$1` is the folder to remove. Standard input brings one group a line, and ends with the launcher.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
groups=
while read -r line; do
    groups="$groups $line"
done
for group in $groups; do kill -s KILL -- "-$group"; done
rm -rf -- "$1"
"#;

/// A process that outlives the launcher by a moment, to tidy up after it.
#[derive(Debug)]
pub(crate) struct Warden {
    process: Child,
    line: Line,
}

/// Where the warden listens. It hears of the launcher's end when all copies of this are closed, so none may
/// outlive the launcher.
#[derive(Debug)]
pub(crate) struct Line(UnixStream);

impl Warden {
    /// Starts the warden of a job whose error files are in `folder`; `None` where there is no shell.
    pub fn start(folder: &Path) -> Option<Warden> {
        let (ours, theirs) = UnixStream::pair().ok()?;
        let process = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "kolo-warden"])
            .arg(folder)
            // It must not keep open what the launcher's callers wait for, nor end by their Ctrl-C.
            .current_dir("/")
            .process_group(0)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Warden { process, line: Line(ours) })
    }

    /// For a child, to put itself under the warden's care before it becomes another program.
    pub fn line(&self) -> io::Result<Line> {
        Ok(Line(self.line.0.try_clone()?))
    }
}

impl Line {
    /// Puts one more process group under the warden's care.
    ///
    /// Safe between fork and exec: it neither allocates nor takes a lock.
    pub fn guard(&self, group: Pid) {
        let mut text = [0; 16];
        let mut rest = &mut text[..];
        // The longest number and its line end take 11 of the 16 bytes.
        let _ = writeln!(rest, "{}", group.as_raw_nonzero());
        let left = rest.len();
        // A warden that somebody has killed is no reason to end a job, nor to die of a broken pipe: its absence
        // changes nothing for a launcher that ends in order.
        let _ = send(&self.0, &text[..text.len() - left], SendFlags::NOSIGNAL);
    }
}

/// The launcher ends in order and has ended the groups itself. The line is still open here, so the warden goes
/// before it could act.
impl Drop for Warden {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
