//! Which generation follows the last one, where two leaders may want to lead: an arbiter grants it to one of
//! them.
//!
//! A leader claims a generation before it tells its members of it, and forms none that is not granted. So
//! when the network is cut, one side at most goes on, whatever launchers believe of one another.
//!
//! A generation ends for all of its members when it ends for one, because no step can be made without any of
//! them, and a member that has left never goes back. Both rules rest on that:
//!
//! | | the next generation is granted to whoever has |
//! |---|---|
//! | `majority` | more than half of the last one's members, or half of them with the lowest rank |
//! | `folder:PATH`, `etcd://HOST:PORT` | a member that has been in the last one, and asks first |
//!
//! The first needs nothing but what members tell; with the others a job outlives the loss of any part of it.

#[cfg(feature = "etcd")]
mod etcd;
mod folder;
mod majority;
mod recorded;

use std::collections::BTreeSet;
use std::sync::Arc;

use kolo_rendezvous::Error;
use serde::{Deserialize, Serialize};

use crate::generation::GenerationId;
pub(crate) use recorded::Records;

pub(crate) use majority::Predecessor;
#[cfg(test)]
pub(crate) use recorded::claim as claim_recorded;

/// By what the launchers of a job agree which of them goes on. [`Arbiter::parse`] reads one from the command
/// line.
#[derive(Clone, Default)]
pub struct Arbiter(Rule);

#[derive(Clone, Default)]
enum Rule {
    /// There is one launcher: it goes on.
    Sole,
    #[default]
    Majority,
    Recorded(Arc<dyn Records>),
}

/// One kind of arbiter, and how it is written on the command line.
pub struct ArbiterKind {
    /// How it is written, such as `folder:PATH`.
    pub usage: &'static str,
    /// What it says, in a line.
    pub summary: &'static str,
    /// What a text must begin with, and how the rest of it is read.
    prefix: &'static str,
    read: fn(&str) -> Result<Rule, Error>,
}

/// All kinds of arbiters for jobs of several nodes. The first is the default.
pub static ARBITERS: &[ArbiterKind] = &[
    ArbiterKind {
        usage: "majority",
        summary: "more than half of the last generation's workers go on, or half with the lowest rank",
        prefix: "majority",
        read: majority::read,
    },
    ArbiterKind {
        usage: "folder:PATH",
        summary: "who first makes a file in a folder that all nodes share",
        prefix: "folder:",
        read: folder::read,
    },
    #[cfg(feature = "etcd")]
    ArbiterKind {
        usage: "etcd://HOST:PORT",
        summary: "who first writes a key of an etcd cluster; hosts behind commas",
        prefix: "etcd://",
        read: etcd::read,
    },
];

impl Arbiter {
    /// The arbiter of a job with one launcher, which always goes on.
    pub(crate) fn sole() -> Arbiter {
        Arbiter(Rule::Sole)
    }

    /// Reads an arbiter as it is written on the command line (see [`ARBITERS`]).
    ///
    /// # Errors
    ///
    /// The text names none.
    pub fn parse(text: &str) -> Result<Arbiter, Error> {
        let kind = ARBITERS.iter().find(|kind| text.starts_with(kind.prefix));
        let Some(kind) = kind else {
            let known: Vec<&str> = ARBITERS.iter().map(|kind| kind.usage).collect();
            let known = format!("there are {}", known.join(", "));
            return Err(Error::system(format!("no arbiter is called `{text}`"), known));
        };
        (kind.read)(&text[kind.prefix.len()..]).map(Arbiter)
    }

    /// Whether a claim is decided at once, without asking anybody.
    pub(crate) fn is_immediate(&self) -> bool {
        !matches!(self.0, Rule::Recorded(_))
    }

    /// Takes note of a job that begins, so that [`Arbiter::knows`] holds for launchers that see the same.
    ///
    /// # Errors
    ///
    /// The arbiter cannot be reached; the text says how.
    pub(crate) fn begin(&self, job: u64) -> Result<(), String> {
        match &self.0 {
            Rule::Sole | Rule::Majority => Ok(()),
            Rule::Recorded(records) => records.begin(job),
        }
    }

    /// Whether this launcher's arbiter is the one where the job has begun; the inner text says why not.
    ///
    /// # Errors
    ///
    /// The arbiter cannot be reached; the text says how.
    pub(crate) fn knows(&self, job: u64) -> Result<Result<(), String>, String> {
        match &self.0 {
            Rule::Sole | Rule::Majority => Ok(Ok(())),
            Rule::Recorded(records) => records.knows(job),
        }
    }

    /// Asks for the next generation.
    ///
    /// # Errors
    ///
    /// The arbiter cannot be reached now; the text says why.
    pub(crate) fn claim(&self, claim: &Claim) -> Result<Verdict, String> {
        match &self.0 {
            Rule::Sole => Ok(Verdict::Granted(claim.newest + 1)),
            Rule::Majority => Ok(majority::decide(claim)),
            Rule::Recorded(records) => recorded::claim(records.as_ref(), claim),
        }
    }
}

/// As it is written on the command line.
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

/// What a leader claims: that a generation of these members follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) job: u64,
    /// The launcher that claims.
    pub(crate) leader: u64,
    /// Who that is, for messages to other launchers' users.
    pub(crate) place: String,
    /// The highest number of a generation that the leader has heard of.
    pub(crate) newest: u64,
    /// The identities of the members, in the order of their ranks. All of them wait, as far as the leader
    /// knows.
    pub(crate) members: Vec<String>,
    /// The generations that some of them have been in and come back from, so that these are over.
    pub(crate) left: BTreeSet<GenerationId>,
    /// Members, by their identities, whose launcher has left a leader for good.
    pub(crate) abandoned: BTreeSet<(String, u64)>,
    /// The generations that the leader knows to have been told to members, its own among them.
    pub(crate) told: BTreeSet<GenerationId>,
    /// The generations which the next one may follow.
    pub(crate) predecessors: Vec<Predecessor>,
}

impl Claim {
    /// Whether a generation that was granted is over for certain: a member has come back from it; or it is
    /// the claiming leader's own and was never told to anybody, because the answer was lost or others waited
    /// by then; or a member waits that has never been told of it, and never will, because its launcher has
    /// left the one that leads it.
    pub(crate) fn is_over(&self, last: &Record) -> bool {
        let id = last.id();
        let is_abandoned = |member: &String| self.abandoned.contains(&(member.clone(), last.leader));
        self.left.contains(&id)
            || last.leader == self.leader && !self.told.contains(&id)
            || last.members.iter().any(is_abandoned)
    }
}

/// What the arbiter says to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The claimed generation is the next, and has this number.
    Granted(u64),
    /// It is not, or not yet: others may still come. The text is the reason, as a sentence.
    NotYet(String),
    /// Another leader has gone on, and nothing that happens here can change it. The text says who, as a
    /// sentence.
    Superseded(String),
}

/// A generation as arbiters record it that have a memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) generation: u64,
    pub(crate) leader: u64,
    pub(crate) place: String,
    pub(crate) members: Vec<String>,
}

impl Record {
    /// The generation.
    pub(crate) fn id(&self) -> GenerationId {
        GenerationId { number: self.generation, leader: self.leader }
    }
}
