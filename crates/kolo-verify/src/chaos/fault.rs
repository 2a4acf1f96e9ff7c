//! A fault of a run: what it does, to whom, and when.

use std::fmt;

use kolo_ddp::verify::aim::Aim;
use rustix::process::Signal;
use serde::Serialize;

use super::hosts::LinkCut;

/// Longest cut of a link in milliseconds for which the job waits: a vanished host is reported after 10 s.
const SHORT_CUT: u64 = 3000;

/// A fault to inject into a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Injection {
    /// Time of the injection, as a part of the undisturbed run's time, counted from the first generation.
    pub(crate) at: f64,
    pub(crate) fault: Fault,
    pub(crate) victim: Victim,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// The worker gets SIGKILL.
    Kill,
    /// The worker kills itself at a moment of its next update; with a second aim, another one does so when
    /// it completes that update.
    KillInUpdate(Aim, Option<Aim>),
    /// The worker gets SIGSTOP and never continues.
    Stop,
    /// The worker gets SIGSTOP, and SIGCONT after so many milliseconds.
    Pause(u64),
    /// The worker gets a signal that ends it, and leaves the job.
    Leave(Request),
    /// The launcher gets such a signal: the job saves and ends, and is resumed.
    End(Request),
    /// All workers get SIGSTOP, and SIGCONT after so many milliseconds.
    StopAll(u64),
    /// Another file replaces that of the running program.
    Program,
    /// The reader of the job's output closes it.
    Output,
    /// The worker's TCP connections are shut: of every eight those whose bits are set, at least one.
    Cut(u8),
    /// The run folder is away for so many milliseconds.
    Folder(u64),
    /// The disk of the run folder is full for so many milliseconds, while other faults follow.
    DiskFull(u64),
    /// A host's packets are lost in both directions, for so many milliseconds or for good.
    Link {
        /// Way to cut the link.
        how: LinkCut,
        /// Duration in milliseconds, or `None` for good.
        ms: Option<u64>,
    },
    /// The etcd that grants generations gets SIGKILL, and starts again after so many milliseconds.
    Etcd(u64),
}

/// A signal that ends a process of a job.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// SIGTERM
    Term,
    /// SIGINT
    Int,
    /// SIGHUP
    Hup,
    /// SIGXCPU
    Xcpu,
}

impl Request {
    pub(super) const ALL: [Request; 4] = [Request::Term, Request::Int, Request::Hup, Request::Xcpu];

    pub(crate) fn signal(self) -> Signal {
        match self {
            Request::Term => Signal::TERM,
            Request::Int => Signal::INT,
            Request::Hup => Signal::HUP,
            Request::Xcpu => Signal::XCPU,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Request::Term => "SIGTERM",
            Request::Int => "SIGINT",
            Request::Hup => "SIGHUP",
            Request::Xcpu => "SIGXCPU",
        }
    }
}

/// The target of a fault, among the processes that live at that time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Victim {
    /// Rank 0.
    First,
    /// One of the other ranks, counted modulo their number.
    Other(usize),
    /// The launcher of this node, whose workers end with it.
    Launcher(usize),
    /// The host of this node.
    Host(usize),
    /// The last worker started in place of a lost one; the injection waits for it.
    Replacement,
    /// The whole job.
    All,
}

impl Fault {
    /// True if the fault removes the worker, so that the others continue in another generation.
    pub(crate) fn removes(self) -> bool {
        use Fault::{Cut, Kill, KillInUpdate, Leave, Stop};
        matches!(self, Kill | KillInUpdate(..) | Stop | Leave(_) | Cut(_))
    }

    /// Number of workers that the fault removes.
    pub(super) fn lost(self) -> usize {
        usize::from(self.removes()) + usize::from(matches!(self, Fault::KillInUpdate(_, Some(_))))
    }

    /// True if a link is cut for longer than the others wait, so that one part of the job continues without
    /// the other.
    pub(crate) fn parts(self) -> bool {
        matches!(self, Fault::Link { ms, .. } if ms.is_none_or(|ms| ms > SHORT_CUT))
    }

    /// True if the fault strikes the whole job.
    pub(super) fn is_of_job(self) -> bool {
        use Fault::{DiskFull, End, Etcd, Folder, Output, Program, StopAll};
        matches!(self, Folder(_) | DiskFull(_) | Etcd(_) | End(_) | Output | Program | StopAll(_))
    }

    /// True if the job continues in another generation.
    pub(crate) fn ends_generation(self) -> bool {
        self.removes() || self.parts()
    }

    /// True if the launcher starts another worker after the fault.
    pub(super) fn replaces(self) -> bool {
        self.removes() && !matches!(self, Fault::Leave(_))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::KillInUpdate(..) => "kill in an update",
            Fault::Stop => "stop",
            Fault::Pause(_) => "pause",
            Fault::Leave(_) => "leave",
            Fault::End(_) => "end and resume",
            Fault::StopAll(_) => "stop all",
            Fault::Program => "program replaced",
            Fault::Output => "output closed",
            Fault::Cut(_) => "cut",
            Fault::Folder(_) => "folder away",
            Fault::DiskFull(_) => "disk full",
            Fault::Etcd(_) => "etcd away",
            Fault::Link { how, .. } => how.name(),
        }
    }
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fault.name())?;
        match self.victim {
            Victim::First => f.write_str(" rank 0")?,
            Victim::Other(_) => f.write_str(" another")?,
            Victim::Launcher(node) => write!(f, " launcher {node}")?,
            Victim::Host(node) => write!(f, " node {node}")?,
            Victim::Replacement => f.write_str(" replacement")?,
            Victim::All => {}
        }
        match self.fault {
            Fault::Pause(ms)
            | Fault::Folder(ms)
            | Fault::DiskFull(ms)
            | Fault::Etcd(ms)
            | Fault::StopAll(ms) => {
                write!(f, " for {ms} ms")
            }
            Fault::Leave(request) | Fault::End(request) => write!(f, " by {}", request.name()),
            Fault::KillInUpdate(aim, None) => write!(f, " {aim}"),
            Fault::KillInUpdate(aim, Some(second)) => write!(f, " {aim}, then {second}"),
            Fault::Link { ms: Some(ms), .. } => write!(f, " for {ms} ms"),
            Fault::Link { ms: None, .. } => f.write_str(" for good"),
            Fault::Kill | Fault::Stop | Fault::Cut(_) | Fault::Program | Fault::Output => Ok(()),
        }
    }
}
