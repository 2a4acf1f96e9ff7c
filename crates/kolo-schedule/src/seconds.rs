//! Durations of a step in messages to users.

use std::fmt;

/// Seconds a step below which a difference does not matter: about a time slice of Linux's scheduler, by which
/// steps differ where nothing is wrong.
pub const LEAST: f64 = 3e-3;

/// Seconds, formatted with three digits or more: `0.310 s`, `31.0 ms`, `3.10 ms`.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            long if long >= 0.1 => write!(f, "{long:.3} s"),
            short if short >= 0.01 => write!(f, "{:.1} ms", 1e3 * short),
            shorter => write!(f, "{:.2} ms", 1e3 * shorter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_that_differ_look_different() {
        let shown = [12.0, 0.31, 0.0312, 0.00244, 0.0018, 0.0].map(|seconds| Seconds(seconds).to_string());
        assert_eq!(shown, ["12.000 s", "0.310 s", "31.2 ms", "2.44 ms", "1.80 ms", "0.00 ms"]);
    }
}
