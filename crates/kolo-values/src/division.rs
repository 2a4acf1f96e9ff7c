//! The division of a model's values: large trained tensors are divided among owners, all ranks have the
//! others.

use std::ops::Range;

use kolo_comm::Rank;
use kolo_optim::{Layout, Span, SpanId};
use kolo_reduction::{BLOCK, Owners, Slice};

/// Returns true if a rank holds its own parts of a tensor only: of a trained tensor of at least a block. All
/// others are small, or never sent.
pub fn is_divided(span: &Span) -> bool {
    span.spec.kind.is_trained() && span.len >= BLOCK
}

/// Returns the runs of flat memory that all ranks have.
pub fn common_runs(layout: &Layout) -> Vec<Range<usize>> {
    merged(layout.spans().iter().filter(|span| !is_divided(span)).map(Span::range))
}

/// Returns the runs of flat memory that a rank holds: its own parts, and what all ranks have.
pub fn held_runs(layout: &Layout, owners: &Owners, rank: Rank) -> Vec<Range<usize>> {
    let of = |(number, span): (usize, &Span)| -> Vec<Range<usize>> {
        let whole = Slice { span: SpanId(number), elements: 0..span.len, offset: 0 };
        match is_divided(span) {
            false => vec![span.range()],
            true => {
                let own = owners.cut(layout, &whole).filter(|(_, owners)| owners.contains(&rank));
                own.map(|(slice, _)| slice.place(layout)).collect()
            }
        }
    };
    merged(layout.spans().iter().enumerate().flat_map(of))
}

/// Returns the parts of `place` that lie in `runs`, which are in order. A look at values that a rank does not
/// hold would bring pages of zeros into its memory.
pub fn within<'a>(
    runs: &'a [Range<usize>],
    place: &Range<usize>,
) -> impl Iterator<Item = Range<usize>> + use<'a> {
    let place = place.clone();
    let first = runs.partition_point(|run| run.end <= place.start);
    let parts = runs[first..].iter().map(move |run| run.start.max(place.start)..run.end.min(place.end));
    parts.take_while(|part| !part.is_empty())
}

/// Joins runs that touch, and leaves out empty ones.
fn merged(runs: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = Vec::new();
    for run in runs.filter(|run| !run.is_empty()) {
        match all.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => all.push(run),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_optim::{Kind, ParamSpec, Scope};

    #[test]
    fn parts_of_a_place_are_those_that_are_held() {
        let runs = [2..5, 5..6, 9..12];
        for start in 0..14 {
            for end in start..14 {
                let parts: Vec<usize> = within(&runs, &(start..end)).flatten().collect();
                let expected: Vec<usize> =
                    (start..end).filter(|place| runs.iter().any(|run| run.contains(place))).collect();
                assert_eq!(parts, expected, "{start}..{end}");
            }
        }
    }

    #[test]
    fn every_rank_holds_its_parts_and_what_is_small() {
        let spec = |len: &usize| ParamSpec::new(len.to_string(), vec![*len], Kind::Parameter { decay: true });
        let frozen = ParamSpec::new("frozen", vec![2 * BLOCK], Kind::Frozen);
        let lens = [5, 3 * BLOCK, 0, BLOCK - 1, BLOCK];
        let specs = lens[..3].iter().map(spec).chain([frozen]).chain(lens[3..].iter().map(spec)).collect();
        let layout = Layout::new(specs);
        let ranks = [0, 1, 2].map(Rank);
        let common = common_runs(&layout);
        let after = 5 + 3 * BLOCK;
        assert_eq!(common, [0..5, after..after + 3 * BLOCK - 1]);
        for count in 1..=3 {
            let owners = Owners::split(&layout, Scope::Element, &ranks, count);
            let held: Vec<_> = ranks.iter().map(|rank| held_runs(&layout, &owners, *rank)).collect();
            for element in 0..layout.len() {
                let is_common = common.iter().any(|run| run.contains(&element));
                for (rank, runs) in ranks.iter().zip(&held) {
                    let has = runs.iter().any(|run| run.contains(&element));
                    assert_eq!(has, is_common || owners.of(element).contains(rank), "{element}, {rank}");
                }
            }
            assert!(held.iter().flatten().all(|run| !run.is_empty()));
        }
    }
}
