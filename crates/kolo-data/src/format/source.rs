//! Reads whole files, compressed or not, never more than the expected number of bytes.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;

use crate::error::DataError;

/// The bytes of a file, decompressed if needed, with the name for errors.
pub(crate) struct Source {
    path: PathBuf,
    bytes: Box<dyn Read>,
}

impl Source {
    /// Opens a file; gzip is recognized by its first two bytes, not by its name.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let file =
            kolo_durable::open(path).map_err(|source| DataError::Read { path: path.into(), source })?;
        Self::new(path, BufReader::new(file))
    }

    /// Creates a source of any bytes; `path` is only for errors.
    pub fn new(path: &Path, mut bytes: impl Read + 'static) -> Result<Self, DataError> {
        let mut start = Vec::new();
        let read = bytes.by_ref().take(2).read_to_end(&mut start);
        read.map_err(|source| DataError::Read { path: path.into(), source })?;
        let gzip = start == [0x1f, 0x8b];
        let whole = Cursor::new(start).chain(bytes);
        let bytes: Box<dyn Read> =
            if gzip { Box::new(Members::new(BufReader::new(whole))) } else { Box::new(whole) };
        Ok(Self { path: path.into(), bytes })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Reads the next `N` big-endian numbers of four bytes.
    ///
    /// # Errors
    ///
    /// [`DataError::Length`] if the file ends earlier.
    pub fn header<const N: usize>(&mut self) -> Result<[u32; N], DataError> {
        let expected = 4 * N as u64;
        let bytes = self.up_to(expected)?.bytes;
        let found = bytes.len() as u64;
        if found < expected {
            return Err(DataError::Length { path: self.path(), found, expected });
        }
        Ok(std::array::from_fn(|i| u32::from_be_bytes(std::array::from_fn(|byte| bytes[4 * i + byte]))))
    }

    /// Reads all remaining bytes, of which there must be exactly `expected`.
    ///
    /// Reads at most one byte more than that and reserves nothing ahead, so a header with a wrong length
    /// costs no memory.
    ///
    /// # Errors
    ///
    /// [`DataError::Length`] if there are more or fewer bytes, [`DataError::Read`] if only the checksum of
    /// the gzip stream is missing.
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

/// Bytes that could be read, and the error of the decompressor if its stream ended too early. The caller
/// can then report the number of bytes, which is more useful to the user.
struct Part {
    bytes: Vec<u8>,
    cut: Option<io::Error>,
}

/// The members of a gzip file, one after another. Zero bytes after a member are skipped, as gzip does:
/// tapes and some programs fill a block with them.
struct Members<R> {
    /// The current member; `None` after the last one.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Members<R> {
    fn new(bytes: R) -> Self {
        Members { member: Some(GzDecoder::new(bytes)) }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.member else { return Ok(0) };
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let rest = self.member.take().map(GzDecoder::into_inner);
            if let Some(mut rest) = rest
                && !ends_in_zeros(&mut rest)?
            {
                self.member = Some(GzDecoder::new(rest));
            }
        }
    }
}

/// Skips zero bytes; returns true if nothing follows them.
fn ends_in_zeros(bytes: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let next = bytes.fill_buf()?;
        let zeros = next.iter().take_while(|byte| **byte == 0).count();
        let (ends, has_more) = (next.is_empty(), zeros < next.len());
        bytes.consume(zeros);
        if ends || has_more {
            return Ok(ends);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn member(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn read(file: &[Vec<u8>], expected: u64) -> Result<Vec<u8>, DataError> {
        Source::new(Path::new("a.gz"), Cursor::new(file.concat())).unwrap().rest(expected)
    }

    #[test]
    fn members_follow_one_another_and_zeros_after_them_do_not_count() {
        let (one, two) = (member(b"one, "), member(&[7; 100_000]));
        let both = [&b"one, "[..], &[7; 100_000]].concat();
        for zeros in [0, 1, 511, 20_000] {
            let zeros = vec![0; zeros];
            assert_eq!(read(&[one.clone(), zeros.clone()], 5).unwrap(), b"one, ");
            assert_eq!(read(&[one.clone(), two.clone(), zeros.clone()], 100_005).unwrap(), both);
            assert_eq!(read(&[one.clone(), zeros, two.clone()], 100_005).unwrap(), both);
        }
    }

    #[test]
    fn anything_else_after_a_member_is_damage_and_so_is_a_cut_one() {
        let one = member(b"one");
        for rest in [&b"x"[..], b"\0\0x", b"\x1f\x8b"] {
            let error = read(&[one.clone(), rest.to_vec()], 3).unwrap_err().to_string();
            assert!(error.contains("a.gz"), "{error}");
        }
        assert!(read(&[one[..one.len() - 3].to_vec()], 3).is_err());
    }
}
