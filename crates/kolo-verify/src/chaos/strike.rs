//! Strikes a process with a signal, or by shutting its connections.

use std::fs;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open};

use super::fault::Fault;

/// Longest time that a cut waits for a connection of the process.
const CONNECTED: Duration = Duration::from_secs(30);

/// Strikes a launcher of this program, or a child of one.
pub(super) fn strike(fault: Fault, pid: i32) -> io::Result<()> {
    // The worker was just seen alive, so no other process has its number yet.
    let process = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    match fault {
        Fault::Kill => kill_process(process, Signal::KILL)?,
        Fault::Stop => kill_process(process, Signal::STOP)?,
        Fault::Leave(request) | Fault::End(request) => kill_process(process, request.signal())?,
        Fault::Pause(ms) => {
            kill_process(process, Signal::STOP)?;
            sleep(Duration::from_millis(ms));
            kill_process(process, Signal::CONT)?;
        }
        Fault::Cut(bits) => {
            let until = Instant::now() + CONNECTED;
            while !cut(process, bits)? {
                if Instant::now() >= until {
                    return Err(io::Error::other("it had no connection"));
                }
                sleep(Duration::from_millis(2));
            }
        }
        Fault::KillInUpdate(..)
        | Fault::Folder(_)
        | Fault::DiskFull(_)
        | Fault::Etcd(_)
        | Fault::Link { .. }
        | Fault::StopAll(_)
        | Fault::Program
        | Fault::Output => {}
    }
    Ok(())
}

/// Shuts connections of another process through copies of its file descriptors, which the kernel gives to
/// processes that may trace it. Returns false if the process has no connection.
fn cut(process: Pid, bits: u8) -> io::Result<bool> {
    let pidfd = pidfd_open(process, PidfdFlags::empty())?;
    let mut connections = Vec::new();
    for entry in fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero()))? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if !fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with("socket:")) {
            continue;
        }
        let stream = match pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()) {
            Ok(copy) => TcpStream::from(copy),
            // The process has closed this descriptor meanwhile.
            Err(rustix::io::Errno::BADF) => continue,
            Err(error) => return Err(error.into()),
        };
        if stream.peer_addr().is_ok() {
            connections.push(stream);
        }
    }
    let chosen = |number: usize| bits >> (number % 8) & 1 == 1;
    let none = !(0..connections.len()).any(chosen);
    for (number, stream) in connections.iter().enumerate() {
        if chosen(number) || none && number == 0 {
            // The other side may have been quicker.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
    Ok(!connections.is_empty())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_workers_connection_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs = OwnedFd::from(listener.accept().unwrap().0);
        let mut child = Command::new("sleep").arg("60").stdin(theirs).spawn().unwrap();
        let result = cut(Pid::from_child(&child), 0);
        // Some containers forbid copying descriptors; then `cut` must return an error.
        if result.is_ok_and(|found| found) {
            assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(cut(Pid::from_child(&child), 0).is_err(), "nobody is there any more");
    }
}
