//! The tokens of a text as bytes.

/// Number of tokens of a text as bytes: the 256 bytes and [`END_OF_DOCUMENT`].
pub const BYTE_VOCABULARY: usize = 257;

/// Token that follows each document of a text as bytes.
pub const END_OF_DOCUMENT: u16 = 256;
