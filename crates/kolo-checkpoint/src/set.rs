//! Sets of a checkpoint's tensors.

/// Kind of tensors, which gives the prefix of their files' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Values of the model.
    Weights,
    /// State of the optimizer.
    Optimizer,
    /// State that the reduction keeps from step to step, per shard and for all shards, if it keeps any.
    Residuals,
}

/// File of a checkpoint that holds the model's values.
pub const WEIGHTS: &str = "weights.safetensors";

impl Set {
    pub(crate) fn file(self) -> &'static str {
        match self {
            Set::Weights => WEIGHTS,
            Set::Optimizer => "optimizer.safetensors",
            Set::Residuals => "residuals.safetensors",
        }
    }

    /// Returns true if a file holds tensors of this set: `optimizer.safetensors`, or
    /// `optimizer-<anything>.safetensors` for a part.
    pub(crate) fn is_in(self, name: &str) -> bool {
        let stem = self.file().trim_end_matches(".safetensors");
        let part = name.strip_prefix(stem).and_then(|rest| rest.strip_suffix(".safetensors"));
        part.is_some_and(|part| part.is_empty() || part.starts_with('-'))
    }
}
