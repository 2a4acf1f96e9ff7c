//! Host of a rank.

use serde::{Deserialize, Serialize};

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Host name.
    pub name: String,
    /// Boot id, which is unique per host; all containers of a host have the same.
    pub boot: String,
}

impl Host {
    /// Returns the host of this process.
    pub fn here() -> Host {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = boot.map_or_else(|_| name.clone(), |boot| boot.trim().to_owned());
        Host { name, boot }
    }
}
