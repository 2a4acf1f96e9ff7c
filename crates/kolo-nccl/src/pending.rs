//! A collective on the stream.

use std::sync::Arc;

use cudarc::driver::CudaEvent;

use super::buffer::DeviceBuffer;
use super::state::State;
use kolo_comm::Element;
use kolo_rendezvous::Error;

/// A collective that has been started.
#[must_use = "a collective is only over when it has been waited for"]
pub struct DevicePending<T> {
    state: Arc<State>,
    started: Result<CudaEvent, Error>,
    buffer: DeviceBuffer<T>,
    during: String,
}

kolo_comm::opaque_debug!([T] DevicePending<T> { during });

impl<T: Element> DevicePending<T> {
    pub(super) fn new(
        state: Arc<State>,
        started: Result<CudaEvent, Error>,
        buffer: DeviceBuffer<T>,
        during: String,
    ) -> Self {
        DevicePending { state, started, buffer, during }
    }

    /// Waits for the end and returns the buffer. A peer's time limit begins now.
    ///
    /// # Errors
    ///
    /// The error that ended the collective: the first failure of the group, or the refusal of the call.
    pub fn wait(self) -> Result<DeviceBuffer<T>, Error> {
        let DevicePending { state, started, mut buffer, during } = self;
        state.pass(&started?, &during).inspect_err(|_| buffer.lose())?;
        Ok(buffer)
    }

    /// Returns true if the collective is over, so waiting returns at once.
    pub fn is_over(&self) -> bool {
        let over = |event| self.state.device.bind().and_then(|()| self.state.over(event));
        // After a failure, waiting returns the error at once.
        self.started.as_ref().map_or(true, |event| over(event).unwrap_or(true))
    }
}
