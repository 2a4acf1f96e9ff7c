//! The bytes of one message.

use super::pool::Block;

/// A run of bytes in a collective's memory, sent as one message.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'a> {
    /// Address of the first byte.
    pub(crate) start: *const u8,
    pub(crate) bytes: usize,
    /// The block that holds the bytes, and their offset in it; `None` in memory that peers cannot read.
    pub(crate) place: Option<(&'a Block, usize)>,
    /// Number of the content. Segments with the same number hold the same bytes, so one copy serves them.
    pub(crate) content: u64,
}
