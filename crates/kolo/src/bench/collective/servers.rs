//! The summation servers of a group.

use kolo_comm::Group;

use kolo::Failure;

pub(super) fn servers(group: &Group) -> Result<Vec<bool>, Failure> {
    let mut all = vec![0u8; group.world_size()];
    group.all_gather(&[u8::from(group.is_server())], &mut all)?;
    Ok(all.into_iter().map(|flag| flag != 0).collect())
}
