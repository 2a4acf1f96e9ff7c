//! An optimizer's state, wherever it lies.

use std::ops::Range;

use crate::finite::are_finite;
use crate::layout::{Layout, SpanId};
use crate::optimizer::Optimizer;
use crate::store::{StoreFailure, VisitRun};

/// Visits the state of an optimizer, wherever it lies, as [`StateStore::visit`](crate::StateStore::visit)
/// does.
pub fn visit_state(optimizer: &mut (impl Optimizer + ?Sized), visit: &mut VisitRun<'_>) {
    match optimizer.store() {
        Some(store) => store.visit(visit),
        None => optimizer.state().into_iter().for_each(|(name, values)| visit(name, 0, values)),
    }
}

/// Visits these elements of one array of an optimizer's state, wherever it lies: `visit` gets their place
/// and their values, in one run or in several.
pub fn visit_elements(
    optimizer: &mut (impl Optimizer + ?Sized),
    array: &str,
    elements: Range<usize>,
    visit: &mut dyn FnMut(Range<usize>, &mut [f32]),
) {
    let mut take = |name: &'static str, start: usize, values: &mut [f32]| {
        let place = elements.start.max(start)..elements.end.min(start + values.len());
        if name == array && place.start < place.end {
            let own = place.start - start..place.end - start;
            visit(place, &mut values[own]);
        }
    };
    match optimizer.store() {
        Some(store) => store.visit_array(array, &elements, &mut take),
        None => visit_state(optimizer, &mut take),
    }
}

/// Returns the names of an optimizer's arrays of state.
pub fn state_names(optimizer: &mut (impl Optimizer + ?Sized)) -> Vec<&'static str> {
    match optimizer.store() {
        Some(store) => store.names().to_vec(),
        None => optimizer.state().into_iter().map(|(name, _)| name).collect(),
    }
}

/// Returns the first tensor of `layout`, for which the optimizer has state, in whose state `is_wrong` finds
/// something, with the number of the array. The function sees a tensor in one run or in several.
pub fn find_in_state(
    optimizer: &mut (impl Optimizer + ?Sized),
    layout: &Layout,
    is_wrong: impl Fn(SpanId, &[f32]) -> bool,
) -> Option<(usize, SpanId)> {
    let names = state_names(optimizer);
    let mut found = None;
    visit_state(optimizer, &mut |name, start, values| {
        let end = start + values.len();
        let first = layout.spans().partition_point(|span| span.range().end <= start);
        let spans = layout.spans().iter().enumerate().skip(first).take_while(|(_, span)| span.offset < end);
        let wrong = spans.map(|(number, span)| {
            let range = span.range();
            (SpanId(number), range.start.max(start) - start..range.end.clamp(start, end) - start)
        });
        let is_found = |(id, part): &(SpanId, Range<usize>)| is_wrong(*id, &values[part.clone()]);
        if found.is_none() {
            let array = names.iter().position(|other| *other == name).unwrap_or(0);
            found = wrong.into_iter().find(is_found).map(|(id, _)| (array, id));
        }
    });
    found
}

/// Returns true if all of an optimizer's state is finite.
pub fn state_is_finite(optimizer: &mut (impl Optimizer + ?Sized)) -> bool {
    let mut is_finite = true;
    visit_state(optimizer, &mut |_, _, values| is_finite &= are_finite(values));
    is_finite
}

/// Returns the first failure of the store, if the optimizer has one
/// ([`StateStore::check`](crate::StateStore::check)).
///
/// # Errors
///
/// The failure.
pub fn check_store(optimizer: &mut (impl Optimizer + ?Sized)) -> Result<(), StoreFailure> {
    optimizer.store().map_or(Ok(()), |store| store.check())
}
