//! Shared state of a device group's collectives: device, communicator, failure and end.

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::CudaEvent;
use kolo_comm::{Collective, Element, Group};
use kolo_rendezvous::{BackendError, Error, InvalidCall};
use parking_lot::Mutex;

use super::buffer::DeviceBuffer;
use super::communicator::{Communicator, Target, bounded};
use super::device::{self, Device};
use super::device_wait::DeviceWait;
use super::library::{Library, UniqueId};
use super::plan::plan;

/// The state that a started collective needs until it is over; all collectives of a group share it.
pub(super) struct State {
    pub(super) group: Arc<Group>,
    pub(super) device: Device,
    pub(super) library: &'static Library,
    /// `None` after a failure. Locked while a collective starts, until NCCL has put it on the stream.
    communicator: Mutex<Option<Communicator>>,
}

/// Longest time that NCCL may take to free or abort a communicator before it is left behind.
const END: Duration = Duration::from_secs(20);
/// Longest wait for the culprit after a connection is known to be broken.
const WHO: Duration = Duration::from_secs(2);

impl State {
    pub(super) fn new(group: Arc<Group>, device: Device, library: &'static Library) -> Self {
        State { group, device, library, communicator: Mutex::new(None) }
    }

    /// Creates the communicator, together with all other ranks.
    pub(super) fn connect(&self, id: &UniqueId) -> Result<(), Error> {
        let met = self.device.bind().and_then(|()| {
            let mut held = self.communicator.lock();
            let begun = Communicator::begin(self.library, id, self.group.rank(), self.group.world_size())?;
            self.settle(held.insert(begun), "the meeting of NCCL's ranks")
        });
        met.map_err(|error| self.fail(error))
    }

    /// Checks that a call may begin.
    pub(super) fn admit(&self) -> Result<(), Error> {
        // Failing again ends the communicator, which this group may not have done yet.
        self.group.liveness().failure().map_or(Ok(()), |error| Err(self.fail(error)))
    }

    /// Checks that a call on this buffer may begin.
    pub(super) fn admit_with<T: Element>(&self, buffer: &DeviceBuffer<T>) -> Result<(), Error> {
        self.admit()?;
        match buffer.belongs_to(&self.device) {
            true => Ok(()),
            false => Err(InvalidCall::ForeignBuffer.into()),
        }
    }

    /// Puts a collective on the stream and returns the event after it.
    pub(super) fn start<T: Element>(
        &self,
        collective: &Collective,
        buffer: &mut DeviceBuffer<T>,
        during: &str,
    ) -> Result<CudaEvent, Error> {
        self.admit_with(buffer)?;
        let steps = plan(collective, self.group.rank(), self.group.world_size(), buffer.len())?;
        let stream = self.device.stream.cu_stream().cast();
        let target = Target { start: buffer.start(), dtype: T::DTYPE, stream };
        let issued = self.device.bind().and_then(|()| {
            let mut held = self.communicator.lock();
            let Some(communicator) = held.as_mut() else { return Err(self.standing()) };
            // SAFETY: the plan stays within the buffer, which is freed in stream order, or never on error.
            unsafe { communicator.issue(&steps, &target) }?;
            self.settle(communicator, during)?;
            self.device.mark()
        });
        issued.map_err(|error| {
            buffer.lose();
            self.fail(error)
        })
    }

    /// Waits until NCCL has finished the host's part of the last call.
    fn settle(&self, communicator: &mut Communicator, during: &str) -> Result<(), Error> {
        if communicator.settled()? {
            return Ok(());
        }
        let mut wait = DeviceWait::new(&self.group, during);
        while !communicator.settled()? {
            wait.turn()?;
        }
        Ok(())
    }

    /// Waits until the stream has passed an event. A failure fails the group.
    pub(super) fn pass(&self, event: &CudaEvent, during: &str) -> Result<(), Error> {
        let passed = self.device.bind().and_then(|()| {
            let mut wait = DeviceWait::new(&self.group, during);
            while !self.over(event)? {
                wait.turn()?;
            }
            Ok(())
        });
        passed.map_err(|error| self.fail(error))
    }

    /// Returns true if the stream has passed an event, or an error if it never will.
    pub(super) fn over(&self, event: &CudaEvent) -> Result<bool, Error> {
        if event
            .try_is_complete()
            .map_err(|cause| device::failed("a collective failed on the device", cause))?
        {
            return Ok(true);
        }
        // If the lock is taken, another thread is starting a collective and checks the state itself.
        if let Some(mut held) = self.communicator.try_lock() {
            match held.as_mut() {
                Some(communicator) => communicator.settled().map(drop)?,
                None => return Err(self.standing()),
            }
        }
        Ok(false)
    }

    /// Returns the failure because of which there is no communicator.
    fn standing(&self) -> Error {
        let none = || BackendError::Ended { backend: "nccl".into() }.into();
        self.group.liveness().failure().unwrap_or_else(none)
    }

    /// Fails the group, ends its work on the device, and returns the error that counts.
    fn fail(&self, error: Error) -> Error {
        let nameless = error.culprit().is_none();
        // An error of NCCL or CUDA may be the consequence of a death, whose victim the group soon knows.
        let limit = if nameless && self.group.world_size() > 1 { WHO } else { Duration::ZERO };
        let known = self.group.liveness().wait_for_failure(limit).filter(|_| nameless);
        let error = known.unwrap_or_else(|| self.group.fail(error));
        self.end(Communicator::abort);
        error
    }

    fn end(&self, how: fn(Communicator)) {
        let Some(communicator) = self.communicator.lock().take() else { return };
        let context = self.device.context.clone();
        let ended = bounded(END, move || {
            // NCCL chooses the device by itself; without a device it returns an error.
            let _ = context.bind_to_thread();
            how(communicator);
        });
        if !ended {
            log::warn!("NCCL has not ended a communicator within {END:?}; its device memory is left behind");
            // Kernels may still run on the stream.
            std::mem::forget(self.device.stream.clone());
        }
    }

    /// Ends the communicator in good order, unless the group has failed.
    fn leave(&self) -> Result<(), Error> {
        if let Some(error) = self.group.liveness().failure() {
            return Err(error);
        }
        self.device.bind()?;
        match self.communicator.lock().as_mut() {
            Some(communicator) => {
                communicator.finalize()?;
                self.settle(communicator, "the end of NCCL's communicator")
            }
            None => Ok(()),
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.group.abandon("it panicked");
        }
        match self.leave() {
            Ok(()) => self.end(Communicator::destroy),
            Err(error) => {
                log::debug!("NCCL is aborted at the end: {error}");
                self.end(Communicator::abort);
            }
        }
    }
}
