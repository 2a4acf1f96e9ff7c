//! A pipeline lays the stages of a collective over one another: while one segment is added, the next is on
//! its way.

use crate::schedule::Step;

/// The steps that one rank does for one segment in one stage.
pub(super) type Stage<'a> = Box<dyn Fn(usize) -> Vec<Step> + 'a>;

/// Lays stages over one another: in round i stage k works on segment i − delay(k).
///
/// All ranks must use the same stages with the same delays: then the messages between two ranks come in the
/// order in which they are taken. A stage that waits for what another one sends must come after it, or later
/// by a round.
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
