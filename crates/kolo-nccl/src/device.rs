//! This rank's GPU: CUDA's driver, the choice of the device, and the one stream for all of the group's work.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError};

use super::library;
use kolo_rendezvous::env::{LOCAL_RANK, local_rank};
use kolo_rendezvous::{BackendError, Error};

/// A device and the group's stream on it.
pub(super) struct Device {
    pub(super) context: Arc<CudaContext>,
    /// Memory is allocated, filled, used and freed in this stream's order.
    pub(super) stream: Arc<CudaStream>,
    /// Identifier of the device as NCCL sees it: two ranks with the same one cannot be in a communicator.
    pub(super) id: String,
}

/// Environment variable with which NCCL replaces the host's own identifier.
const HOST_ID: &str = "NCCL_HOSTID";

impl Device {
    pub(super) fn open(number: usize) -> Result<Device, Error> {
        let count = count()?;
        if number >= count {
            return Err(BackendError::NoDevice { number, count }.into());
        }
        let fail = |cause: DriverError| failed(format!("cannot open CUDA device {number}"), cause);
        let context = CudaContext::new(number).map_err(fail)?;
        // SAFETY: memory of this context is only used on the one stream created here, whose order suffices.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(fail)?;
        let uuid = context.uuid().map_err(fail)?.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Device { context, stream, id: id(uuid, std::env::var(HOST_ID).ok()) })
    }

    /// Makes this the thread's current device, which some calls use.
    pub(super) fn bind(&self) -> Result<(), Error> {
        self.context.bind_to_thread().map_err(|cause| failed("cannot use the CUDA device", cause))
    }

    /// Records an event at the present end of the stream.
    pub(super) fn mark(&self) -> Result<CudaEvent, Error> {
        self.stream.record_event(None).map_err(|cause| failed("cannot record a CUDA event", cause))
    }
}

pub(super) fn failed(what: impl Into<String>, cause: DriverError) -> Error {
    let message = match (cause.error_name(), cause.error_string()) {
        (Ok(name), Ok(text)) => format!("{} ({})", text.to_string_lossy(), name.to_string_lossy()),
        _ => format!("{:?}", cause.0),
    };
    Error::system(what, message)
}

/// Returns the device of this process by its local rank.
pub(super) fn local() -> Result<usize, Error> {
    choose(local_rank()?, count()?, std::env::var_os("CUDA_VISIBLE_DEVICES").is_some())
}

/// Identifies a device by its UUID, and by `NCCL_HOSTID` if it is set: NCCL lets ranks of different hosts use
/// one device, which tests several ranks on a machine with a single GPU.
fn id(uuid: String, host: Option<String>) -> String {
    host.map_or_else(|| uuid.clone(), |host| format!("{uuid} of {host}"))
}

/// Chooses one device per rank. A launcher that shows each process only its own device (`srun
/// --gpus-per-task=1`) has already chosen.
fn choose(local_rank: usize, count: usize, restricted: bool) -> Result<usize, Error> {
    match count {
        1 if restricted => Ok(0),
        _ if local_rank < count => Ok(local_rank),
        _ => Err(Error::environment(
            LOCAL_RANK,
            format!(
                "is {local_rank}, but this process sees {}; each worker needs one of its own: start no more \
                 workers a node than it has devices",
                devices(count)
            ),
        )),
    }
}

fn devices(count: usize) -> String {
    format!("{count} CUDA device{}", if count == 1 { "" } else { "s" })
}

/// Number of devices that this process sees; at least one.
fn count() -> Result<usize, Error> {
    let names = ["libcuda.so.1".to_string(), "libcuda.so".to_string()];
    // cudarc panics if the driver is missing.
    library::open(&names).map_err(|cause| {
        let remedy = "it comes with NVIDIA's driver (Debian's libcuda1); if it is installed elsewhere, name its folder \
                      in LD_LIBRARY_PATH";
        Error::system(format!("cannot load CUDA's driver {}", names.join(" or ")), format!("{cause}; {remedy}"))
    })?;
    let count = CudaContext::device_count();
    let count = count.map_err(|cause| failed("CUDA's driver is there but gives no device", cause))?;
    match usize::try_from(count) {
        Ok(count @ 1..) => Ok(count),
        _ => {
            Err(Error::system("CUDA's driver is there but gives no device", "is CUDA_VISIBLE_DEVICES empty?"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_host_has_devices_of_its_own() {
        assert_eq!(id("a".into(), None), "a");
        assert_ne!(id("a".into(), Some("0".into())), id("a".into(), Some("1".into())));
        assert_ne!(id("a".into(), Some("0".into())), id("b".into(), Some("0".into())));
    }

    #[test]
    fn each_local_rank_has_a_device() {
        assert_eq!(choose(1, 2, false).unwrap(), 1);
        assert_eq!(choose(3, 1, true).unwrap(), 0, "the launcher has chosen");
        let error = choose(2, 2, true).unwrap_err().to_string();
        assert!(error.contains("LOCAL_RANK is 2, but this process sees 2 CUDA devices"), "{error}");
        assert!(choose(1, 1, false).is_err());
    }
}
