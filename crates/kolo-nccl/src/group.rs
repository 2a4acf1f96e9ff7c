//! The group: meeting, starting, failing, leaving.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::buffer::DeviceBuffer;
use super::card::{Card, agree};
use super::communicator::{Communicator, Target, bounded};
use super::device::{self, Device};
use super::library::{Library, UniqueId};
use super::pending::DevicePending;
use super::plan::plan;
use super::vigil::{Vigil, verdict};
use kolo_comm::Collective;
use kolo_comm::Element;
use kolo_comm::Group;
use kolo_rendezvous::Error;
use kolo_rendezvous::lock;
use kolo_schedule::Rank;

/// The ranks of a group with one GPU each: collectives over device memory.
///
/// All ranks must make the same calls in the same order. After a failure of this group or of the native one beside it,
/// both fail, and every call gives the same first error. Everything runs on a stream of its own; memory comes from
/// [`DeviceGroup::alloc`].
///
/// ```no_run
/// use std::sync::Arc;
/// use kolo_comm::{Group, Op, nccl::DeviceGroup};
///
/// let devices = DeviceGroup::local(&Arc::new(Group::from_env()?))?; // device LOCAL_RANK
/// let sum = devices.all_reduce(devices.copied(&[1.0f32, 2.0])?, Op::Sum)?;
/// println!("{:?}", devices.to_vec(&sum)?);
/// # Ok::<(), kolo_comm::Error>(())
/// ```
pub struct DeviceGroup {
    inner: Arc<Inner>,
}

/// What a started collective needs until it is over.
pub(super) struct Inner {
    pub(super) group: Arc<Group>,
    pub(super) device: Device,
    library: &'static Library,
    /// Gone after a failure. Whoever starts a collective holds it until NCCL has put that on the stream.
    communicator: Mutex<Option<Communicator>>,
}

/// How long NCCL may take to free or abort a communicator before it is left behind.
const END: Duration = Duration::from_secs(20);
/// How long a broken connection may be known before it is known who died.
const WHO: Duration = Duration::from_secs(2);

impl DeviceGroup {
    /// The devices of a group's ranks; this rank's is number `device` of those that its process sees. All ranks must call
    /// it. NCCL needs a device of its own for each rank.
    ///
    /// Ranks are processes: in one process NCCL may reach straight into another rank's buffers, and this memory is open to
    /// its own device only.
    ///
    /// # Errors
    ///
    /// On all ranks, when one of them has no CUDA driver, no NCCL, no such device, another's device or another version;
    /// or as [`Group::run`].
    pub fn new(group: &Arc<Group>, device: usize) -> Result<DeviceGroup, Error> {
        Self::found(group, Device::open(device))
    }

    /// As [`DeviceGroup::new`], with the device that belongs to the rank's place on its node (`LOCAL_RANK`).
    ///
    /// # Errors
    ///
    /// There are fewer devices than ranks on this node; otherwise as [`DeviceGroup::new`].
    pub fn local(group: &Arc<Group>) -> Result<DeviceGroup, Error> {
        Self::found(group, device::local().and_then(Device::open))
    }

    fn found(group: &Arc<Group>, device: Result<Device, Error>) -> Result<DeviceGroup, Error> {
        if let Some(error) = group.liveness().failure() {
            return Err(error);
        }
        let prepared = device.and_then(|device| {
            let library = Library::get()?;
            let id = if group.rank() == Rank(0) { library.unique_id()? } else { UniqueId([0; 128]) };
            Ok((device, library, id))
        });
        let card = match &prepared {
            Ok((device, library, _)) => {
                Card { obstacle: None, device: device.uuid.clone(), version: library.version() }
            }
            Err(error) => {
                Card { obstacle: Some(error.to_string()), device: String::new(), version: String::new() }
            }
        };
        // A rank that cannot take part says so before it gives up, and gives its own reason.
        let agreed = agree(group, &card);
        let (device, library, mut id) = prepared?;
        agreed?;
        group.broadcast(&mut id.0, Rank(0))?;
        let inner = Inner { group: group.clone(), device, library, communicator: Mutex::new(None) };
        inner.meet(&id)?;
        Ok(DeviceGroup { inner: Arc::new(inner) })
    }

    /// The native group of the same ranks.
    pub fn group(&self) -> &Arc<Group> {
        &self.inner.group
    }

    /// This rank, in this group.
    pub fn rank(&self) -> Rank {
        self.inner.group.rank()
    }

    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.inner.group.world_size()
    }

    /// Library and device, for logs and tables: `NCCL 2.27.3 on NVIDIA H200`.
    pub fn describe(&self) -> String {
        let name = self.inner.device.context.name().unwrap_or_else(|_| "a device without a name".into());
        format!("NCCL {} on {name}", self.inner.library.version())
    }

    /// A buffer of `len` zeros on the device.
    ///
    /// # Errors
    ///
    /// The device has no more memory, or the group has failed.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<DeviceBuffer<T>, Error> {
        self.inner.admit()?;
        DeviceBuffer::zeroed(&self.inner.device, len)
    }

    /// A buffer on the device that holds a copy of `data`. Waits for what is on the stream.
    ///
    /// # Errors
    ///
    /// As [`DeviceGroup::alloc`] and [`DeviceGroup::run`].
    pub fn copied<T: Element>(&self, data: &[T]) -> Result<DeviceBuffer<T>, Error> {
        let mut buffer = self.alloc(data.len())?;
        self.write(data, &mut buffer)?;
        Ok(buffer)
    }

    /// Copies from the host to a buffer of one length. Waits for what is on the stream.
    ///
    /// # Errors
    ///
    /// The lengths differ, the buffer is another group's; otherwise as [`DeviceGroup::run`].
    pub fn write<T: Element>(&self, data: &[T], buffer: &mut DeviceBuffer<T>) -> Result<(), Error> {
        self.copying(data.len(), buffer)?;
        buffer.write(data)
    }

    /// Copies a buffer to the host, of one length. Waits for what is on the stream.
    ///
    /// # Errors
    ///
    /// As [`DeviceGroup::write`].
    pub fn read<T: Element>(&self, buffer: &DeviceBuffer<T>, data: &mut [T]) -> Result<(), Error> {
        self.copying(data.len(), buffer)?;
        buffer.read(data)
    }

    fn copying<T: Element>(&self, len: usize, buffer: &DeviceBuffer<T>) -> Result<(), Error> {
        self.inner.admit_with(buffer)?;
        if len != buffer.len() {
            let there = buffer.len();
            return Err(Error::Invalid(format!(
                "{len} elements here and {there} on the device must be equal"
            )));
        }
        // CUDA's copies wait for the stream, and would wait for a dead peer as well.
        self.inner.pass(&self.inner.device.mark()?, "a copy")
    }

    /// Runs a collective on a buffer of this group and gives it back.
    ///
    /// # Errors
    ///
    /// The call is wrong by itself, or asks for a sum in tree order ([`Error::Invalid`]; the group is not harmed); a peer
    /// died, left, or did not take part in time; NCCL or CUDA failed (then the group has failed).
    pub fn run<T: Element>(
        &self,
        collective: &Collective,
        buffer: DeviceBuffer<T>,
    ) -> Result<DeviceBuffer<T>, Error> {
        self.start(collective, buffer).wait()
    }

    /// Starts a collective on the stream. Collectives run in the order in which they were started.
    ///
    /// The first collectives of a group take longer to start: NCCL makes connections then.
    pub fn start<T: Element>(
        &self,
        collective: &Collective,
        mut buffer: DeviceBuffer<T>,
    ) -> DevicePending<T> {
        let during = format!("{} of {} {} by NCCL", collective.name(), buffer.len(), T::DTYPE);
        let started = self.inner.start(collective, &mut buffer, &during);
        DevicePending::new(self.inner.clone(), started, buffer, during)
    }
}

impl Inner {
    /// Makes the communicator, with all others.
    fn meet(&self, id: &UniqueId) -> Result<(), Error> {
        let met = self.device.bind().and_then(|()| {
            let mut held = lock(&self.communicator);
            let begun = Communicator::begin(self.library, id, self.group.rank(), self.group.world_size())?;
            self.settle(held.insert(begun), "the meeting of NCCL's ranks")
        });
        met.map_err(|error| self.fail(error))
    }

    /// Whether a call may begin at all.
    fn admit(&self) -> Result<(), Error> {
        // Failing again ends the communicator, which this group may not have done yet.
        self.group.liveness().failure().map_or(Ok(()), |error| Err(self.fail(error)))
    }

    /// Whether a call on this buffer may begin at all.
    fn admit_with<T: Element>(&self, buffer: &DeviceBuffer<T>) -> Result<(), Error> {
        self.admit()?;
        match buffer.belongs_to(&self.device) {
            true => Ok(()),
            false => {
                Err(Error::Invalid("the buffer belongs to another group; allocate it from this one".into()))
            }
        }
    }

    /// Puts a collective on the stream; the event comes after it.
    fn start<T: Element>(
        &self,
        collective: &Collective,
        buffer: &mut DeviceBuffer<T>,
        during: &str,
    ) -> Result<cudarc::driver::CudaEvent, Error> {
        self.admit_with(buffer)?;
        let steps = plan(collective, self.group.rank(), self.group.world_size(), buffer.len())?;
        let stream = self.device.stream.cu_stream().cast();
        let target = Target { start: buffer.start(), dtype: T::DTYPE, stream };
        let issued = self.device.bind().and_then(|()| {
            let mut held = lock(&self.communicator);
            let Some(communicator) = held.as_mut() else { return Err(self.standing()) };
            // SAFETY: the plan keeps within the buffer's elements; the buffer is freed in the stream's order, or never if
            // this fails.
            unsafe { communicator.issue(&steps, &target) }?;
            self.settle(communicator, during)?;
            self.device.mark()
        });
        issued.map_err(|error| {
            buffer.lose();
            self.fail(error)
        })
    }

    /// Waits until NCCL has done on the host what was begun.
    fn settle(&self, communicator: &mut Communicator, during: &str) -> Result<(), Error> {
        if communicator.settled()? {
            return Ok(());
        }
        let mut vigil = Vigil::new(&self.group, during);
        while !communicator.settled()? {
            vigil.turn()?;
        }
        Ok(())
    }

    /// Waits until the stream has passed an event. A failure is the group's.
    pub(super) fn pass(&self, event: &cudarc::driver::CudaEvent, during: &str) -> Result<(), Error> {
        let passed = self.device.bind().and_then(|()| {
            let mut vigil = Vigil::new(&self.group, during);
            while !self.over(event)? {
                vigil.turn()?;
            }
            Ok(())
        });
        passed.map_err(|error| self.fail(error))
    }

    /// Whether the stream has passed an event; an error when it never will.
    pub(super) fn over(&self, event: &cudarc::driver::CudaEvent) -> Result<bool, Error> {
        if event
            .try_is_complete()
            .map_err(|cause| device::failed("a collective failed on the device", cause))?
        {
            return Ok(true);
        }
        // Who holds it starts a collective, and looks at its state by himself.
        if let Ok(mut held) = self.communicator.try_lock() {
            match held.as_mut() {
                Some(communicator) => communicator.settled().map(drop)?,
                None => return Err(self.standing()),
            }
        }
        Ok(false)
    }

    /// The failure after which there is no communicator.
    fn standing(&self) -> Error {
        let none = || Error::Invalid("NCCL's communicator has ended".into());
        self.group.liveness().failure().unwrap_or_else(none)
    }

    /// Fails the group, ends what runs on the device, and returns the error that stands.
    fn fail(&self, error: Error) -> Error {
        let nameless = error.culprit().is_none();
        // What NCCL and CUDA report may be the consequence of a death: the group soon knows whose.
        let known = if nameless { verdict(&self.group, WHO) } else { None };
        let error = known.unwrap_or_else(|| self.group.fail(error));
        self.end(Communicator::abort);
        error
    }

    /// Ends the communicator, if it is there.
    fn end(&self, how: fn(Communicator)) {
        let Some(communicator) = lock(&self.communicator).take() else { return };
        let context = self.device.context.clone();
        let ended = bounded(END, move || {
            // NCCL chooses the device by itself; without one it says so.
            let _ = context.bind_to_thread();
            how(communicator);
        });
        if !ended {
            log::warn!("NCCL has not ended a communicator within {END:?}; its device memory is left behind");
            // Kernels may still run on it.
            std::mem::forget(self.device.stream.clone());
        }
    }

    /// Ends in good order what has not failed.
    fn leave(&self) -> Result<(), Error> {
        if let Some(error) = self.group.liveness().failure() {
            return Err(error);
        }
        self.device.bind()?;
        match lock(&self.communicator).as_mut() {
            Some(communicator) => {
                communicator.finalize()?;
                self.settle(communicator, "the end of NCCL's communicator")
            }
            None => Ok(()),
        }
    }
}

impl Drop for Inner {
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
