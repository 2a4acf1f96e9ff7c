//! Draws each rank's use of time, and the rank for which it waits.

use kolo_run_folder::RankTimes;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::style::{COMPUTE, DATA, WAITING, bar, faint, framed};
use crate::state::RunState;
use crate::units::seconds;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, run: &RunState) {
    let block = framed("ranks: █ computing ▒ data ░ waiting");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let lines = match &run.ranks {
        None => vec![Line::styled("the ranks have not compared their times yet", faint())],
        Some(row) => lines(&row.ranks, usize::from(inner.width), usize::from(inner.height)),
    };
    frame.render_widget(Paragraph::new(lines), inner);
}

/// Returns one line per rank; if there is not enough room, the busiest ranks and the number of the others.
fn lines(ranks: &[RankTimes], columns: usize, room: usize) -> Vec<Line<'static>> {
    let mut shown: Vec<(usize, &RankTimes)> = ranks.iter().enumerate().collect();
    let too_many = ranks.len() > room;
    if too_many {
        shown.sort_by(|a, b| b.1.busy_seconds().total_cmp(&a.1.busy_seconds()));
        shown.truncate(room.saturating_sub(1));
    }
    let whole = |times: &RankTimes| times.busy_seconds() + times.exposed_seconds;
    let longest = ranks.iter().map(whole).fold(0.0, f64::max);
    let digits = ranks.len().saturating_sub(1).to_string().len();
    let line = |(rank, times): &(usize, &RankTimes)| line(*rank, times, digits, longest, columns);
    let mut lines: Vec<Line<'static>> = shown.iter().map(line).collect();
    if too_many {
        let text = format!("and {} more, which are busy for less", ranks.len() - shown.len());
        lines.push(Line::styled(text, faint()));
    }
    lines
}

fn line(rank: usize, times: &RankTimes, digits: usize, longest: f64, columns: usize) -> Line<'static> {
    let name = format!("rank {rank:digits$} ");
    let mut text = format!(" {}", seconds(times.busy_seconds()));
    if times.exposed_seconds > 0.0 {
        text += &format!(", waits {}", seconds(times.exposed_seconds));
        if let Some(peer) = times.waited_for {
            text += &format!(" for {peer}");
        }
    }
    // Reserves room for the longest text, so that the bars of all lines have the same length.
    let cells = columns.saturating_sub(name.len() + 31).clamp(4, 40);
    let data = times.data_seconds + times.stalled_seconds;
    let parts =
        [(times.compute_seconds, "█", COMPUTE), (data, "▒", DATA), (times.exposed_seconds, "░", WAITING)];
    let mut spans = vec![Span::raw(name)];
    spans.extend(bar(&parts, longest, cells));
    spans.push(Span::raw(text));
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_ranks_the_slowest_are_shown() {
        let times = |compute_seconds| RankTimes { shards: 1, compute_seconds, ..RankTimes::default() };
        let mut ranks = vec![times(0.01); 100];
        ranks[42] = times(0.05);
        let lines: Vec<String> = lines(&ranks, 80, 5).iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), 5);
        assert!(lines[0].starts_with("rank 42 ████") && lines[0].contains("50.0 ms"), "{}", lines[0]);
        assert_eq!(lines[4], "and 96 more, which are busy for less");
        assert_eq!(super::lines(&ranks, 0, 0).len(), 1);
    }
}
