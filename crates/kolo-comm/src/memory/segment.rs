//! What one message carries.

use super::pool::Block;

/// A run of bytes that a collective holds: what one message carries.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'a> {
    /// The address of the first byte.
    pub(crate) start: *const u8,
    pub(crate) bytes: usize,
    /// The block that it lies in, and how far from its beginning; `None` in memory that peers cannot read.
    pub(crate) place: Option<(&'a Block, usize)>,
    /// Segments of one number hold the same bytes: what goes to several peers need be copied only once.
    pub(crate) content: u64,
}
