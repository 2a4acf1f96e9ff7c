//! What does the work of a group's collectives. The native one runs schedules over transports; MPI and NCCL replace it whole.

use crate::collective::Collective;
use crate::error::Error;
use crate::memory::Memory;

pub(crate) trait Backend: Send {
    /// Runs a collective to its end on a buffer that nobody else touches meanwhile.
    ///
    /// [`Error::Invalid`] says that the call was wrong by itself and nothing was sent.
    fn run(&mut self, collective: &Collective, memory: &Memory<'_>) -> Result<(), Error>;

    /// How the ranks talk, for logs and tables.
    fn name(&self) -> &'static str;

    /// What may still be under way when a rank leaves in good order.
    fn finish(&mut self) {}

    /// The native backend, which can say how it works.
    fn as_native(&mut self) -> Option<&mut crate::engine::Engine> {
        None
    }
}
