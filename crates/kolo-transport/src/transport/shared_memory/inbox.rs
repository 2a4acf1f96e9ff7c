//! Memory in which ranks of one host leave messages for each other.

use std::sync::Arc;

use super::lane::{Bell, Lane};
use crate::memory::Mapping;
use kolo_schedule::Rank;

/// Zeroed pages are an empty inbox.
#[derive(Clone)]
pub(super) struct Inbox {
    pub(super) pages: Arc<Mapping>,
}

impl Inbox {
    pub(super) fn bell(&self) -> &Bell {
        // SAFETY: pages start with a Bell, are page-aligned, zeroed at first, and only used through atomics.
        unsafe { self.pages.start().cast().as_ref() }
    }

    pub(super) fn lane(&self, from: Rank) -> &Lane {
        let offset = size_of::<Bell>() + from.0 * size_of::<Lane>();
        assert!(offset + size_of::<Lane>() <= self.pages.len(), "{from} has no lane here");
        // SAFETY: inside the pages, aligned because both sizes are multiples of 64; otherwise as above.
        unsafe { self.pages.start().add(offset).cast().as_ref() }
    }
}

pub(super) fn inbox_len(world: usize) -> usize {
    size_of::<Bell>() + world * size_of::<Lane>()
}
