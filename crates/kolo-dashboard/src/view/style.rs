//! Colors, of the terminal's own sixteen, which suit its theme. A shape or a label also distinguishes each.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use ratatui::widgets::{Block, BorderType};

pub(super) const COMPUTE: Color = Color::Blue;
/// Waiting for communication.
pub(super) const WAITING: Color = Color::Red;
/// Waiting for data, and stalls.
pub(super) const DATA: Color = Color::Yellow;
/// Hidden communication.
pub(super) const HIDDEN: Color = Color::Green;

pub(super) fn framed(title: &str) -> Block<'static> {
    let title = Span::styled(format!(" {title} "), Style::new().add_modifier(Modifier::BOLD));
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(Style::new().fg(Color::DarkGray))
        .title(title)
}

pub(super) fn faint() -> Style {
    Style::new().fg(Color::DarkGray)
}

/// Returns a bar of `cells` cells for the parts of a whole, each with its own shape and color.
pub(super) fn bar(parts: &[(f64, &'static str, Color)], whole: f64, cells: usize) -> Vec<Span<'static>> {
    let mut spans = Vec::with_capacity(parts.len());
    let (mut sum, mut drawn) = (0.0, 0);
    for (part, shape, color) in parts {
        sum += part.max(0.0);
        let until = (sum / whole.max(f64::MIN_POSITIVE) * cells as f64).round() as usize;
        let until = until.min(cells);
        spans.push(Span::styled(shape.repeat(until.saturating_sub(drawn)), Style::new().fg(*color)));
        drawn = drawn.max(until);
    }
    spans.push(Span::raw(" ".repeat(cells - drawn)));
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_as_many_cells_as_they_should() {
        for parts in [[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [9.0, 9.0, 9.0], [f64::NAN, -1.0, 1.0]] {
            let parts = parts.map(|part| (part, "#", COMPUTE));
            let cells: usize = bar(&parts, 4.0, 20).iter().map(|span| span.content.chars().count()).sum();
            assert_eq!(cells, 20);
        }
        let spans = bar(&[(1.0, "a", COMPUTE), (2.0, "b", WAITING)], 4.0, 8);
        assert_eq!(spans.iter().map(|span| &*span.content).collect::<String>(), "aabbbb  ");
    }
}
