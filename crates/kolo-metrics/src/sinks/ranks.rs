//! `ranks.jsonl`: how each rank spends its time, from the ranks' regular comparisons.

use kolo_ddp::straggler::Times;
use kolo_run_folder::{JsonRow, RANKS, RankTimes, RanksRow};

use super::append_file::AppendFile;
use super::sink::{MetricSink, Record, SinkEntry};
use crate::progress::Progress;
use kolo_recipe::Error;

pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: RANKS,
    about: "computing and waiting time of each rank, and for which rank it waited; a line per comparison of the ranks",
    open: |run| {
        let file = AppendFile::new(run.folder?, ENTRY.name, "");
        Some(Box::new(Ranks { file, generation: 0, compared: 0 }))
    },
};

/// Most ranks whose comparisons are all written: the file grows about as fast as `steps.jsonl`.
const MOST: usize = 64;

struct Ranks {
    file: AppendFile,
    /// Generation of an elastic job.
    generation: u64,
    /// Comparisons since the sink was opened.
    compared: usize,
}

impl MetricSink for Ranks {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        match record {
            Record::Generation { generation, .. } => {
                self.generation = generation.number;
                Ok(())
            }
            Record::Step { row, report, .. } if !report.times.of_ranks.is_empty() => {
                self.compared(row.step, &report.times.of_ranks)
            }
            _ => Ok(()),
        }
    }

    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        let is_done =
            |line: &str| serde_json::from_str::<RanksRow>(line).is_ok_and(|row| row.step < progress.step());
        self.file.rewind(is_done).map(drop)
    }

    fn flush(&mut self) -> Result<(), Error> {
        // A single worker has no comparisons.
        if self.file.is_waiting() { self.file.flush() } else { Ok(()) }
    }
}

impl Ranks {
    fn compared(&mut self, step: u64, times: &[Times]) -> Result<(), Error> {
        self.compared += 1;
        if !(self.compared - 1).is_multiple_of(times.len().div_ceil(MOST)) {
            return Ok(());
        }
        let row = comparison(step, self.generation, times);
        let fail = |e: serde_json::Error| Error::encode("times of ranks", e);
        self.file.add(&row.json().map_err(fail)?)
    }
}

/// Returns the row of a comparison of all ranks after a step.
pub(super) fn comparison(step: u64, generation: u64, times: &[Times]) -> RanksRow {
    RanksRow { step, generation, ranks: times.iter().map(rank).collect() }
}

fn rank(times: &Times) -> RankTimes {
    RankTimes {
        shards: times.shards,
        compute_seconds: times.compute,
        data_seconds: times.data,
        stalled_seconds: times.compute_stalls + times.data_stalls,
        exposed_seconds: times.exposed,
        waited_for: times.waited_for.map(|(rank, _)| rank.0),
        waited_seconds: times.waited_for.map_or(0.0, |(_, seconds)| seconds),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kolo_comm::Rank;
    use kolo_ddp::{StepReport, StepTimes};
    use kolo_recipe::RunFolder;

    use super::*;
    use crate::calendar::Calendar;
    use crate::meter::{Meter, StepRow};

    #[test]
    fn comparisons_are_written_once_and_those_of_lost_steps_dropped() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path().into());
        let mut sink = Ranks { file: AppendFile::new(&folder, RANKS, ""), generation: 3, compared: 0 };
        let waits = Times { exposed: 0.25, waited_for: Some((Rank(0), 0.125)), ..Times::default() };
        for step in [20, 21, 40] {
            let of_ranks = if step == 21 { Vec::new() } else { vec![Times::default(), waits.clone()] };
            let times = StepTimes { of_ranks, ..StepTimes::default() };
            let report = StepReport { times, ..StepReport::default() };
            let row = StepRow::new(step, 0, 0.1, Duration::ZERO, &report);
            sink.record(&Record::Step { row: &row, report: &report, epoch: &Meter::default() }).unwrap();
        }
        sink.flush().unwrap();
        let read = || std::fs::read_to_string(place.path().join(RANKS)).unwrap();
        assert_eq!(read().lines().count(), 2);
        sink.align(&Progress::at(40, Calendar::for_tests(10, 100))).unwrap();
        let left: Vec<RanksRow> = read().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let rank = left[0].ranks[1];
        assert_eq!((left.len(), left[0].step, left[0].generation), (1, 20, 3));
        assert_eq!((rank.waited_for, rank.waited_seconds, rank.exposed_seconds), (Some(0), 0.125, 0.25));
    }
}
