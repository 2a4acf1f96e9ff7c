//! The memory of gradient buffers that come and go within a step, and its high-water mark.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that the gradient buffers of one rank take.
#[derive(Debug, Default)]
pub(crate) struct GradientMemory {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl GradientMemory {
    /// Counts `bytes` bytes until the result is dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Held {
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
        Held { memory: self.clone(), bytes }
    }

    /// Returns the most bytes at once since the last call.
    pub(crate) fn take_peak(&self) -> usize {
        self.peak.swap(self.now.load(Ordering::Relaxed), Ordering::Relaxed)
    }
}

/// Bytes of one buffer, counted while this lives.
#[derive(Debug)]
pub(crate) struct Held {
    memory: Arc<GradientMemory>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.now.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_of_buffers_that_live_together() {
        let memory = Arc::new(GradientMemory::default());
        let first = memory.hold(10);
        let second = memory.hold(5);
        drop(first);
        let _third = memory.hold(7);
        assert_eq!(memory.take_peak(), 15);
        assert_eq!(memory.take_peak(), 12);
        drop(second);
        assert_eq!((memory.take_peak(), memory.take_peak()), (12, 7));
    }
}
