//! Owners of flat memory: the ranks that hold each block.

use std::ops::Range;

use kolo_comm::Rank;
use kolo_optim::{Layout, Scope, SpanId};

use crate::buckets::{BLOCK, Slice};

/// Most elements of a run that [`Owners::dealt`] deals: 512 KiB, so that a message is still much longer than
/// what it costs to send one.
const DEALT: usize = 8 * BLOCK;

/// Elements of which each of many owners gets a run, as far as blocks allow: those of a bucket of 4 MiB.
const STRETCH: usize = 64 * BLOCK;

/// Ranks that own each block of flat memory, one or several a block. A block is 16,384 elements of a tensor,
/// or what is left at its end; with [`Scope::Tensor`] a whole tensor. Owners decide no bit, so they may
/// change whenever the ranks do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owners {
    scope: Scope,
    /// Consecutive runs of whole blocks, without empty ones, and their owners.
    runs: Vec<(Range<usize>, Vec<Rank>)>,
}

impl Owners {
    /// Makes each of `ranks` an owner of everything.
    pub fn everyone(layout: &Layout, ranks: &[Rank]) -> Self {
        Self::split(layout, Scope::Tensor, ranks, ranks.len())
    }

    /// Cuts flat memory into one run for each of `ranks`, as equal as whole blocks allow; if there are more
    /// ranks than blocks, some get nothing. Each run belongs to its rank and to the ones that follow it in
    /// `ranks`, as in a ring, so that it has `owners` owners, or as many as there are ranks.
    pub fn split(layout: &Layout, scope: Scope, ranks: &[Rank], owners: usize) -> Self {
        let ends: Vec<usize> = [0].into_iter().chain(blocks(layout, scope).map(|block| block.end)).collect();
        let parts = ranks.len() as u128;
        let end = |part: usize| {
            let wished = (layout.len() as u128 * part as u128).div_ceil(parts) as usize;
            ends.iter().copied().min_by_key(|end| end.abs_diff(wished)).unwrap_or(0)
        };
        let of = |part: usize| {
            let following = ranks[part..].iter().chain(&ranks[..part]).copied();
            (end(part)..end(part + 1), following.take(owners).collect())
        };
        let runs = (0..ranks.len()).map(of).filter(|(run, _): &(Range<usize>, _)| !run.is_empty());
        Owners { scope, runs: runs.collect() }
    }

    /// Deals flat memory, in runs of one to eight blocks, to the entries of `owners`: each run goes to the
    /// entry that has least so far. So sums and values that are exchanged together have all ranks as owners,
    /// and all of them send and receive at once. With one run for each, one rank after another would have
    /// what the others need, and a network would carry messages in one direction at a time.
    ///
    /// With [`Scope::Element`] entries differ by at most a block, with [`Scope::Tensor`] by at most the
    /// largest tensor.
    pub fn dealt(layout: &Layout, scope: Scope, owners: &[Vec<Rank>]) -> Self {
        let mut has = vec![0; owners.len()];
        let parts = owners.len().max(1);
        let (mut runs, mut left): (Vec<(Range<usize>, Vec<Rank>)>, _) = (Vec::new(), layout.len());
        let mut blocks = blocks(layout, scope).peekable();
        while let Some(mut run) = blocks.next() {
            // Shorter ones at the end make the entries equal.
            let longest = (left / (2 * parts)).min(DEALT).min(STRETCH / parts);
            while let Some(next) = blocks.next_if(|next| next.end - run.start <= longest) {
                run.end = next.end;
            }
            left -= run.len();
            let Some(entry) = (0..owners.len()).min_by_key(|entry| has[*entry]) else { break };
            has[entry] += run.len();
            match runs.last_mut() {
                Some((last, of_last)) if *of_last == owners[entry] => last.end = run.end,
                _ => runs.push((run, owners[entry].clone())),
            }
        }
        Owners { scope, runs }
    }

    /// Returns true if a tensor has the same owners everywhere.
    pub fn own_whole_tensors(&self) -> bool {
        self.scope == Scope::Tensor
    }

    /// Returns the owners of an element of flat memory; none beyond its end.
    pub fn of(&self, element: usize) -> &[Rank] {
        let next = self.runs.partition_point(|(run, _)| run.end <= element);
        self.runs.get(next).map_or(&[], |(_, owners)| owners)
    }

    /// Cuts a slice of a tensor where its owners change. Empty slices have no owners.
    pub fn cut<'a>(&'a self, layout: &Layout, slice: &Slice) -> impl Iterator<Item = (Slice, &'a [Rank])> {
        let (place, slice) = (slice.place(layout), slice.clone());
        let first = self.runs.partition_point(|(run, _)| run.end <= place.start);
        let within = self.runs[first..]
            .iter()
            .map(move |(run, owners)| (run.start.max(place.start)..run.end.min(place.end), &owners[..]));
        within.take_while(|(run, _)| !run.is_empty()).map(move |(run, owners)| {
            let from = run.start - place.start;
            let first = slice.elements.start + from;
            let elements = first..first + run.len();
            (Slice { span: slice.span, elements, offset: slice.offset + from }, owners)
        })
    }

    /// Returns the runs of flat memory that have the same owners, with those.
    pub fn parts(&self) -> impl Iterator<Item = (&Range<usize>, &[Rank])> {
        self.runs.iter().map(|(run, owners)| (run, &owners[..]))
    }

    /// Returns the runs of flat memory that a rank owns.
    pub fn runs_of(&self, rank: Rank) -> impl Iterator<Item = Range<usize>> {
        self.runs.iter().filter(move |(_, owners)| owners.contains(&rank)).map(|(run, _)| run.clone())
    }
}

/// Returns the blocks of all tensors, in the order of flat memory.
pub fn blocks(layout: &Layout, scope: Scope) -> impl Iterator<Item = Range<usize>> {
    layout.spans().iter().flat_map(move |span| {
        let len = if scope == Scope::Tensor { span.len.max(1) } else { BLOCK };
        let end = span.offset + span.len;
        (span.offset..end).step_by(len).map(move |start| start..end.min(start + len))
    })
}

/// Returns the slices of tensors that form a run of flat memory, one for each tensor; their offsets are
/// relative to the run.
pub fn slices(layout: &Layout, run: &Range<usize>) -> Vec<Slice> {
    let slice = |(number, span): (usize, &kolo_optim::Span)| {
        let own = span.range();
        let (start, end) = (own.start.max(run.start), own.end.min(run.end));
        let elements = start.checked_sub(own.start)?..end.checked_sub(own.start)?;
        (start < end).then(|| Slice { span: SpanId(number), elements, offset: start - run.start })
    };
    layout.spans().iter().enumerate().filter_map(slice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_optim::{Kind, ParamSpec};

    fn layout(lens: &[usize]) -> Layout {
        let kind = Kind::Parameter { decay: true };
        let spec = |(number, len): (usize, &usize)| ParamSpec::new(number.to_string(), vec![*len], kind);
        Layout::new(lens.iter().enumerate().map(spec).collect())
    }

    fn ranks(world: usize) -> Vec<Rank> {
        (0..world).map(Rank).collect()
    }

    /// Each rank and those that follow it.
    fn in_ring(world: usize, count: usize) -> Vec<Vec<Rank>> {
        let of = |rank| (0..count.min(world)).map(|next| Rank((rank + next) % world)).collect();
        (0..world).map(of).collect()
    }

    const LENS: [&[usize]; 8] = [
        &[1],
        &[BLOCK - 1],
        &[BLOCK],
        &[BLOCK + 1],
        &[0, 7, 0, 2],
        &[5 * BLOCK, 1, 0, BLOCK + 1, 3],
        &[0],
        &[],
    ];

    #[test]
    fn every_element_has_its_owners_and_no_block_is_cut() {
        for lens in LENS {
            let layout = layout(lens);
            for (world, scope) in (1..8).flat_map(|world| [(world, Scope::Element), (world, Scope::Tensor)]) {
                for (count, is_dealt) in (1..4).flat_map(|count| [(count, false), (count, true)]) {
                    let owners = match is_dealt {
                        false => Owners::split(&layout, scope, &ranks(world), count),
                        true => Owners::dealt(&layout, scope, &in_ring(world, count)),
                    };
                    for block in blocks(&layout, scope) {
                        let of_first = owners.of(block.start);
                        assert_eq!(of_first.len(), count.min(world), "{lens:?}, {world} ranks");
                        assert!((block.start..block.end).all(|element| owners.of(element) == of_first));
                        for rank in ranks(world) {
                            let has = owners.runs_of(rank).any(|run| run.contains(&block.start));
                            assert_eq!(has, of_first.contains(&rank));
                        }
                    }
                    assert_eq!(owners.of(layout.len()), []);
                }
            }
            let everyone = Owners::everyone(&layout, &ranks(3));
            assert!((0..layout.len()).all(|element| everyone.of(element).len() == 3));
        }
    }

    #[test]
    fn runs_are_as_equal_as_blocks_allow() {
        // Beginnings and ends.
        let runs = |lens: &[usize], scope, world| -> Vec<(usize, usize)> {
            let owners = Owners::split(&layout(lens), scope, &ranks(world), 1);
            let of = |rank| owners.runs_of(rank).map(|run| (run.start, run.end)).collect::<Vec<_>>();
            ranks(world).into_iter().flat_map(of).collect()
        };
        // More ranks than blocks: one has all of it.
        for len in [1, BLOCK - 1, BLOCK] {
            assert_eq!(runs(&[len], Scope::Element, 3), [(0, len)]);
        }
        assert_eq!(runs(&[BLOCK + 1], Scope::Element, 2), [(0, BLOCK), (BLOCK, BLOCK + 1)]);
        assert_eq!(runs(&[BLOCK + 1], Scope::Tensor, 2), [(0, BLOCK + 1)]);
        assert_eq!(runs(&[4 * BLOCK], Scope::Element, 2), [(0, 2 * BLOCK), (2 * BLOCK, 4 * BLOCK)]);
        assert_eq!(runs(&[5, 1, 90, 4], Scope::Tensor, 2), [(0, 6), (6, 100)]);
        assert_eq!(runs(&[50, 1, 4, 45], Scope::Tensor, 2), [(0, 50), (50, 100)]);
        let two = Owners::split(&layout(&[3 * BLOCK]), Scope::Element, &ranks(3), 2);
        let of_block = |block: usize| two.of(block * BLOCK).to_vec();
        assert_eq!([0, 1, 2].map(of_block), [[Rank(0), Rank(1)], [Rank(1), Rank(2)], [Rank(2), Rank(0)]]);
    }

    /// In each megabyte all ranks have their part, and in the end all have as much.
    #[test]
    fn ranks_are_dealt_a_part_of_every_stretch() {
        let small = [&[9, 768, 768][..], &[1, 700], &[BLOCK + 5, 7]];
        let lens: Vec<usize> = (0..40)
            .flat_map(|i| [100 * BLOCK + 3 * i, 768].into_iter().chain(small[i % 3].to_vec()))
            .collect();
        let layout = layout(&lens);
        for world in [1, 2, 3, 5, 8, 16, 64] {
            let owners = Owners::dealt(&layout, Scope::Element, &in_ring(world, 1));
            let of = |rank| owners.runs_of(rank).map(|run| run.len()).sum::<usize>();
            let has: Vec<usize> = ranks(world).into_iter().map(of).collect();
            assert!(has.iter().max().unwrap() - has.iter().min().unwrap() <= BLOCK, "{has:?}");
            let stretch = 2 * world * DEALT.min(STRETCH / world);
            for start in (0..layout.len() - 4 * stretch).step_by(stretch / 2 + 1) {
                for rank in ranks(world) {
                    let touches = |run: Range<usize>| run.start < start + stretch && run.end > start;
                    assert!(
                        owners.runs_of(rank).any(touches),
                        "{rank} of {world} has nothing behind {start}"
                    );
                }
            }
            let tensors = Owners::dealt(&layout, Scope::Tensor, &in_ring(world, 1));
            let of = |rank| tensors.runs_of(rank).map(|run| run.len()).sum::<usize>();
            let has: Vec<usize> = ranks(world).into_iter().map(of).collect();
            assert!(has.iter().max().unwrap() - has.iter().min().unwrap() <= 101 * BLOCK, "{has:?}");
        }
    }

    #[test]
    fn a_slice_is_cut_where_its_owners_change() {
        for lens in LENS {
            let layout = layout(lens);
            for world in 1..6 {
                let owners = Owners::dealt(&layout, Scope::Element, &in_ring(world, 2));
                for slice in slices(&layout, &(0..layout.len())) {
                    let (mut element, mut offset) = (slice.elements.start, slice.offset);
                    for (part, of_part) in owners.cut(&layout, &slice) {
                        assert_eq!(
                            (part.span, part.elements.start, part.offset),
                            (slice.span, element, offset)
                        );
                        assert!(part.place(&layout).all(|place| owners.of(place) == of_part));
                        (element, offset) = (part.elements.end, offset + part.elements.len());
                    }
                    assert_eq!(element, slice.elements.end, "{lens:?}, {world} ranks");
                }
            }
        }
    }

    #[test]
    fn slices_of_a_run_are_its_elements() {
        for lens in LENS {
            let layout = layout(lens);
            let owners = Owners::split(&layout, Scope::Element, &ranks(3), 1);
            for run in ranks(3).into_iter().flat_map(|rank| owners.runs_of(rank).collect::<Vec<_>>()) {
                let mut offset = 0;
                for slice in slices(&layout, &run) {
                    assert_eq!((slice.offset, slice.place(&layout).start), (offset, run.start + offset));
                    offset += slice.elements.len();
                }
                assert_eq!(offset, run.len());
            }
        }
    }
}
