//! Reading of tensors: any range of flat memory, from any number of files.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::error::Error;
use crate::header::Header;
use crate::manifest::{FileEntry, MANIFEST, TensorEntry};
use crate::read::{ANOTHER, Reader};
use crate::set::Set;
use kolo_optim::finite::are_finite;
use kolo_optim::{Element, Kind, Layout, Span};

/// Most values that are read together from a tensor that lies in the file as in flat memory: 1 MiB.
const RUN: usize = 1 << 18;

/// Runs of an array that a reader asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// Prefix of the tensors' names.
    pub prefix: String,
    /// Runs of flat memory, of which no two overlap.
    pub runs: Vec<Range<usize>>,
}

/// Function that receives values: the number of their array, their place in flat memory, and themselves.
pub type Take<'a> = dyn FnMut(usize, Range<usize>, &[f32]) + 'a;

/// Tensor, or a part of one, in a file.
struct Held<'a> {
    entry: &'a TensorEntry,
    span: &'a Span,
    /// Range of its elements in flat memory.
    place: Range<usize>,
    /// Number of its array among those that are wanted.
    array: usize,
}

/// Names of what is wanted.
struct Names<'a> {
    /// Tensors by name.
    spans: HashMap<&'a str, &'a Span>,
    /// Number of each array, by the prefix of the tensors' names.
    arrays: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    /// Returns the tensor and the number of the array for a name in a file. Prefixes are empty or end with a
    /// slash; names may contain slashes, too.
    fn find(&self, name: &str) -> Option<(&'a Span, usize)> {
        let ends = [0].into_iter().chain(name.match_indices('/').map(|(slash, _)| slash + 1));
        ends.into_iter().find_map(|end| {
            let (prefix, rest) = name.split_at(end);
            Some((*self.spans.get(rest)?, *self.arrays.get(prefix)?))
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
        let wanted = |(prefix, values): &(String, &mut [f32])| {
            let run = start..start + values.len();
            Wanted { prefix: prefix.clone(), runs: vec![run] }
        };
        let wanted: Vec<Wanted> = targets.iter().map(wanted).collect();
        self.read_runs(set, layout, &wanted, &mut |array, place, values| {
            targets[array].1[place.start - start..place.end - start].copy_from_slice(values);
        })
    }

    /// Reads runs of several arrays of a set, and passes them to `take` one after another, as they come. Each
    /// file that holds some of them is verified first. It needs a few MiB, or twice the largest tensor whose
    /// elements lie in another order in memory. Fails as [`Reader::read`] does.
    pub fn read_runs(
        &self,
        set: Set,
        layout: &Layout,
        wanted: &[Wanted],
        take: &mut Take<'_>,
    ) -> Result<(), Error> {
        let spans = layout.spans().iter().map(|span| (span.spec.name.as_str(), span)).collect();
        let arrays = wanted.iter().enumerate().map(|(number, array)| (array.prefix.as_str(), number));
        let names = Names { spans, arrays: arrays.collect() };
        let mut filled: Vec<Vec<Vec<Range<usize>>>> =
            wanted.iter().map(|array| vec![Vec::new(); array.runs.len()]).collect();
        for file in self.manifest.files.iter().filter(|file| set.is_in(&file.name)) {
            let held = self.held(file, &names, wanted)?;
            if held.is_empty() {
                continue;
            }
            let path = self.folder.join(&file.name);
            self.verify(file)?;
            let opened = kolo_durable::open(&path).map_err(|e| Error::file(&path, e))?;
            let header = Header::read(&opened).map_err(|problem| Error::file(&path, problem))?;
            for held in held {
                let mut runs = Vec::new();
                for (number, run) in wanted[held.array].runs.iter().enumerate() {
                    let common = common(run, &held.place);
                    if !common.is_empty() {
                        filled[held.array][number].push(common.clone());
                        runs.push(common);
                    }
                }
                let mut is_finite = true;
                let read = held.read(&opened, &header, runs, &mut |place, values| {
                    is_finite &= are_finite(values);
                    take(held.array, place, values);
                });
                read.map_err(|problem| Error::file(&path, problem))?;
                if !held.entry.given && !is_finite {
                    return Err(Error::NotFinite { path, tensors: vec![held.entry.key()] });
                }
            }
        }
        for (array, filled) in wanted.iter().zip(filled) {
            for (run, mut filled) in array.runs.iter().zip(filled) {
                if set != Set::Weights {
                    filled.extend(frozen(layout, run));
                }
                self.covers(set, &array.prefix, layout, run.clone(), filled)?;
            }
        }
        Ok(())
    }

    /// Returns the requested tensors in a file, with their ranges of flat memory.
    fn held<'a>(
        &self,
        file: &'a FileEntry,
        names: &Names<'a>,
        wanted: &[Wanted],
    ) -> Result<Vec<Held<'a>>, Error> {
        let mut all = Vec::new();
        for entry in &file.tensors {
            let Some((span, array)) = names.find(&entry.name) else { continue };
            if !Set::Weights.is_in(&file.name) && span.spec.kind == Kind::Frozen {
                continue;
            }
            self.fits(file, entry, span)?;
            let place = match entry.is_whole() {
                true => span.range(),
                false => span.offset + entry.elements.start..span.offset + entry.elements.end,
            };
            if wanted[array].runs.iter().any(|run| !common(run, &place).is_empty()) {
                all.push(Held { entry, span, place, array });
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

impl Held<'_> {
    /// Reads runs of it from its file.
    fn read(
        &self,
        file: &File,
        header: &Header,
        runs: Vec<Range<usize>>,
        take: &mut dyn FnMut(Range<usize>, &[f32]),
    ) -> Result<(), String> {
        let Held { entry, span, place, .. } = self;
        let stored = header.place(entry)?;
        let bytes_at = |at: u64, len: usize| {
            let mut data = vec![0; len];
            file.read_exact_at(&mut data, at).map_err(|e| e.to_string()).map(|()| data)
        };
        let element = span.spec.element;
        let is_permuted = entry.is_whole() && !span.spec.order.is_row_major();
        if element == Element::F32 && !is_permuted {
            for run in runs {
                for start in run.clone().step_by(RUN) {
                    let part = start..run.end.min(start + RUN);
                    let at = stored.start + ((start - place.start) * size_of::<f32>()) as u64;
                    take(
                        part.clone(),
                        &Element::F32.from_bytes(&bytes_at(at, size_of::<f32>() * part.len())?),
                    );
                }
            }
            return Ok(());
        }
        let data = bytes_at(stored.start, (stored.end - stored.start) as usize)?;
        let values: Vec<f32> = match (element, is_permuted) {
            (Element::F32, _) => {
                let in_file = Element::F32.from_bytes(&data);
                span.spec.order.row_major_indices(&entry.shape).map(|at| in_file[at]).collect()
            }
            // A part of a tensor of integers is stored as its values in flat memory.
            _ if entry.dtype == element.dtype() => element.from_bytes(&data),
            _ => Element::F32.from_bytes(&data),
        };
        for run in runs {
            take(run.clone(), &values[run.start - place.start..run.end - place.start]);
        }
        Ok(())
    }
}

/// Returns the elements that two runs have in common.
fn common(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    one.start.max(other.start)..one.end.min(other.end)
}

/// Returns the ranges that files of state lack, because frozen tensors have no state.
fn frozen(layout: &Layout, wanted: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let frozen = layout.spans().iter().filter(|span| span.spec.kind == Kind::Frozen);
    frozen.map(|span| common(&span.range(), wanted)).filter(|range| !range.is_empty())
}
