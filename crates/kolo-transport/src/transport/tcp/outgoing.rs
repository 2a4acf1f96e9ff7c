//! Outgoing messages to one peer.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Write};

use super::header::{HEADER, Header};
use crate::memory::Segment;

struct Message {
    header: [u8; HEADER],
    data: *const u8,
    bytes: usize,
    /// Number of bytes sent, of header and data.
    sent: usize,
    /// The data itself, if the message is a copy.
    copy: Vec<u8>,
}

// SAFETY: the running collective holds the bytes' memory until `settle` or `abandon` has returned.
unsafe impl Send for Message {}

impl Message {
    /// Returns the unsent parts of header and data.
    fn rest(&self) -> [IoSlice<'_>; 2] {
        let (header, data) = (self.sent.min(HEADER), self.sent.saturating_sub(HEADER));
        // SAFETY: data ≤ bytes, and the collective that holds these bytes waits in `settle`.
        let data = unsafe { std::slice::from_raw_parts(self.data.add(data), self.bytes - data) };
        [IoSlice::new(&self.header[header..]), IoSlice::new(data)]
    }
}

/// The messages that wait to be written to one connection, in order.
#[derive(Default)]
pub(super) struct Outgoing(VecDeque<Message>);

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, header: &Header, segment: Segment<'_>) {
        let (header, data, bytes) = (header.encode(), segment.start, segment.bytes);
        self.0.push_back(Message { header, data, bytes, sent: 0, copy: Vec::new() });
    }

    /// Copies the data of the last message, unless the kernel has taken it: the data may change from now on.
    pub(super) fn copy_last(&mut self) {
        if let Some(last) = self.0.back_mut() {
            // SAFETY: the segment's bytes, which nothing writes before this function returns.
            last.copy = unsafe { std::slice::from_raw_parts(last.data, last.bytes) }.to_vec();
            last.data = last.copy.as_ptr();
        }
    }

    /// Writes as much as the kernel takes. Header and data go together: two packets would wake the peer
    /// twice.
    pub(super) fn write_to(&mut self, stream: &mut impl Write) -> std::io::Result<()> {
        while let Some(message) = self.0.front_mut() {
            let whole = HEADER + message.bytes;
            match stream.write_vectored(&message.rest()) {
                Ok(0) if message.sent < whole => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => message.sent += count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if message.sent == whole {
                self.0.pop_front();
            }
        }
        Ok(())
    }
}
