//! A pipeline overlaps the stages of a collective: while one segment is added, the next is in transit.

use crate::schedule::Step;

/// Returns the steps of one rank for one segment in one stage.
pub(super) type Stage<'a> = Box<dyn Fn(usize) -> Vec<Step> + 'a>;

/// Overlaps stages: in round i stage k works on segment i − delay(k).
///
/// All ranks must use the same stages with the same delays; the messages between two ranks then arrive in
/// the order in which they are taken. A stage that waits for messages of another stage must come after it
/// in the list or have a larger delay.
pub(super) fn pipeline(segments: usize, stages: &[(usize, Stage<'_>)]) -> Vec<Step> {
    let longest = stages.iter().map(|(delay, _)| *delay).max().unwrap_or(0);
    let mut steps = Vec::new();
    for round in 0..if segments == 0 { 0 } else { segments + longest } {
        for (delay, stage) in stages {
            if let Some(segment) = round.checked_sub(*delay).filter(|&segment| segment < segments) {
                steps.extend(stage(segment));
            }
        }
    }
    steps
}
