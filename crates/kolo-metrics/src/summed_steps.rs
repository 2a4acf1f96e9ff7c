//! The steps in which all shards, or all islands, were summed, as this worker has seen them.

/// Fewest last steps whose rows are kept.
pub(crate) const KEPT: usize = 16_384;

/// Removes the first [`KEPT`] entries once there are twice as many.
pub(crate) fn surplus<T>(all: &mut Vec<T>) -> Vec<T> {
    if all.len() < 2 * KEPT { Vec::new() } else { all.drain(..KEPT).collect() }
}

/// Last such steps with the bytes of each, and the number and bytes of those before.
#[derive(Debug, Default)]
pub(crate) struct SummedSteps {
    last: Vec<(u64, u64)>,
    before: (u64, u64),
}

impl SummedSteps {
    /// Adds a step, unless nothing was summed in it.
    pub(crate) fn add(&mut self, step: u64, bytes: u64) {
        if bytes > 0 {
            self.last.push((step, bytes));
            for (_, bytes) in surplus(&mut self.last) {
                self.before = (self.before.0 + 1, self.before.1 + bytes);
            }
        }
    }

    /// Returns the number of steps, and their bytes.
    pub(crate) fn total(&self) -> (u64, u64) {
        let bytes: u64 = self.last.iter().map(|(_, bytes)| bytes).sum();
        (self.before.0 + self.last.len() as u64, self.before.1 + bytes)
    }

    /// Forgets the steps that are known by their sums only.
    pub(crate) fn forget_earlier(&mut self) {
        self.before = (0, 0);
    }

    /// Forgets a step and all later ones.
    pub(crate) fn forget_from(&mut self, step: u64) {
        self.last.retain(|(summed, _)| *summed < step);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.last.len()
    }
}
