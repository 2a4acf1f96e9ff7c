//! Reading from one peer, with some bytes read ahead: a header and a short message take one system call.

use std::io::Read;

/// Number of bytes read ahead: a header and a short message, or the beginning of a long one.
const AHEAD: usize = 4096;

/// Bytes of one connection that were read ahead and not taken yet.
pub(super) struct Incoming {
    ahead: Box<[u8; AHEAD]>,
    taken: usize,
    filled: usize,
}

impl Default for Incoming {
    fn default() -> Self {
        Incoming { ahead: Box::new([0; AHEAD]), taken: 0, filled: 0 }
    }
}

impl Incoming {
    /// Reads as [`Read::read`] does. Short reads take bytes read ahead; long ones go directly to `into`.
    pub(super) fn read_from(&mut self, stream: &mut impl Read, into: &mut [u8]) -> std::io::Result<usize> {
        if self.taken == self.filled {
            if into.len() >= AHEAD {
                return stream.read(into);
            }
            self.filled = 0;
            self.taken = 0;
            self.filled = stream.read(&mut self.ahead[..])?;
        }
        let count = into.len().min(self.filled - self.taken);
        into[..count].copy_from_slice(&self.ahead[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_or_doubled_at_any_cut() {
        let bytes: Vec<u8> = (0..20_000).map(|i| (i % 251) as u8).collect();
        for cuts in [vec![1usize], vec![24, 8], vec![32, 5000], vec![4095, 4096, 4097]] {
            let (mut stream, mut incoming, mut got) = (&bytes[..], Incoming::default(), Vec::new());
            for cut in cuts.iter().cycle() {
                let mut into = vec![0; *cut];
                let count = incoming.read_from(&mut stream, &mut into).unwrap();
                got.extend_from_slice(&into[..count]);
                if count == 0 {
                    break;
                }
            }
            assert_eq!(got, bytes);
        }
    }
}
