//! The limit on the open files and connections of this process.

use std::sync::Once;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit to the system's maximum, often a thousand times the initial limit. Every rank has a
/// connection to each rank on other hosts, and rank 0 has some to all ranks.
pub(crate) fn raise_limit() {
    static RAISED: Once = Once::new();
    RAISED.call_once(|| {
        let mut limit = getrlimit(Resource::Nofile);
        if limit.current != limit.maximum {
            limit.current = limit.maximum;
            if let Err(cause) = setrlimit(Resource::Nofile, limit) {
                log::debug!("the limit of open files stays as it is: {cause}");
            }
        }
    });
}
