//! A curve over the steps.

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
    // A line that is level lies in the middle.
    let apart = if high > low { 0.05 * (high - low) } else { 0.1 * high.abs().max(1e-9) };
    let (low, high) = (low - apart, high + apart);
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
