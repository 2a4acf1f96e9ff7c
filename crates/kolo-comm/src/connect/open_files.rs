//! How many files and connections this process may have open.

use std::sync::Once;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit to what the system allows this process, which is often a thousand times what it begins
/// with: every rank has a connection to each rank on other hosts, and rank 0 some to all ranks.
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
