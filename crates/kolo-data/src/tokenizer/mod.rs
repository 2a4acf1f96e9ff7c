//! Tokenizers: from texts to tokens and back. Each token of a tokenizer stands for bytes of the text, and one
//! ends a document.

#[cfg(feature = "bpe")]
mod alphabet;
#[cfg(feature = "bpe")]
mod bpe;
mod bytes;
#[cfg(feature = "bpe")]
mod canonical;
mod choice;
mod file;
#[cfg(feature = "bpe")]
mod merges;
#[cfg(not(feature = "bpe"))]
mod no_bpe;
mod tokens;
#[cfg(feature = "bpe")]
mod train;

#[cfg(feature = "bpe")]
use bpe::Bpe;
#[cfg(not(feature = "bpe"))]
use no_bpe::{Bpe, train};

pub use bytes::{BYTE_VOCABULARY, END_OF_DOCUMENT};
pub use tokens::Tokenizer;
