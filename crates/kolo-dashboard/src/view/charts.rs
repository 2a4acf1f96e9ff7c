//! Draws a curve over the steps.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType};

use super::style::{COMPUTE, faint, framed};
use crate::series::Series;
use crate::units::number;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, title: &str, series: &Series) {
    let points = series.points();
    let (low, high) = series.range().unwrap_or((0.0, 1.0));
    let [low, high] = with_room(low, high);
    let first = points.first().map_or(0.0, |point| point.0);
    let last = points.last().map_or(1.0, |point| point.0.max(first + 1.0));
    let data = Dataset::default()
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
        .style(Style::new().fg(COMPUTE))
        .data(points);
    let axis =
        |bounds: [f64; 2], labels: Vec<String>| Axis::default().bounds(bounds).labels(labels).style(faint());
    let steps = vec![format!("{first:.0}"), format!("{last:.0}")];
    let values = vec![number(low), number(high)];
    let chart = Chart::new(vec![data])
        .block(framed(title))
        .legend_position(None)
        .x_axis(axis([first, last], steps))
        .y_axis(axis([low, high], values));
    frame.render_widget(chart, area);
}

/// Returns bounds with some room around the values, not below 0 if no value is. Centers a level line.
fn with_room(low: f64, high: f64) -> [f64; 2] {
    let room = if high > low { 0.05 * (high - low) } else { 0.1 * high.abs().max(1e-9) };
    let least = if low >= 0.0 { 0.0 } else { f64::NEG_INFINITY };
    [(low - room).max(least), high + room]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_never_below_zero_have_no_room_there() {
        assert_eq!(with_room(10.0, 1010.0), [0.0, 1060.0]);
        assert_eq!(with_room(500.0, 1000.0), [475.0, 1025.0]);
        assert_eq!(with_room(-1.0, 1.0), [-1.1, 1.1]);
        assert_eq!(with_room(2.0, 2.0), [1.8, 2.2]);
    }
}
