//! torchrun's variables. `kolo launch`, and users who start workers by hand, set them as well.

use super::launcher::{Launcher, Numbers};
use crate::env::names::{LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, RANK, RUN_ID, WORLD_SIZE};
use crate::env::variables::Variables;

/// `True` if torchrun serves a store of PyTorch's protocol at `MASTER_PORT`.
const AGENT_STORE: &str = "TORCHELASTIC_USE_AGENT_STORE";

pub(super) struct Torchrun;

impl Launcher for Torchrun {
    fn name(&self) -> &'static str {
        "torchrun"
    }

    fn has_started(&self, variables: &Variables) -> bool {
        variables.has(RANK)
    }

    fn numbers(&self) -> Numbers {
        Numbers {
            rank: &[RANK],
            world_size: &[WORLD_SIZE],
            local_rank: &[LOCAL_RANK],
            local_world_size: &[LOCAL_WORLD_SIZE],
        }
    }

    fn occupies_master_port(&self, variables: &Variables) -> bool {
        variables.get(AGENT_STORE).is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// The number of restarts is no part of the name: after a restart, torchrun's agents on different nodes
    /// count differently.
    fn job_name(&self, variables: &Variables, _: bool) -> Option<String> {
        let part = |name| variables.get(name).unwrap_or_default();
        self.occupies_master_port(variables)
            .then(|| format!("torchrun {} at {} {}", part(RUN_ID), part(MASTER_ADDR), part(MASTER_PORT)))
    }

    fn remedy(&self) -> &'static str {
        "set MASTER_ADDR and MASTER_PORT for all workers, or start them with `kolo launch`"
    }

    /// Variables of torchrun in PyTorch 2.11.
    #[cfg(test)]
    fn example(&self) -> super::launcher::Example {
        super::launcher::Example {
            variables: &[
                ("RANK", "3"),
                ("WORLD_SIZE", "4"),
                ("LOCAL_RANK", "1"),
                ("LOCAL_WORLD_SIZE", "2"),
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", "29500"),
                ("TORCHELASTIC_RUN_ID", "none"),
                ("TORCHELASTIC_USE_AGENT_STORE", "True"),
            ],
            numbers: (3, 4, 1),
            host: "127.0.0.1",
            job: "MASTER_PORT",
        }
    }
}
