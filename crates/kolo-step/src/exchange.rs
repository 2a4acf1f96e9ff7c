//! The short collectives at the end of a step.

use kolo_comm::backend::WaitMode;
use kolo_comm::{Buffer, Collective, Element, Error, Group, Pending};

/// A requested collective: in flight, or left to the thread that waits for it. To hand it to the
/// communication thread pays if this thread computes meanwhile. If it only waits, and all cores are busy, it
/// would wait a millisecond and more for that thread to get a core.
pub enum Exchange<T: Element> {
    UnderWay(Pending<Buffer<T>>),
    Left(Collective, Buffer<T>),
}

impl<T: Element> Exchange<T> {
    /// A collective of a thread that computes until it waits for it, or that waits at once.
    pub(crate) fn new(group: &Group, mode: WaitMode, collective: Collective, buffer: Buffer<T>) -> Self {
        match mode {
            WaitMode::Background => Exchange::UnderWay(group.start(collective, buffer)),
            WaitMode::Blocking => Exchange::Left(collective, buffer),
        }
    }

    /// Waits for the other ranks.
    pub(crate) fn wait(self, group: &Group) -> Result<Buffer<T>, Error> {
        match self {
            Exchange::UnderWay(pending) => pending.wait(),
            Exchange::Left(collective, buffer) => group.run(&collective, buffer),
        }
    }
}
