//! Arbiters, which grant each generation to one of the leaders that claim it.
//!
//! A leader claims a generation before it announces it to its members, and forms none that is not granted.
//! When the network is cut, at most one side goes on, whatever launchers believe of one another.
//!
//! A generation ends for all of its members when it ends for one, because a step needs every member, and a
//! member that has left never goes back. Both rules rest on that:
//!
//! | | grants the next generation to a leader with |
//! |---|---|
//! | `majority` | more than half of the last one's members, or half of them with the lowest rank |
//! | `folder:PATH`, `etcd://HOST:PORT` | a member that has been in the last one, if it asks first |
//!
//! `majority` needs no more than the members' reports; with the others a job survives the loss of any part
//! of it.

mod claim;
#[cfg(feature = "etcd")]
mod etcd;
mod folder;
mod majority;
mod recorded;
mod rule;

use kolo_rendezvous::Error;

pub(crate) use claim::{Claim, Predecessor, Verdict};
use rule::Rule;

#[cfg(test)]
pub(crate) use {claim::Record, recorded::Records, recorded::claim as claim_recorded};

/// The rule by which a job's launchers agree which of them go on. [`Arbiter::parse`] reads one from a text.
#[derive(Clone, Default)]
pub struct Arbiter(Rule);

/// One kind of arbiter, and its form on the command line.
pub struct ArbiterKind {
    /// Name without the rest of its form.
    pub name: &'static str,
    /// Form on the command line, such as `folder:PATH`.
    pub usage: &'static str,
    /// Description, in one line.
    pub summary: &'static str,
    /// Requirement before a job begins. If there is none, the job needs a quorum of its members.
    pub needs: Needs,
    /// Prefix of its texts on the command line, and the parser of the rest.
    prefix: &'static str,
    read: fn(&str) -> Result<Rule, Error>,
}

kolo_comm::opaque_debug!(ArbiterKind { name, usage, summary });

/// Requirement of an arbiter beside the job's launchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// A folder that all nodes share, by its absolute path.
    Folder,
    /// An etcd cluster, by its members.
    Etcd,
}

impl ArbiterKind {
    /// Returns the form on the command line, with this path or these members.
    pub fn with(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }
}

/// All kinds of arbiters for jobs of several nodes. The first is the default.
pub static ARBITERS: &[ArbiterKind] = &[
    ArbiterKind {
        name: "majority",
        usage: "majority",
        summary: "the side with more than half of the last generation's workers continues, or with half and the lowest rank",
        needs: Needs::Nothing,
        prefix: "majority",
        read: majority::read,
    },
    ArbiterKind {
        name: "folder",
        usage: "folder:PATH",
        summary: "the side that first creates a file in a folder that all nodes share",
        needs: Needs::Folder,
        prefix: "folder:",
        read: folder::read,
    },
    #[cfg(feature = "etcd")]
    ArbiterKind {
        name: "etcd",
        usage: "etcd://HOST:PORT",
        summary: "the side that first writes a key of an etcd cluster; separate several hosts by commas",
        needs: Needs::Etcd,
        prefix: "etcd://",
        read: etcd::read,
    },
];

impl Arbiter {
    /// The arbiter of a job with one launcher, which always goes on.
    pub(crate) fn sole() -> Arbiter {
        Arbiter(Rule::Sole)
    }

    /// Parses an arbiter in its form on the command line (see [`ARBITERS`]).
    ///
    /// # Errors
    ///
    /// The text names no arbiter, or its rest is invalid.
    pub fn parse(text: &str) -> Result<Arbiter, Error> {
        let kind = ARBITERS.iter().find(|kind| text.starts_with(kind.prefix));
        let Some(kind) = kind else {
            let known: Vec<&str> = ARBITERS.iter().map(|kind| kind.usage).collect();
            let known = format!("there are {}", known.join(", "));
            return Err(Error::system(format!("no arbiter is called `{text}`"), known));
        };
        (kind.read)(&text[kind.prefix.len()..]).map(Arbiter)
    }

    /// Returns true if a claim is decided at once, without any request.
    pub(crate) fn is_immediate(&self) -> bool {
        !matches!(self.0, Rule::Recorded(_))
    }

    /// Registers a job that begins. [`Arbiter::knows`] then succeeds for launchers that share its records.
    /// The error describes why the arbiter cannot be reached.
    pub(crate) fn begin(&self, job: u64) -> Result<(), String> {
        match &self.0 {
            Rule::Sole | Rule::Majority => Ok(()),
            Rule::Recorded(records) => records.begin(job),
        }
    }

    /// Checks that this launcher's arbiter is the one at which the job began; the inner error is the reason.
    /// The error describes why the arbiter cannot be reached.
    pub(crate) fn knows(&self, job: u64) -> Result<Result<(), String>, String> {
        match &self.0 {
            Rule::Sole | Rule::Majority => Ok(Ok(())),
            Rule::Recorded(records) => records.knows(job),
        }
    }

    /// Claims the next generation.
    /// The error describes why the arbiter cannot be reached now.
    pub(crate) fn claim(&self, claim: &Claim) -> Result<Verdict, String> {
        match &self.0 {
            Rule::Sole => Ok(Verdict::Granted(claim.newest + 1)),
            Rule::Majority => Ok(majority::decide(claim)),
            Rule::Recorded(records) => recorded::claim(records.as_ref(), claim),
        }
    }
}

/// Writes the form of the command line.
impl std::fmt::Display for Arbiter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Rule::Sole => out.write_str("none"),
            Rule::Majority => out.write_str("majority"),
            Rule::Recorded(records) => out.write_str(&records.place()),
        }
    }
}

impl std::fmt::Debug for Arbiter {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Arbiter({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_it_is_written() {
        for kind in ARBITERS {
            let rest = match kind.needs {
                Needs::Nothing => "",
                Needs::Folder => "/shared/claims",
                Needs::Etcd => "node0:2379,node1:2379",
            };
            let text = kind.with(rest);
            assert!(kind.usage.starts_with(kind.name) && text.starts_with(kind.name), "{text}");
            let arbiter = Arbiter::parse(&text).unwrap();
            assert_eq!(arbiter.to_string(), text);
            assert_eq!(arbiter.is_immediate(), kind.needs == Needs::Nothing, "{text}");
        }
    }
}
