//! Reading of tensors: any range of flat memory, from any number of files.

use std::collections::HashMap;
use std::ops::Range;

use safetensors::SafeTensors;

use crate::error::Error;
use crate::manifest::{FileEntry, MANIFEST, TensorEntry};
use crate::read::{ANOTHER, Reader};
use crate::snapshot::Set;
use crate::stored_file::stored_bytes;
use kolo_optim::finite::are_finite;
use kolo_optim::{Element, Kind, Layout, Span};

/// Tensor, or a part of one, in a file.
struct Held<'a> {
    entry: &'a TensorEntry,
    span: &'a Span,
    /// Range of its elements in flat memory.
    place: Range<usize>,
    /// Index of its target in [`Reader::read_all`].
    kind: usize,
}

struct Wanted<'a> {
    /// Tensors by name.
    spans: HashMap<&'a str, &'a Span>,
    /// Index of the target and its range of flat memory, by the prefix of the tensors' names.
    kinds: HashMap<String, (usize, Range<usize>)>,
}

impl<'a> Wanted<'a> {
    /// Returns the tensor and the target for a name in a file. Prefixes are empty or end with a slash; names
    /// may contain slashes, too.
    fn find(&self, name: &str) -> Option<(&'a Span, &(usize, Range<usize>))> {
        let ends = [0].into_iter().chain(name.match_indices('/').map(|(slash, _)| slash + 1));
        ends.into_iter().find_map(|end| {
            let (prefix, rest) = name.split_at(end);
            Some((*self.spans.get(rest)?, self.kinds.get(prefix)?))
        })
    }
}

impl Reader {
    /// Reads a set of tensors into `values`, which are the elements of flat memory from `start` on. Opens
    /// only files that hold some of them.
    ///
    /// # Errors
    ///
    /// Returns an error with the file that is damaged or missing, or the first tensor that does not fit or is
    /// not finite.
    pub fn read(
        &self,
        set: Set,
        prefix: &str,
        layout: &Layout,
        start: usize,
        values: &mut [f32],
    ) -> Result<(), Error> {
        self.read_all(set, layout, start, vec![(prefix.into(), values)])
    }

    /// Reads several kinds of tensors of a set, such as all states of an optimizer or the residuals of all
    /// shards. Each prefix has its own values, filled as by [`Reader::read`]. Each file is read once. Fails
    /// as [`Reader::read`] does.
    pub fn read_all(
        &self,
        set: Set,
        layout: &Layout,
        start: usize,
        mut targets: Vec<(String, &mut [f32])>,
    ) -> Result<(), Error> {
        let spans = layout.spans().iter().map(|span| (span.spec.name.as_str(), span)).collect();
        let kinds = targets.iter().enumerate();
        let kinds =
            kinds.map(|(kind, (prefix, values))| (prefix.clone(), (kind, start..start + values.len())));
        let wanted = Wanted { spans, kinds: kinds.collect() };
        let mut filled: Vec<Vec<Range<usize>>> = vec![Vec::new(); targets.len()];
        for file in self.manifest.files.iter().filter(|file| set.is_in(&file.name)) {
            let held = self.held(file, &wanted)?;
            if held.is_empty() {
                continue;
            }
            let fail = |problem: String| Error::file(self.folder.join(&file.name), problem);
            let data = self.file(file)?;
            let tensors =
                SafeTensors::deserialize(&data).map_err(|e| fail(format!("is no safetensors file: {e}")))?;
            for held in held {
                let values = &mut *targets[held.kind].1;
                let wanted = start..start + values.len();
                let common = held.place.start.max(wanted.start)..held.place.end.min(wanted.end);
                let target = &mut values[common.start - start..common.end - start];
                take(&tensors, &held, common.start - held.place.start, target).map_err(fail)?;
                if !held.entry.given && !are_finite(target) {
                    let (path, tensors) = (self.folder.join(&file.name), vec![held.entry.key()]);
                    return Err(Error::NotFinite { path, tensors });
                }
                filled[held.kind].push(common);
            }
        }
        targets.iter().zip(filled).try_for_each(|((prefix, values), mut filled)| {
            let wanted = start..start + values.len();
            if set != Set::Weights {
                filled.extend(frozen(layout, &wanted));
            }
            self.covers(set, prefix, layout, wanted, filled)
        })
    }

    /// Returns the requested tensors in a file, with their ranges of flat memory.
    fn held<'a>(&self, file: &'a FileEntry, wanted: &Wanted<'a>) -> Result<Vec<Held<'a>>, Error> {
        let mut all = Vec::new();
        for entry in &file.tensors {
            let Some((span, (kind, range))) = wanted.find(&entry.name) else { continue };
            if !Set::Weights.is_in(&file.name) && span.spec.kind == Kind::Frozen {
                continue;
            }
            self.fits(file, entry, span)?;
            let place = match entry.is_whole() {
                true => span.range(),
                false => span.offset + entry.elements.start..span.offset + entry.elements.end,
            };
            if place.start.max(range.start) < place.end.min(range.end) {
                all.push(Held { entry, span, place, kind: *kind });
            }
        }
        Ok(all)
    }

    fn fits(&self, file: &FileEntry, entry: &TensorEntry, span: &Span) -> Result<(), Error> {
        let element = span.spec.element;
        let is_itself = entry.shape == span.spec.shape && entry.dtype == element.dtype() && entry.is_whole();
        let is_cut = !entry.is_whole() && entry.shape == span.spec.flat_shape() && entry.dtype == "F32";
        if is_itself || is_cut {
            if is_itself || entry.order == span.spec.order {
                return Ok(());
            }
            let key = entry.key();
            let problem = format!(
                "holds `{key}` in another memory order than the model's; \
                 continue with the model that wrote it"
            );
            return Err(Error::file(self.folder.join(&file.name), problem));
        }
        let (name, dtype, found, needed) = (&entry.name, &entry.dtype, &entry.shape, &span.spec.shape);
        let element = element.dtype();
        let problem =
            format!("holds `{name}` as {dtype} {found:?} where {element} {needed:?} is needed; {ANOTHER}");
        Err(Error::file(self.folder.join(&file.name), problem))
    }

    /// Checks that each requested element came exactly once.
    fn covers(
        &self,
        set: Set,
        prefix: &str,
        layout: &Layout,
        wanted: Range<usize>,
        mut filled: Vec<Range<usize>>,
    ) -> Result<(), Error> {
        filled.sort_by_key(|range| range.start);
        let mut next = wanted.start;
        let mut wrong = "has no";
        for range in &filled {
            if range.start > next {
                break;
            }
            if range.start < next {
                (next, wrong) = (range.start, "holds twice the");
                break;
            }
            next = range.end;
        }
        if next == wanted.end && wrong == "has no" {
            return Ok(());
        }
        let span = layout.spans().iter().find(|span| span.range().contains(&next));
        let name = span.map_or("?", |span| &span.spec.name);
        let whole = span.is_some_and(|span| !filled.iter().any(|range| span.range().contains(&range.start)));
        let what = if whole { "tensor" } else { "elements of" };
        // Name the one file that should have it, or the manifest that lists several.
        let mut files = self.manifest.files.iter().filter(|file| set.is_in(&file.name));
        let file = match (files.next(), files.next()) {
            (Some(file), None) => file.name.as_str(),
            _ => MANIFEST,
        };
        Err(Error::file(self.folder.join(file), format!("{wrong} {what} `{prefix}{name}`; {ANOTHER}")))
    }
}

/// Copies elements of a stored tensor to `target`, beginning with element `from` of the file's part.
fn take(tensors: &SafeTensors<'_>, held: &Held<'_>, from: usize, target: &mut [f32]) -> Result<(), String> {
    let Held { entry, span, .. } = held;
    let data = stored_bytes(tensors, entry)?;
    let element = span.spec.element;
    let number = |word: &[u8]| f32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    if element != Element::F32 && entry.dtype == element.dtype() {
        target.copy_from_slice(&element.from_bytes(data)[from..][..target.len()]);
    } else if entry.is_whole() && !span.spec.order.is_row_major() {
        let places = span.spec.order.row_major_indices(&entry.shape).skip(from);
        target.iter_mut().zip(places).for_each(|(value, at)| *value = number(&data[4 * at..]));
    } else {
        let words = data.chunks_exact(4).skip(from);
        target.iter_mut().zip(words).for_each(|(value, word)| *value = number(word));
    }
    Ok(())
}

/// Returns the ranges that files of state lack, because frozen tensors have no state.
fn frozen(layout: &Layout, wanted: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let frozen = layout.spans().iter().filter(|span| span.spec.kind == Kind::Frozen);
    let common = |span: &Span| span.range().start.max(wanted.start)..span.range().end.min(wanted.end);
    frozen.map(common).filter(|range| !range.is_empty())
}
