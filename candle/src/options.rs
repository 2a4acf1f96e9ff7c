//! Settings of a model in training.

use kolo_ddp::Selector;

/// Settings of a model in training.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Seed of the initial values of variables that the map does not have yet. Each depends on the seed and
    /// on its name; candle itself cannot seed the CPU's random numbers.
    pub seed: u64,
    /// Selectors of parameters that are not trained, such as `body.*`. No gradient is computed for them.
    /// Nothing notices a frozen variable that your program sets by itself.
    pub freeze: Vec<Selector>,
    /// Selectors of variables that a forward pass changes by itself, besides the `running_mean` and
    /// `running_var` of candle-nn's batch normalization.
    pub statistics: Vec<Selector>,
}
