//! The bytes of one message.

use super::pool::Block;

/// A run of bytes in a collective's memory, sent as one message.
#[derive(Clone, Copy)]
pub struct Segment<'a> {
    /// Address of the first byte.
    pub start: *const u8,
    /// Number of bytes.
    pub bytes: usize,
    /// The block that holds the bytes, and their offset in it; `None` in memory that peers cannot read.
    pub place: Option<(&'a Block, usize)>,
    /// Number of the content. Segments with the same number hold the same bytes, so one copy serves them.
    pub content: u64,
}

kolo_schedule::opaque_debug!(Segment<'_> { bytes, content });
