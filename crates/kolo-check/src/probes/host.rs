//! Where a rank runs.

use serde::{Deserialize, Serialize};

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// As it calls itself.
    pub name: String,
    /// Its start, which no other host has; several containers of one host have the same.
    pub boot: String,
}

impl Host {
    /// The one of this process.
    pub fn here() -> Host {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = boot.map_or_else(|_| name.clone(), |boot| boot.trim().to_owned());
        Host { name, boot }
    }
}
