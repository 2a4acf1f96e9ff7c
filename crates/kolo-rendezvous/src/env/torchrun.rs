//! torchrun, `kolo launch`, and whoever sets torchrun's variables by hand.

use super::variables::Variables;
use super::{LOCAL_RANK, LOCAL_WORLD_SIZE, Launcher, MASTER_ADDR, MASTER_PORT, RANK, RUN_ID, WORLD_SIZE};

/// `True` when torchrun serves a store of its own at `MASTER_PORT`, which speaks PyTorch's language.
const AGENT_STORE: &str = "TORCHELASTIC_USE_AGENT_STORE";

pub(super) static TORCHRUN: Launcher = Launcher {
    name: "torchrun",
    recognise: |variables| variables.has(RANK),
    rank: &[RANK],
    world_size: &[WORLD_SIZE],
    local_rank: &[LOCAL_RANK],
    local_world_size: &[LOCAL_WORLD_SIZE],
    takes_port,
    host: |_| Ok(None),
    job,
    remedy: "set MASTER_ADDR and MASTER_PORT for all workers, or start them with `kolo launch`",
};

fn takes_port(variables: &Variables) -> bool {
    variables.get(AGENT_STORE).is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

/// The number of restarts is no part of it: after one, torchrun's agents on different nodes count differently.
fn job(variables: &Variables, _: bool) -> Option<String> {
    let part = |name| variables.get(name).unwrap_or_default();
    takes_port(variables)
        .then(|| format!("torchrun {} at {} {}", part(RUN_ID), part(MASTER_ADDR), part(MASTER_PORT)))
}
