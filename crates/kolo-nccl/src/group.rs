//! A group with one GPU per rank, as an implementation of [`Collectives`].

use std::sync::Arc;

use kolo_comm::{Collective, Collectives, Element, Group};
use kolo_rendezvous::{Error, InvalidCall};
use kolo_schedule::Rank;

use super::buffer::DeviceBuffer;
use super::device::{self, Device};
use super::library::{Library, UniqueId};
use super::peer_info::{PeerInfo, agree};
use super::pending::DevicePending;
use super::state::State;

/// The ranks of a group with one GPU each: collectives over device memory.
///
/// All ranks must make the same calls in the same order. After a failure of this group or of its native
/// group, both fail, and every call returns the same first error. All work runs on the group's own
/// stream; memory comes from [`Collectives::alloc`].
///
/// ```no_run
/// use std::sync::Arc;
/// use kolo_comm::{Collectives, Group, Op};
/// use kolo_nccl::DeviceGroup;
///
/// let devices = DeviceGroup::local(&Arc::new(Group::from_env()?))?; // device LOCAL_RANK
/// let sum = devices.all_reduce(devices.copied(&[1.0f32, 2.0])?, Op::Sum)?;
/// println!("{:?}", devices.to_vec(&sum)?);
/// # Ok::<(), kolo_comm::Error>(())
/// ```
pub struct DeviceGroup {
    state: Arc<State>,
}

kolo_comm::opaque_debug!(DeviceGroup);

impl DeviceGroup {
    /// Creates the group of the devices of a group's ranks. This rank's device has the number `device` among
    /// those that its process sees. All ranks must call it. NCCL needs a separate device for each rank.
    ///
    /// Ranks must be processes: within one process NCCL may access another rank's buffers directly, but
    /// this memory is accessible only to its own device.
    ///
    /// # Errors
    ///
    /// Fails on all ranks if one of them has no CUDA driver, no NCCL, no such device, another rank's
    /// device or another version; otherwise the errors of [`Group::run`].
    pub fn new(group: &Arc<Group>, device: usize) -> Result<DeviceGroup, Error> {
        Self::connect(group, Device::open(device))
    }

    /// Creates the group as [`DeviceGroup::new`] does, with the device of the rank's `LOCAL_RANK`.
    ///
    /// # Errors
    ///
    /// There are fewer devices than ranks on this node; otherwise the errors of [`DeviceGroup::new`].
    pub fn local(group: &Arc<Group>) -> Result<DeviceGroup, Error> {
        Self::connect(group, device::local().and_then(Device::open))
    }

    fn connect(group: &Arc<Group>, device: Result<Device, Error>) -> Result<DeviceGroup, Error> {
        if let Some(error) = group.liveness().failure() {
            return Err(error);
        }
        let prepared = device.and_then(|device| {
            let library = Library::get()?;
            let id = if group.rank() == Rank(0) { library.unique_id()? } else { UniqueId([0; 128]) };
            Ok((device, library, id))
        });
        let info = match &prepared {
            Ok((device, library, _)) => {
                PeerInfo { obstacle: None, device: device.id.clone(), version: library.version() }
            }
            Err(error) => {
                PeerInfo { obstacle: Some(error.to_string()), device: String::new(), version: String::new() }
            }
        };
        // A rank that cannot take part reports that to the others first, and then returns its own error.
        let agreed = agree(group, &info);
        let (device, library, mut id) = prepared?;
        agreed?;
        group.broadcast(&mut id.0, Rank(0))?;
        let state = State::new(group.clone(), device, library);
        state.connect(&id)?;
        Ok(DeviceGroup { state: Arc::new(state) })
    }

    /// The native group of the same ranks.
    pub fn group(&self) -> &Arc<Group> {
        &self.state.group
    }

    /// Checks that a copy between the host and a buffer may begin, and waits for the work on the stream.
    fn admit_copy<T: Element>(&self, len: usize, buffer: &DeviceBuffer<T>) -> Result<(), Error> {
        self.state.admit_with(buffer)?;
        if len != buffer.len() {
            let operation = "a copy between host and device".into();
            return Err(InvalidCall::Lengths { operation, input: len, output: buffer.len() }.into());
        }
        // CUDA's copies wait for the stream, and would wait for a dead peer as well.
        self.state.pass(&self.state.device.mark()?, "a copy")
    }
}

/// Sums in tree order are refused: NCCL does not offer them. A failure of NCCL or CUDA fails the group.
impl Collectives for DeviceGroup {
    type Buffer<T: Element> = DeviceBuffer<T>;
    type Pending<T: Element> = DevicePending<T>;

    fn rank(&self) -> Rank {
        self.state.group.rank()
    }

    fn world_size(&self) -> usize {
        self.state.group.world_size()
    }

    /// Library and device: `NCCL 2.27.3 on NVIDIA H200`.
    fn describe(&self) -> String {
        let name = self.state.device.context.name().unwrap_or_else(|_| "a device without a name".into());
        format!("NCCL {} on {name}", self.state.library.version())
    }

    fn alloc<T: Element>(&self, len: usize) -> Result<DeviceBuffer<T>, Error> {
        self.state.admit()?;
        DeviceBuffer::zeroed(&self.state.device, len)
    }

    fn len<T: Element>(buffer: &DeviceBuffer<T>) -> usize {
        buffer.len()
    }

    fn write<T: Element>(&self, data: &[T], buffer: &mut DeviceBuffer<T>) -> Result<(), Error> {
        self.admit_copy(data.len(), buffer)?;
        buffer.write(data)
    }

    fn read<T: Element>(&self, buffer: &DeviceBuffer<T>, data: &mut [T]) -> Result<(), Error> {
        self.admit_copy(data.len(), buffer)?;
        buffer.read(data)
    }

    /// Starts a collective. NCCL connects the ranks in a group's first collectives, which start slower.
    fn start<T: Element>(&self, collective: Collective, mut buffer: DeviceBuffer<T>) -> DevicePending<T> {
        let during = format!("{} of {} {} by NCCL", collective.name(), buffer.len(), T::DTYPE);
        let started = self.state.start(&collective, &mut buffer, &during);
        DevicePending::new(self.state.clone(), started, buffer, during)
    }

    fn wait<T: Element>(pending: DevicePending<T>) -> Result<DeviceBuffer<T>, Error> {
        pending.wait()
    }
}
