//! How many files and connections a rank may have open.

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

/// Open files and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFiles {
    /// Most that this process may have, once the limit is raised as far as the system lets it.
    pub limit: Option<u64>,
    /// Those that it has while it belongs to the group of the job.
    pub used: u64,
}

impl OpenFiles {
    /// Of this process, which belongs to the group of the job.
    pub fn here() -> OpenFiles {
        let used = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
        OpenFiles { limit: getrlimit(Resource::Nofile).maximum, used }
    }
}
