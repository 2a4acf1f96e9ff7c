//! What ends the workers' children when the launcher is killed outright.
//!
//! A worker dies with its launcher by itself ([`die_with_parent`](crate::die_with_parent)), but its children
//! do not: under `kolo launch -- sh -c 'prepare; train'` the trainer would live on. So a small shell waits at
//! a pipe for the launcher's end, which no process can fail to signal, and then kills the groups it has been
//! told of. It costs one sleeping process. On a machine without `/bin/sh` there is no warden, and children of
//! workers survive a SIGKILL to the launcher.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;

/// `$1` is the folder to remove. Standard input brings one group a line, and `end` when all is well.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
groups=
while read -r line; do
    [ "$line" = end ] && exit 0
    groups="$groups $line"
done
for group in $groups; do kill -s KILL -- "-$group"; done
rm -rf -- "$1"
"#;

/// A process that outlives the launcher by a moment, to tidy up after it.
#[derive(Debug)]
pub(crate) struct Warden(Child);

impl Warden {
    /// Starts the warden of a job whose error files are in `folder`; `None` where there is no shell.
    pub fn start(folder: &Path) -> Option<Warden> {
        Command::new("/bin/sh")
            .args(["-c", SCRIPT, "kolo-warden"])
            .arg(folder)
            // It must not keep open what the launcher's callers wait for, nor end by their Ctrl-C.
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()
            .map(Warden)
    }

    /// Puts one more process group under its care.
    pub fn guard(&mut self, group: Pid) {
        self.tell(&group.as_raw_nonzero().to_string());
    }

    /// A warden that somebody has killed is no reason to end a job: its absence changes nothing for a
    /// launcher that ends in order.
    fn tell(&mut self, line: &str) {
        if let Some(pipe) = &mut self.0.stdin {
            let _ = pipe.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// The launcher ends in order and has ended the groups itself.
impl Drop for Warden {
    fn drop(&mut self) {
        self.tell("end");
        self.0.stdin = None;
        let _ = self.0.wait();
    }
}
