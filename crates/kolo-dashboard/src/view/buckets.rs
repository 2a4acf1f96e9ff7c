//! Draws the duration of each bucket's last reduction and the share that was hidden.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::style::{HIDDEN, WAITING, bar, faint, framed};
use crate::state::{Bucket, RunState};
use crate::units::{bytes, seconds};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, run: &RunState) {
    let block = framed("buckets: █ hidden ░ waited for");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let lines = match run.buckets.is_empty() {
        true => vec![Line::styled("no bucket was reduced yet", faint())],
        false => lines(&run.buckets, usize::from(inner.width), usize::from(inner.height)),
    };
    frame.render_widget(Paragraph::new(lines), inner);
}

/// Returns one line per bucket; if there is not enough room, the buckets that took longest.
fn lines(buckets: &[Bucket], columns: usize, room: usize) -> Vec<Line<'static>> {
    let mut shown: Vec<(usize, &Bucket)> = buckets.iter().enumerate().collect();
    let too_many = buckets.len() > room;
    if too_many {
        shown.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
        shown.truncate(room.saturating_sub(1));
    }
    let longest = buckets.iter().map(|bucket| bucket.seconds).fold(0.0, f64::max);
    let digits = buckets.len().saturating_sub(1).to_string().len();
    let line = |(number, bucket): &(usize, &Bucket)| line(*number, bucket, digits, longest, columns);
    let mut lines: Vec<Line<'static>> = shown.iter().map(line).collect();
    if too_many {
        let text = format!("and {} more, which took less", buckets.len() - shown.len());
        lines.push(Line::styled(text, faint()));
    }
    lines
}

fn line(number: usize, bucket: &Bucket, digits: usize, longest: f64, columns: usize) -> Line<'static> {
    let name = format!("{number:digits$} {:>8} ", bytes(bucket.bytes));
    let waited = bucket.exposed.clamp(0.0, bucket.seconds.max(0.0));
    let hidden = bucket.seconds - waited;
    let share = 100.0 * hidden / bucket.seconds.max(f64::MIN_POSITIVE);
    let text = format!(" {}, {share:.0} % hidden", seconds(bucket.seconds));
    let cells = columns.saturating_sub(name.len() + 23).clamp(4, 40);
    let mut spans = vec![Span::raw(name)];
    spans.extend(bar(&[(hidden, "█", HIDDEN), (waited, "░", WAITING)], longest, cells));
    spans.push(Span::raw(text));
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_at_most_the_duration() {
        let bucket = |seconds, exposed| Bucket { bytes: 1 << 20, seconds, exposed };
        let buckets = [bucket(0.01, 0.004), bucket(0.02, 7.0), bucket(0.0, 0.0)];
        let lines: Vec<String> = lines(&buckets, 60, 9).iter().map(ToString::to_string).collect();
        assert!(lines[0].ends_with("10.0 ms, 60 % hidden"), "{}", lines[0]);
        assert!(lines[1].ends_with("20.0 ms, 0 % hidden") && !lines[1].contains('█'), "{}", lines[1]);
        assert_eq!(super::lines(&buckets, 60, 2)[1].to_string(), "and 2 more, which took less");
    }
}
