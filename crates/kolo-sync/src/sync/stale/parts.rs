//! Division of flat memory among servers.

use std::ops::Range;

use kolo_optim::{Layout, SpanId};
use kolo_reduction::Slice;

/// Cuts flat memory into one part for each server, as equal as possible. With `whole_tensors`, each cut is
/// at the nearest boundary between tensors, and a part may be empty.
pub(super) fn cut(layout: &Layout, servers: usize, whole_tensors: bool) -> Vec<Range<usize>> {
    let ends = || [0].into_iter().chain(layout.spans().iter().map(|span| span.range().end));
    let end = |server: usize| {
        let wished = (layout.len() as u128 * server as u128 / servers as u128) as usize;
        match whole_tensors {
            true => ends().min_by_key(|end| end.abs_diff(wished)).unwrap_or(0),
            false => wished,
        }
    };
    (0..servers).map(|server| end(server)..end(server + 1)).collect()
}

/// Returns the slices of tensors that form a part, one for each tensor; their offsets are relative to the
/// part.
pub(super) fn slices(layout: &Layout, part: &Range<usize>) -> Vec<Slice> {
    let slice = |(number, span): (usize, &kolo_optim::Span)| {
        let own = span.range();
        let (start, end) = (own.start.max(part.start), own.end.min(part.end));
        let elements = start.checked_sub(own.start)?..end.checked_sub(own.start)?;
        (start < end).then(|| Slice { span: SpanId(number), elements, offset: start - part.start })
    };
    layout.spans().iter().enumerate().filter_map(slice).collect()
}

/// Returns the pairs of workers and servers, as indices, in turns. In a turn each worker and each server has
/// at most one pair.
pub(super) fn pairs(workers: usize, servers: usize) -> Vec<Vec<(usize, usize)>> {
    let turns = workers.max(servers);
    let turn = |turn: usize| {
        let pair = |worker: usize| (worker, (worker + turn) % turns);
        (0..workers).map(pair).filter(|(_, server)| *server < servers).collect()
    };
    (0..turns).map(turn).collect()
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

    #[test]
    fn parts_are_all_of_flat_memory_in_slices_of_its_tensors() {
        for lens in [&[5, 1, 90, 4][..], &[3], &[0, 7, 0, 2], &[]] {
            let layout = layout(lens);
            for servers in 1..6 {
                for whole in [false, true] {
                    let parts = cut(&layout, servers, whole);
                    let mut place = 0;
                    for part in &parts {
                        assert_eq!(part.start, place);
                        place = part.end;
                        let slices = slices(&layout, part);
                        assert!(
                            slices.iter().all(|slice| !whole || slice.elements.len() == lens[slice.span.0])
                        );
                        let mut offset = 0;
                        for slice in slices {
                            assert_eq!(
                                (slice.offset, slice.place(&layout).start),
                                (offset, part.start + offset)
                            );
                            offset += slice.elements.len();
                        }
                        assert_eq!(offset, part.len());
                    }
                    assert_eq!((parts.len(), place), (servers, layout.len()));
                }
                let even = cut(&layout, servers, false);
                assert!(even.iter().all(|part| part.len().abs_diff(layout.len() / servers) <= 1));
            }
        }
        assert_eq!(cut(&layout(&[5, 1, 90, 4]), 2, true), [0..6, 6..100]);
        assert_eq!(cut(&layout(&[50, 1, 4, 45]), 2, true), [0..50, 50..100]);
    }

    #[test]
    fn every_worker_and_every_server_are_a_pair_once() {
        for workers in 1..6 {
            for servers in 1..6 {
                let turns = pairs(workers, servers);
                let mut all: Vec<_> = turns.concat();
                all.sort_unstable();
                let every = (0..workers).flat_map(|worker| (0..servers).map(move |server| (worker, server)));
                assert!(all.into_iter().eq(every));
                for turn in turns {
                    let mut used: Vec<_> = turn.iter().map(|(_, server)| server).collect();
                    used.sort_unstable();
                    used.dedup();
                    assert_eq!(used.len(), turn.len());
                }
            }
        }
    }
}
