//! Elements in device memory.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, DevicePtr};

use super::device::{Device, failed};
use kolo_comm::Element;
use kolo_rendezvous::{Error, InvalidCall};

/// Elements in the memory of a [`DeviceGroup`](super::DeviceGroup)'s device.
///
/// Like a native [`Buffer`](kolo_comm::Buffer), it moves into a collective and back out of it.
pub struct DeviceBuffer<T> {
    /// The memory; one byte if there are no elements, because CUDA has no empty memory.
    bytes: ManuallyDrop<CudaSlice<u8>>,
    len: usize,
    /// True after a failed collective: peers may still write to the buffer, so it is never freed.
    lost: bool,
    elements: PhantomData<T>,
}

impl<T: Element> DeviceBuffer<T> {
    pub(super) fn zeroed(device: &Device, len: usize) -> Result<Self, Error> {
        let each = size_of::<T>();
        let size = len.checked_mul(each).ok_or(InvalidCall::BufferTooLarge { elements: len, size: each })?;
        let bytes = device.stream.alloc_zeros::<u8>(size.max(1));
        let bytes =
            bytes.map_err(|cause| failed(format!("cannot allocate {size} bytes on the device"), cause))?;
        Ok(DeviceBuffer { bytes: ManuallyDrop::new(bytes), len, lost: false, elements: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn belongs_to(&self, device: &Device) -> bool {
        Arc::ptr_eq(self.bytes.stream(), &device.stream)
    }

    /// Address of the first element, for work on the group's stream.
    pub(super) fn start(&self) -> u64 {
        self.bytes.device_ptr(self.bytes.stream()).0
    }

    pub(super) fn lose(&mut self) {
        self.lost = true;
    }

    /// Copies from the host, in the stream's order. The source is free when this returns.
    pub(super) fn write(&mut self, data: &[T]) -> Result<(), Error> {
        if data.is_empty() {
            return Ok(());
        }
        let stream = self.bytes.stream().clone();
        // SAFETY: an `Element` has no padding, so its memory is initialized bytes.
        let data = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), size_of_val(data)) };
        let copied = stream.memcpy_htod(data, &mut *self.bytes);
        // The copy from unpinned host memory is over when the call returns; the copy from a caller's
        // pinned memory is not, so the stream must be synchronized.
        copied.and_then(|()| stream.synchronize()).map_err(|cause| failed("cannot copy to the device", cause))
    }

    /// Copies to the host, and waits for the copy.
    pub(super) fn read(&self, data: &mut [T]) -> Result<(), Error> {
        if data.is_empty() {
            return Ok(());
        }
        let stream = self.bytes.stream();
        let size = size_of_val(data);
        // SAFETY: an `Element` has no padding, and any bits are a valid one.
        let data = unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast::<u8>(), size) };
        let copied = stream.memcpy_dtoh(&self.bytes.slice(..size), data);
        copied
            .and_then(|()| stream.synchronize())
            .map_err(|cause| failed("cannot copy from the device", cause))
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        if self.lost {
            return;
        }
        // The memory is freed in the stream's order, after its last use, if the device can be bound.
        if self.bytes.context().bind_to_thread().is_ok() {
            // SAFETY: the memory is not used again.
            unsafe { ManuallyDrop::drop(&mut self.bytes) };
        }
    }
}

impl<T: Element> std::fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeviceBuffer({} {})", self.len, T::DTYPE)
    }
}
