//! Reading whole files, compressed or not, never more than was expected.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::error::DataError;

/// A file's bytes after any decompression, with the name that errors give it.
pub(crate) struct Source {
    path: PathBuf,
    bytes: Box<dyn Read>,
}

impl Source {
    /// Opens a file; gzip is recognised by its first two bytes, not by its name.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let file = File::open(path).map_err(|source| DataError::Read { path: path.into(), source })?;
        Self::new(path, BufReader::new(file))
    }

    /// The same for any bytes; `path` is only for errors.
    pub fn new(path: &Path, mut bytes: impl Read + 'static) -> Result<Self, DataError> {
        let mut start = Vec::new();
        let read = bytes.by_ref().take(2).read_to_end(&mut start);
        read.map_err(|source| DataError::Read { path: path.into(), source })?;
        let gzip = start == [0x1f, 0x8b];
        let whole = Cursor::new(start).chain(bytes);
        let bytes: Box<dyn Read> = if gzip { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
        Ok(Self { path: path.into(), bytes })
    }

    /// The file's name.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The next `N` big-endian numbers of four bytes.
    ///
    /// # Errors
    ///
    /// [`DataError::Length`] if the file ends before.
    pub fn header<const N: usize>(&mut self) -> Result<[u32; N], DataError> {
        let expected = 4 * N as u64;
        let bytes = self.up_to(expected)?.bytes;
        let found = bytes.len() as u64;
        if found < expected {
            return Err(DataError::Length { path: self.path(), found, expected });
        }
        Ok(std::array::from_fn(|i| u32::from_be_bytes(std::array::from_fn(|byte| bytes[4 * i + byte]))))
    }

    /// All that is left, which must be exactly `expected` bytes.
    ///
    /// Reads one byte more than that at most, and reserves nothing ahead: a header that promises too much
    /// costs no memory.
    ///
    /// # Errors
    ///
    /// [`DataError::Length`] if it is more or less, [`DataError::Read`] if all is there but the gzip stream's
    /// checksum.
    pub fn rest(mut self, expected: u64) -> Result<Vec<u8>, DataError> {
        let Part { bytes, cut } = self.up_to(expected.saturating_add(1))?;
        let found = bytes.len() as u64;
        match cut {
            _ if found != expected => Err(DataError::Length { path: self.path, found, expected }),
            Some(source) => Err(DataError::Read { path: self.path, source }),
            None => Ok(bytes),
        }
    }

    fn up_to(&mut self, limit: u64) -> Result<Part, DataError> {
        let mut bytes = Vec::new();
        match self.bytes.by_ref().take(limit).read_to_end(&mut bytes) {
            Ok(_) => Ok(Part { bytes, cut: None }),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Ok(Part { bytes, cut: Some(error) })
            }
            Err(source) => Err(DataError::Read { path: self.path(), source }),
        }
    }
}

/// What could be read, and the decompressor's complaint if its stream ended too early: how much is there
/// tells the user more.
struct Part {
    bytes: Vec<u8>,
    cut: Option<io::Error>,
}
