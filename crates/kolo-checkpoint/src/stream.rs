//! Writing of a safetensors file tensor by tensor, so that no second copy of it is in memory.

use std::io::{self, Write};
use std::path::Path;

use safetensors::tensor::{Metadata, TensorInfo};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::hex;
use crate::manifest::FileEntry;
use crate::outline::Piece;
use crate::source::Source;

/// Multiple of bytes at which the values begin.
const ALIGNMENT: usize = 8;

/// Longest header that readers of the format accept, in bytes.
const LONGEST_HEADER: usize = 100_000_000;

/// Writes and syncs a file with these tensors; returns its entry. The bytes are those of
/// [`safetensors::serialize`].
pub(crate) fn write_tensors(
    folder: &Path,
    name: &str,
    pieces: &[Piece<'_>],
    source: &mut dyn Source,
) -> Result<FileEntry, Error> {
    let path = folder.join(name);
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let (header, order) = header(pieces).map_err(|e| Error::file(&path, e))?;
    let mut failure = None;
    let written = kolo_durable::write_with(&path, |file| {
        let mut put = |data: &[u8]| {
            hash.update(data);
            bytes += data.len() as u64;
            file.write_all(data)
        };
        put(&header)?;
        for (piece, run) in order.iter().flat_map(|piece| piece.runs().map(move |run| (piece, run))) {
            match source.read(piece.part, run) {
                Ok(values) => put(&piece.bytes(&values))?,
                Err(error) => {
                    failure = Some(error);
                    return Err(io::Error::other("its values have not come"));
                }
            }
        }
        Ok(())
    });
    match (failure, written) {
        (Some(failure), _) => return Err(failure),
        (None, written) => written.map_err(|e: io::Error| Error::not_written(&path, &e))?,
    }
    let tensors = pieces.iter().map(|piece| piece.entry.clone()).collect();
    Ok(FileEntry { name: name.into(), bytes, sha256: hex(&hash.finalize()), tensors })
}

/// Bytes before the values, and the tensors in the order of the file.
type Header<'a, 'b> = (Vec<u8>, Vec<&'a Piece<'b>>);

/// Returns the header of these tensors. Their order is by descending alignment of their type, then by name.
fn header<'a, 'b>(pieces: &'a [Piece<'b>]) -> Result<Header<'a, 'b>, Box<dyn std::error::Error>> {
    let mut order: Vec<(String, &Piece<'_>)> =
        pieces.iter().map(|piece| (piece.entry.key(), piece)).collect();
    order.sort_by(|(a, first), (b, second)| second.dtype().cmp(&first.dtype()).then(a.cmp(b)));
    let mut end = 0;
    let info = |(key, piece): &(String, &Piece<'_>)| {
        let start = end;
        end += piece.data_len();
        let (dtype, shape) = (piece.dtype(), piece.shape.clone());
        (key.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) })
    };
    let metadata = Metadata::new(None, order.iter().map(info).collect())?;
    let mut text = serde_json::to_vec(&metadata)?;
    if text.len() > LONGEST_HEADER {
        return Err(
            format!("its header would have {} bytes, and readers take {LONGEST_HEADER}", text.len()).into()
        );
    }
    text.resize(text.len().next_multiple_of(ALIGNMENT), b' ');
    let header = [&(text.len() as u64).to_le_bytes()[..], &text].concat();
    Ok((header, order.into_iter().map(|(_, piece)| piece).collect()))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::Arc;

    use kolo_optim::{Element, Kind, Layout, ParamSpec};
    use safetensors::{Dtype, View};

    use super::*;
    use crate::{Part, Position, Set, Snapshot};

    /// A tensor with all of its values.
    struct Filled<'a>(&'a Piece<'a>, &'a [f32]);

    impl View for Filled<'_> {
        fn dtype(&self) -> Dtype {
            self.0.dtype()
        }

        fn shape(&self) -> &[usize] {
            &self.0.shape
        }

        fn data(&self) -> Cow<'_, [u8]> {
            Cow::Owned(self.0.bytes(self.1))
        }

        fn data_len(&self) -> usize {
            self.0.data_len()
        }
    }

    /// The format's own crate writes the same bytes: whole and cut tensors, integers, and none.
    #[test]
    fn the_bytes_are_those_of_the_formats_crate() {
        let kind = Kind::Parameter { decay: true };
        let count = ParamSpec { element: Element::I64, ..ParamSpec::new("a", vec![3], Kind::Frozen) };
        let specs = vec![ParamSpec::new("z", vec![2, 3], kind), ParamSpec::new("none", vec![0], kind), count];
        let layout = Arc::new(Layout::new(specs));
        let values: Vec<f32> = (0..layout.len()).map(|n| n as f32 / 4.0).collect();
        let half = |start: usize, end: usize| {
            let (set, file, prefix) = (Set::Optimizer, "optimizer-0.safetensors".into(), "m/".into());
            Part { set, file, prefix, start, values: values[start..end].to_vec().into() }
        };
        let position = Position { step: 1, epoch: 0, step_in_epoch: 0, notes: "a test".into() };
        let parts = vec![Part::weights(&values), half(0, 4), half(4, layout.len())];
        let snapshot = Snapshot::new(layout, parts, &position).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for name in snapshot.outline.files() {
            let pieces = snapshot.outline.tensors(&name);
            let filled = |piece| Filled(piece, snapshot.run(piece.part, piece.place.clone()));
            let views = pieces.iter().map(|piece| (piece.entry.key(), filled(piece)));
            let expected = safetensors::serialize(views, None).unwrap();
            let entry = write_tensors(folder.path(), &name, &pieces, &mut &snapshot).unwrap();
            assert_eq!(std::fs::read(folder.path().join(&name)).unwrap(), expected, "{name}");
            assert_eq!((entry.bytes, entry.sha256), (expected.len() as u64, hex(&Sha256::digest(&expected))));
        }
    }
}
