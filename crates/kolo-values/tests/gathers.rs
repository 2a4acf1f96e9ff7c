//! Gathers of tensors that are shorter and longer than a message, from one owner and from several.

use std::sync::Arc;

use kolo_comm::{Rank, threads};
use kolo_optim::{Kind, Layout, ParamSpec, Scope, SpanId};
use kolo_reduction::{BLOCK, Owners};
use kolo_values::division::held_runs;
use kolo_values::{DividedValues, FlatValues, PIECE};

/// Tensors shorter and longer than a message.
const LENS: [usize; 4] = [BLOCK, 2 * PIECE + BLOCK + 3, PIECE, BLOCK + 1];

/// Value of an element of flat memory, with NaN and infinities.
fn value(element: usize, version: usize) -> f32 {
    match element % 1000 {
        1 => f32::from_bits(0x7fc0_0001 + version as u32),
        2 => f32::NEG_INFINITY,
        _ => (element + version) as f32,
    }
}

/// From memory, and by messages; with these all tensors but the first are gathered ahead in a second round.
#[test]
fn each_rank_has_the_owners_values_of_its_version() {
    let spec = |len: &usize| ParamSpec::new(len.to_string(), vec![*len], Kind::Parameter { decay: true });
    let layout = Arc::new(Layout::new(LENS.iter().map(spec).collect()));
    let ways: [fn(&Arc<Layout>) -> DividedValues; 2] = [DividedValues::new, DividedValues::with_messages];
    for ((world, count), new) in
        [(2, 1), (3, 1), (3, 2)].into_iter().flat_map(|ranks| ways.map(|way| (ranks, way)))
    {
        threads::spawn(world, |group| {
            let (rank, group) = (group.rank(), Arc::new(group));
            let ranks: Vec<Rank> = (0..world).map(Rank).collect();
            let owners = Arc::new(Owners::split(&layout, Scope::Element, &ranks, count));
            let mut values = FlatValues::parts(layout.len()).unwrap();
            let held = held_runs(&layout, &owners, rank);
            let fill = |values: &mut FlatValues, version| {
                let elements = held.iter().cloned().flatten();
                elements.for_each(|element| values[element] = value(element, version));
            };
            fill(&mut values, 0);
            let divided = new(&layout);
            divided.join(&group, &owners, &mut values).unwrap();
            for version in 0..3 {
                for span in [1, 0, 2, 1, 3].map(SpanId) {
                    let gathered = divided.gather(span).unwrap();
                    let expected = layout.span(span).range().map(|element| value(element, version));
                    assert!(gathered.iter().map(|v| v.to_bits()).eq(expected.map(f32::to_bits)));
                }
                // As after a step, which needs all ranks' passes.
                group.barrier().unwrap();
                divided.withdraw(&mut values);
                fill(&mut values, version + 1);
                divided.publish(&values, true);
            }
            divided.leave(&mut values);
        })
        .unwrap();
    }
}
