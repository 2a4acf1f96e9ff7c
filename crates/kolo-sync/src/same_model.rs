//! Check before the first step that all ranks hold the same model and were given the same settings.

use kolo_comm::hash::fnv1a;
use kolo_comm::schedule::words::counted;
use kolo_comm::{Group, Op, Rank};

use crate::same_settings::Stated;
use kolo_optim::{Element, Layout, ParamSpec};
use kolo_reduction::Error;

/// Numbers in a rank's message: fingerprints of its model and of its settings, and 1 if it takes part in the
/// job already.
const NUMBERS: usize = 3;

/// Checks that names, shapes, kinds and memory orders are the same on all ranks, and the settings.
///
/// # Errors
///
/// They differ: the error names the parameter or the setting, and ranks. If some ranks have `joined` the job
/// already and only newcomers do not fit, the fitting members get [`Error::NewcomersRefused`]. Or a
/// collective failed.
pub fn check(group: &Group, layout: &Layout, settings: &Stated, joined: bool) -> Result<(), Error> {
    let own = describe(layout);
    let own_numbers = [fnv1a(own.as_bytes()) as i64, settings.print() as i64, i64::from(joined)];
    let mut all = vec![0i64; NUMBERS * group.world_size()];
    group.all_gather(&own_numbers, &mut all)?;
    let ranks: Vec<&[i64]> = all.chunks_exact(NUMBERS).collect();
    let reference = ranks.iter().position(|numbers| numbers[2] != 0).unwrap_or(0);
    let settings_differ = |rank: &usize| ranks[*rank][1] != ranks[reference][1];
    let differs = |rank: &usize| ranks[*rank][..2] != ranks[reference][..2];
    let differing: Vec<usize> = (0..ranks.len()).filter(differs).collect();
    if differing.is_empty() {
        return Ok(());
    }
    // A different setting may be the reason for different models.
    let error = match differing.iter().any(settings_differ) {
        true => settings.name_difference(group)?,
        false => name_parameter(group, own, Rank(reference), Rank(differing[0]))?,
    };
    // The job does not end for a worker that was never part of it.
    let is_fit = ranks[reference][2] != 0 && !differing.contains(&group.rank().0);
    if is_fit && differing.iter().all(|rank| ranks[*rank][2] == 0) {
        let ranks = differing.into_iter().map(Rank).collect();
        return Err(Error::NewcomersRefused { ranks, problem: error.to_string() });
    }
    Err(error)
}

/// Describes the difference of models: all ranks compare with `reference`, and `witness`, which differs,
/// broadcasts its finding.
fn name_parameter(group: &Group, own: String, reference: Rank, witness: Rank) -> Result<Error, Error> {
    let mut len = [own.len() as i64];
    group.broadcast(&mut len, reference)?;
    let mut theirs = own.clone().into_bytes();
    theirs.resize(len[0] as usize, 0);
    group.broadcast(&mut theirs, reference)?;
    let found = difference(&String::from_utf8_lossy(&theirs), &own, group.rank(), reference);

    let mut message = found.into_bytes();
    let mut longest = [message.len() as i64];
    group.all_reduce(&mut longest, Op::Max)?;
    message.resize(longest[0] as usize, b' ');
    group.broadcast(&mut message, witness)?;
    Ok(Error::ModelsDiffer(String::from_utf8_lossy(&message).trim_end().into()))
}

/// Returns one line for each tensor.
fn describe(layout: &Layout) -> String {
    let line = |span: &kolo_optim::Span| {
        let ParamSpec { name, shape, kind, order, element } = &span.spec;
        let order = if order.is_row_major() { String::new() } else { format!(" {order:?}") };
        let element = if *element == Element::F32 { String::new() } else { format!(" {element:?}") };
        format!("`{name}` {shape:?} {kind:?}{element}{order}\n")
    };
    layout.spans().iter().map(line).collect()
}

fn difference(theirs: &str, own: &str, rank: Rank, reference: Rank) -> String {
    let mut pairs = theirs.lines().zip(own.lines());
    if let Some((theirs, ours)) = pairs.find(|(theirs, ours)| theirs != ours) {
        return format!("parameter {ours} on {rank} is {theirs} on {reference}");
    }
    let (theirs, ours) = (theirs.lines().count(), own.lines().count());
    format!("{} on {rank}, {theirs} on {reference}", counted(ours, "tensor"))
}
