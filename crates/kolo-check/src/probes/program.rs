//! Program of a rank: another build may round differently or use another protocol.

use std::fs::File;
use std::io::Read;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Version.
    pub version: String,
    /// SHA-256 of its file, if that can be read.
    pub sha256: Option<String>,
}

const PIECE: usize = 1 << 20;

impl Program {
    /// Returns the program of this process, with its version.
    pub fn here(version: &str) -> Program {
        let sha256 = File::open("/proc/self/exe").ok().and_then(|file| hash(file).ok());
        Program { version: version.into(), sha256 }
    }
}

fn hash(mut file: impl Read) -> std::io::Result<String> {
    let (mut hash, mut piece) = (Sha256::new(), vec![0; PIECE]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            length => hash.update(&piece[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_bytes() {
        // FIPS 180-2, appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash(&b"abc"[..]).unwrap(), abc);
        assert!(Program::here("1").sha256.is_some());
    }
}
