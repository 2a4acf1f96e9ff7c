//! Last steps, as this worker saw them, whose final loss is not known yet: over all islands or workers, or of
//! a step with a late update.

use kolo_ddp::{LastStep, StepReport};

use crate::meter::StepRow;

#[derive(Debug, Default)]
pub(crate) struct WaitingSteps(Vec<(StepRow, StepReport)>);

impl WaitingSteps {
    /// Adds a step; returns those whose losses are final by its report.
    pub(crate) fn settle(&mut self, row: StepRow, report: &StepReport) -> Vec<(StepRow, StepReport)> {
        self.0.push((row, report.clone()));
        let Some(last) = report.known.last() else { return Vec::new() };
        let later = self.0.iter().position(|(row, _)| row.step > last.step);
        let mut settled: Vec<_> = self.0.drain(..later.unwrap_or(self.0.len())).collect();
        for (row, _) in &mut settled {
            if let Some(known) = report.known.iter().find(|known| known.step == row.step) {
                row.settle(known);
            }
        }
        settled
    }

    /// Takes the rows of steps before `step` that are `known` to have completed elsewhere, and of later ones,
    /// in order. Those of other workers are `unseen`.
    pub(crate) fn complete(
        &mut self,
        step: u64,
        known: &[LastStep],
        unseen: impl Fn(&LastStep) -> StepRow,
    ) -> Vec<StepRow> {
        let mut waiting: Vec<StepRow> = self.0.drain(..).map(|(row, _)| row).collect();
        let (mut next, mut rows) = (step - waiting.len() as u64, Vec::new());
        for last in known {
            if last.step != next {
                continue;
            }
            rows.push(match waiting.iter().position(|row| row.step == last.step) {
                Some(place) => {
                    StepRow { loss: last.loss, count: last.count as u64, ..waiting.swap_remove(place) }
                }
                None => unseen(last),
            });
            next += 1;
        }
        rows
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
