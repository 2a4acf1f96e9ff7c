//! Linear layers, with what often follows them.
//!
//! A product is computed by the tiles of the convolutions. What follows it is done while a tile's values are
//! in the cache, and the gradient of the bias while the product for the weights reads the output's gradient.

mod inputs;
mod layer;

pub use layer::{linear, linear_add, linear_gelu, linear_gelu_tanh};
