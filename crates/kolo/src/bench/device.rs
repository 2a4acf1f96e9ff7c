//! `kolo bench <operation> --backend nccl`: collectives over the memory of GPUs.

use std::sync::Arc;

use kolo_comm::Group;
use kolo_nccl::DeviceGroup;

use kolo::Failure;

pub(crate) fn open(group: &Arc<Group>) -> Result<DeviceGroup, Failure> {
    Ok(DeviceGroup::local(group)?)
}
