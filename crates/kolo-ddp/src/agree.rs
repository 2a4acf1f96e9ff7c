//! Before the first step: do all ranks hold the same model? Then rank 0's values for everybody.

use kolo_comm::hash::fnv1a;
use kolo_comm::{Group, Op, Rank};

use crate::error::Error;
use kolo_optim::{Layout, ParamSpec};

/// Checks that names, shapes, kinds and memory orders are the same on all ranks.
pub(crate) fn check(group: &Group, layout: &Layout) -> Result<(), Error> {
    let own = describe(layout);
    let mut prints = vec![0i64; group.world_size()];
    group.all_gather(&[fnv1a(own.as_bytes()) as i64], &mut prints)?;
    if prints.iter().all(|print| *print == prints[0]) {
        return Ok(());
    }
    // They differ: everybody compares with rank 0, and the lowest rank that differs tells all how.
    let mut len = [own.len() as i64];
    group.broadcast(&mut len, Rank(0))?;
    let mut reference = own.clone().into_bytes();
    reference.resize(len[0] as usize, 0);
    group.broadcast(&mut reference, Rank(0))?;
    let found = difference(&String::from_utf8_lossy(&reference), &own, group.rank());

    let witness = prints.iter().position(|print| *print != prints[0]).unwrap_or(0);
    let mut words = found.into_bytes();
    let mut longest = [words.len() as i64];
    group.all_reduce(&mut longest, Op::Max)?;
    words.resize(longest[0] as usize, b' ');
    group.broadcast(&mut words, Rank(witness))?;
    Err(Error::ModelsDiffer(String::from_utf8_lossy(&words).trim_end().into()))
}

/// One line a tensor.
fn describe(layout: &Layout) -> String {
    let line = |span: &kolo_optim::Span| {
        let ParamSpec { name, shape, kind, order } = &span.spec;
        let order = if order.is_row_major() { String::new() } else { format!(" {order:?}") };
        format!("`{name}` {shape:?} {kind:?}{order}\n")
    };
    layout.spans().iter().map(line).collect()
}

fn difference(reference: &str, own: &str, rank: Rank) -> String {
    let mut pairs = reference.lines().zip(own.lines());
    if let Some((theirs, ours)) = pairs.find(|(theirs, ours)| theirs != ours) {
        return format!("parameter {ours} on {rank} is {theirs} on rank 0");
    }
    let (theirs, ours) = (reference.lines().count(), own.lines().count());
    format!("{ours} tensors on {rank}, {theirs} on rank 0")
}
