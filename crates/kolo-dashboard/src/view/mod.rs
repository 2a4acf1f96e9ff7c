//! Draws the state into cells. Pure: the same state, time and size give the same cells. Parts without room
//! are left out: curves get room first, then tables, then messages.

mod buckets;
mod charts;
mod header;
mod messages;
mod ranks;
mod style;

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};

use crate::state::RunState;

const HEADER: u16 = 4;

/// Minimum height of the curves with their frame.
const CURVES: u16 = 7;

/// Maximum height of ranks and buckets with their frame.
const TABLES: u16 = 12;

/// Minimum height of the messages with their frame.
const MESSAGES: u16 = 3;

pub(crate) fn draw(frame: &mut Frame<'_>, run: &RunState, now: Instant) {
    let area = frame.area();
    let [header, curves, tables, messages] = Layout::vertical(heights(area.height, wanted(run))).areas(area);
    header::draw(frame, header, run, now);
    if !curves.is_empty() {
        let [loss, throughput] = halves(curves);
        charts::draw(frame, loss, "loss", &run.loss);
        charts::draw(frame, throughput, &format!("{}/s", run.unit), &run.throughput);
    }
    if !tables.is_empty() {
        let [ranks, buckets] = halves(tables);
        ranks::draw(frame, ranks, run);
        buckets::draw(frame, buckets, run);
    }
    if !messages.is_empty() {
        messages::draw(frame, messages, run);
    }
}

fn halves(area: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area)
}

/// Returns the height of the longer table with its frame.
fn wanted(run: &RunState) -> u16 {
    let ranks = run.ranks.as_ref().map_or(0, |row| row.ranks.len());
    (ranks.max(run.buckets.len()).clamp(1, usize::from(TABLES)) as u16 + 2).min(TABLES)
}

/// Returns the heights of header, curves, tables and messages in a terminal of `height` lines.
fn heights(height: u16, tables: u16) -> [Constraint; 4] {
    let left = height.saturating_sub(HEADER);
    let curves = if left >= CURVES { CURVES } else { 0 };
    let tables = tables.min(left.saturating_sub(curves));
    let tables = if tables >= 3 { tables } else { 0 };
    let messages = left.saturating_sub(curves + tables);
    // Remaining lines make the curves taller, after a few messages.
    let messages = if messages >= MESSAGES { (messages / 3).max(MESSAGES) } else { 0 };
    let curves = if curves > 0 { Constraint::Fill(1) } else { Constraint::Length(0) };
    [Constraint::Length(HEADER), curves, Constraint::Length(tables), Constraint::Length(messages)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::run;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// Returns the text on a terminal of this size.
    fn shown(run: &RunState, columns: u16, lines: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| draw(frame, run, Instant::now())).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn everything_is_on_a_usual_terminal() {
        let text = shown(&run(), 100, 36);
        for part in [
            "small on fashion-mnist-small · runs/0001",
            "epoch 1/3",
            "step 200/400",
            "50 %",
            "1280 images/s",
            "4 workers",
            "generation 2",
            "loss 0.2620",
            "images/s",
            "backward 24.0 ms",
            "waiting 10.0 ms",
            "rank 2",
            "42.0 ms, waits 21.0 ms for 2",
            "5.2 MB",
            "60 % hidden",
            "rank 2 takes 1.5 times as long",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn a_run_that_begins_says_so() {
        let begun = RunState::new("mlp on mine".into(), "tokens".into(), 2, 0, 100);
        let text = shown(&begun, 80, 24);
        for part in ["mlp on mine", "step 0/100", "no step is done yet", "not compared"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn no_size_is_too_small_or_too_large() {
        let mut odd = run();
        odd.world_size = None;
        odd.ranks.as_mut().unwrap().ranks = vec![kolo_run_folder::RankTimes::default(); 3000];
        odd.buckets.clear();
        odd.say("a long message ".repeat(50));
        odd.say("control \u{1b}[31m\u{7} characters");
        for run in [run(), odd, RunState::new(String::new(), String::new(), 0, 0, 0)] {
            for columns in [1, 2, 3, 5, 10, 20, 40, 80, 133, 300] {
                for lines in [1, 2, 3, 4, 5, 8, 11, 14, 18, 24, 50, 100] {
                    let text = shown(&run, columns, lines);
                    assert!(!text.contains('\u{1b}'), "{columns} x {lines}");
                }
            }
        }
    }
}
