//! Windows: each rank shows a buffer to all other ranks, which read it in place for as long as they like.
//!
//! One all-gather sends the places of the buffers of some windows; when it is over, all buffers are ready
//! to be read. If a buffer lies in memory that has not been shown before, a barrier follows. After the
//! barrier all ranks have mapped the memory, so its owner may end while the others read on.

use super::Engine;
use crate::backend::{Backend, NewWindow, OpenedWindow};
use crate::collective::Collective;
use kolo_rendezvous::{Error, InvalidCall};
use kolo_schedule::{Chunks, DType, Op, Rank};
use kolo_transport::CollectiveKind;
use kolo_transport::{Call, Fingerprint, Memory, PeerMemory, Place, WaitContext, WaitMode};

/// The message of a rank that shows a buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shown {
    place: Place,
    /// Number of bytes of one part.
    part: u64,
    /// True if the other ranks have not mapped that memory yet.
    is_new: bool,
    /// Number of the first window that the rank still reads.
    reads_from: u64,
}

/// Length of an encoded [`Shown`], in 64-bit integers.
const WORDS: usize = 7;

impl Shown {
    fn words(&self) -> [i64; WORDS] {
        let Shown { place: Place { file, start, len, offset }, part, is_new, reads_from } = *self;
        let words = [start, len, offset, part, u64::from(is_new), reads_from];
        let [start, len, offset, part, is_new, reads_from] = words.map(u64::cast_signed);
        [i64::from(file), start, len, offset, part, is_new, reads_from]
    }

    fn of(words: [i64; WORDS]) -> Self {
        let [file, rest @ ..] = words;
        let [start, len, offset, part, is_new, reads_from] = rest.map(i64::cast_unsigned);
        let place = Place { file: file as i32, start, len, offset };
        Shown { place, part, is_new: is_new != 0, reads_from }
    }
}

impl Engine {
    /// Implements [`Backend::open_windows`].
    pub(super) fn open(
        &mut self,
        windows: &[NewWindow<'_>],
        mode: WaitMode,
    ) -> Result<Vec<OpenedWindow>, Error> {
        let (own, world, count) = (self.rank.0, self.members.len(), windows.len());
        let mut words = vec![0; WORDS * count * world];
        let of_own = words[WORDS * count * own..].chunks_mut(WORDS);
        for (words, window) in of_own.zip(windows) {
            words.copy_from_slice(&self.show(window)?.words());
        }
        self.run(&Collective::AllGather(Chunks::Equal), &Memory::of_slice(&mut words), mode)?;
        let (shown, _) = words.as_chunks::<WORDS>();
        let shown: Vec<Shown> = shown.iter().map(|words| Shown::of(*words)).collect();
        let mut opened = Vec::with_capacity(count);
        for (number, window) in windows.iter().enumerate() {
            let shown = || shown[number..].iter().step_by(count).enumerate();
            let peers = shown().map(|(rank, shown)| self.shown_by(Rank(rank), *shown, window, mode));
            let peers = peers.collect::<Result<_, _>>()?;
            let reads_from = shown().map(|(_, shown)| shown.reads_from).min().unwrap_or(0);
            opened.push(OpenedWindow { peers, reads_from });
        }
        if shown.iter().any(|shown| shown.is_new) {
            self.run(&Collective::Barrier, &Memory::of_slice(&mut [0u8]), mode)?;
        }
        Ok(opened)
    }

    /// Returns this rank's message about a window.
    fn show(&mut self, window: &NewWindow<'_>) -> Result<Shown, Error> {
        let segment = window.memory.segment(0, window.bytes_of(self.rank), 0);
        match self.routes.in_place().and_then(|routes| routes.show(segment)) {
            Some((place, is_new)) => {
                Ok(Shown { place, part: window.part as u64, is_new, reads_from: window.reads_from })
            }
            None => Err(InvalidCall::NotInPlace { transport: self.routes.name().into() }.into()),
        }
    }

    /// Returns the memory that a rank shows; `None` for this rank.
    fn shown_by(
        &mut self,
        from: Rank,
        shown: Shown,
        window: &NewWindow<'_>,
        mode: WaitMode,
    ) -> Result<Option<PeerMemory>, Error> {
        if from == self.rank {
            return Ok(None);
        }
        let (kind, op, dtype) = (CollectiveKind::AllGather, Op::Sum, DType::I64);
        let call = Call { kind, op, root: None, readers: None, dtype, elements: WORDS as u64, algorithm: 0 };
        let (call, timeout) = (Fingerprint::new(&call).after(self.sequence), self.deadline.limit());
        let wait = WaitContext::new(self.rank, &self.members, call, mode, timeout, &self.liveness);
        let part = window.part as u64;
        if shown.part != part {
            let of = |part: u64| format!("a window with parts of {part} bytes");
            let (here, there) = (wait.name(self.rank), wait.name(from));
            return Err(Error::Mismatch { here, ours: of(part), there, theirs: of(shown.part) });
        }
        match self.routes.in_place() {
            Some(routes) => routes.find(from, shown.place, window.bytes_of(from) as u64, &wait).map(Some),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoded_message_decodes_to_itself() {
        let place = Place { file: -1, start: 1 << 40, len: 4096, offset: u64::MAX - 7 };
        let shown = Shown { place, part: 12, is_new: true, reads_from: 1 << 33 };
        assert_eq!(Shown::of(shown.words()), shown);
    }
}
