//! Division of a job's state among its workers (Rajbhandari et al. 2020, "ZeRO").

/// State of which each worker holds a part only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharding {
    /// None: each worker holds all of it.
    #[default]
    Nothing,
    /// The optimizer's state (stage 1): each worker steps its part of the model, with the gradient of all
    /// shards, and sends the new values to the others.
    Optimizer,
}

impl Sharding {
    /// All of them, with their names on a command line.
    pub const ALL: [(&'static str, Sharding); 2] =
        [("nothing", Sharding::Nothing), ("optimizer", Sharding::Optimizer)];

    /// Name on a command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, sharding)| *sharding == self).map_or("", |(name, _)| name)
    }
}
