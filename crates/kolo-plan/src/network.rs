//! The cost model: latency, bandwidth, arithmetic (Hockney 1994, with the γ of Thakur, Rabenseifner & Gropp 2005).

/// A network of equal links. Every rank sends one message at a time and receives one message at a time, both at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// α: seconds a message takes whatever its length.
    pub latency: f64,
    /// β: seconds a byte takes, in one direction.
    pub per_byte: f64,
    /// γ: seconds it takes to add a byte to another.
    pub add_per_byte: f64,
}
