//! Collectives that always run on the calling thread: for callers that have a communication thread of their
//! own, and bring all collectives into one order.

use super::Group;
use crate::collective::Collective;
use kolo_rendezvous::Error;
use kolo_schedule::{Chunks, Op};
use kolo_transport::{Buffer, Element, Memory, WaitMode};

impl Group {
    /// Runs a collective as [`Group::run`] does, but always on the calling thread.
    ///
    /// # Errors
    ///
    /// Same as [`Group::run`].
    pub fn run_directly<T: Element>(
        &self,
        collective: &Collective,
        buffer: Buffer<T>,
        mode: WaitMode,
    ) -> Result<Buffer<T>, Error> {
        self.admit(&buffer)?;
        self.shared.run(collective, buffer, mode)
    }

    /// Runs a collective on a slice as [`Group::run_directly`] does on a buffer.
    ///
    /// # Errors
    ///
    /// Same as [`Group::run`].
    pub fn run_directly_on_slice<T: Element>(
        &self,
        collective: &Collective,
        data: &mut [T],
        mode: WaitMode,
    ) -> Result<(), Error> {
        if !self.shared.run_on(collective, Memory::of_slice(data), mode)? {
            data.copy_from_slice(&self.run_directly(collective, self.copied(data)?, mode)?);
        }
        Ok(())
    }

    /// Reduces equal chunks of `input`, and writes this rank's to `output`. In most cases nothing of the
    /// input is copied that peers do not need.
    ///
    /// # Errors
    ///
    /// The lengths do not fit; otherwise the errors of [`Group::run`].
    pub fn reduce_scatter_directly<T: Element>(
        &self,
        input: &[T],
        output: &mut [T],
        op: Op,
        mode: WaitMode,
    ) -> Result<(), Error> {
        self.fits("reduce_scatter", input.len(), self.world_size(), output.len())?;
        let (collective, start) =
            (Collective::ReduceScatter(op, Chunks::Equal), self.rank().0 * output.len());
        if !self.shared.run_on(&collective, Memory::of_input(input, output, start), mode)? {
            let result = self.run_directly(&collective, self.copied(input)?, mode)?;
            output.copy_from_slice(&result[start..][..output.len()]);
        }
        Ok(())
    }
}
