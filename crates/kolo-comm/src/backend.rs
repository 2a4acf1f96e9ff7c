//! What does the work of a group's collectives. The native one runs schedules over transports; MPI replaces it whole.

use crate::collective::Collective;
use crate::error::Error;
use crate::memory::Memory;
use crate::rank::Rank;

/// Which backend a group uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// Kolo's own schedules over its own transports.
    #[default]
    Native,
    /// MPI, if it is built in (see [`crate::mpi`]).
    Mpi,
}

impl std::str::FromStr for BackendChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "native" => Ok(BackendChoice::Native),
            "mpi" => Ok(BackendChoice::Mpi),
            _ => Err(format!("is `{text}`; known are native, mpi")),
        }
    }
}

/// What the thread that has asked for a collective does while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It waits: the sooner it is over, the better.
    Blocking,
    /// It computes: the less of its core is taken away, the better.
    Background,
}

pub(crate) trait Backend: Send {
    /// Runs a collective to its end on a buffer that nobody else touches meanwhile.
    ///
    /// [`Error::Invalid`] says that the call was wrong by itself and nothing was sent.
    fn run(&mut self, collective: &Collective, memory: &Memory<'_>, mode: Mode) -> Result<(), Error>;

    /// How the ranks talk, for logs and tables.
    fn name(&self) -> &'static str;

    /// What may still be under way when a rank leaves in good order.
    fn finish(&mut self) {}

    /// A backend for `members` of this group, where this rank will be `rank`. All ranks call it at once, each with its own
    /// companions. Only for groups that are not founded over transports.
    fn split(&mut self, _rank: Rank, _members: &[Rank]) -> Result<Box<dyn Backend>, Error> {
        Err(Error::Invalid(format!("sub-groups over {} are founded by the group", self.name())))
    }

    /// The native backend, which can say how it works.
    fn as_native(&mut self) -> Option<&mut crate::engine::Engine> {
        None
    }
}

/// A backend that has formed a job's group by its own means.
pub(crate) struct Foreign {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) rank: Rank,
    pub(crate) world: usize,
    /// Ranks of one name share memory.
    pub(crate) node: String,
    /// Ends all processes of the job, this one included, when others would wait for this rank for ever.
    pub(crate) end: fn(&Error),
}
