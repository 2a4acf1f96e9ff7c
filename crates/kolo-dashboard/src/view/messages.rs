//! Draws the messages of the run, the newest last.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::style::framed;
use crate::state::RunState;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, run: &RunState) {
    let block = framed("messages");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let room = usize::from(inner.height);
    let mut lines: Vec<Line<'_>> = run.messages().take(room).map(Line::raw).collect();
    lines.reverse();
    frame.render_widget(Paragraph::new(lines), inner);
}
