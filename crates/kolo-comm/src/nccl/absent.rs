//! The same functions as with the feature `nccl`. There is no device group without it, so only making one does anything:
//! it says what is missing.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::collective::Collective;
use crate::element::Element;
use crate::error::Error;
use crate::group::Group;
use crate::rank::Rank;

/// The ranks of a group with one GPU each. Built without the feature `nccl`, there is none.
pub struct DeviceGroup(Infallible);

/// Elements in the memory of a device. Built without the feature `nccl`, there are none.
pub struct DeviceBuffer<T>(Infallible, PhantomData<T>);

/// A collective that has been started. Built without the feature `nccl`, there is none.
pub struct DevicePending<T>(Infallible, PhantomData<T>);

fn absent<T>() -> Result<T, Error> {
    let why = "this program was built without NCCL; build it with `--features nccl` (of kolo or kolo-comm; nothing of CUDA is \
               needed for that)";
    Err(Error::Invalid(why.into()))
}

/// All of them stand in the twin with the feature.
#[allow(missing_docs)]
impl DeviceGroup {
    pub fn new(_group: &Arc<Group>, _device: usize) -> Result<DeviceGroup, Error> {
        absent()
    }

    pub fn local(_group: &Arc<Group>) -> Result<DeviceGroup, Error> {
        absent()
    }

    pub fn group(&self) -> &Arc<Group> {
        match self.0 {}
    }

    pub fn rank(&self) -> Rank {
        match self.0 {}
    }

    pub fn world_size(&self) -> usize {
        match self.0 {}
    }

    pub fn describe(&self) -> String {
        match self.0 {}
    }

    pub fn alloc<T: Element>(&self, _len: usize) -> Result<DeviceBuffer<T>, Error> {
        match self.0 {}
    }

    pub fn copied<T: Element>(&self, _data: &[T]) -> Result<DeviceBuffer<T>, Error> {
        match self.0 {}
    }

    pub fn write<T: Element>(&self, _data: &[T], _buffer: &mut DeviceBuffer<T>) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn read<T: Element>(&self, _buffer: &DeviceBuffer<T>, _data: &mut [T]) -> Result<(), Error> {
        match self.0 {}
    }

    pub fn run<T: Element>(
        &self,
        _collective: &Collective,
        _buffer: DeviceBuffer<T>,
    ) -> Result<DeviceBuffer<T>, Error> {
        match self.0 {}
    }

    pub fn start<T: Element>(&self, _collective: &Collective, _buffer: DeviceBuffer<T>) -> DevicePending<T> {
        match self.0 {}
    }
}

#[allow(missing_docs)]
impl<T: Element> DeviceBuffer<T> {
    pub fn len(&self) -> usize {
        match self.0 {}
    }

    pub fn is_empty(&self) -> bool {
        match self.0 {}
    }
}

#[allow(missing_docs)]
impl<T: Element> DevicePending<T> {
    pub fn wait(self) -> Result<DeviceBuffer<T>, Error> {
        match self.0 {}
    }

    pub fn is_over(&self) -> bool {
        match self.0 {}
    }
}
