//! A worker that its launcher treats as a possible member, and that forms a fixed group instead.

use std::net::SocketAddr;
use std::time::Duration;

use kolo_comm::Options;
use kolo_rendezvous::Error;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Store;

use crate::member_name::{COORDINATOR, MEMBER};
use crate::worker_protocol::fixed_key;

/// A live coordinator accepts a connection within this time.
const CONNECT: Duration = Duration::from_secs(2);

/// Reports to this process's coordinator, if it has one, that the process will not arrive: because of
/// `setting` it forms a group that needs all of its workers. If workers of other nodes arrive, the job then
/// ends at once, and names the setting. Without a coordinator that answers, nothing is reported.
pub fn report_fixed(options: &Options, setting: &str) {
    let variable = |name| std::env::var(name).ok();
    let (Some(address), Some(member)) = (variable(COORDINATOR), variable(MEMBER)) else { return };
    let Ok(address) = address.parse() else { return };
    if let Err(error) = report(address, &member, options, setting) {
        log::warn!("the launcher does not learn that {setting} needs all workers: {error}");
    }
}

fn report(address: SocketAddr, member: &str, options: &Options, setting: &str) -> Result<(), Error> {
    let access = Access::new(options.token.clone(), options.encrypt)?;
    let mut coordinator = Store::connect_served(address, &access, CONNECT)?;
    coordinator.set(&fixed_key(member), setting.into())
}
