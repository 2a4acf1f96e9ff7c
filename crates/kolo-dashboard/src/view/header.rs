//! Draws the run's name, its progress, and the times within a step.

use std::time::Instant;

use kolo_run_folder::units::clock;
use kolo_run_folder::units::counted;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{LineGauge, Paragraph};

use super::style::{COMPUTE, DATA, WAITING, faint};
use crate::state::RunState;
use crate::units::{number, seconds};

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, run: &RunState, now: Instant) {
    let [title, gauge, figures, time] = Layout::vertical([Constraint::Length(1); 4]).areas(area);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let name = Line::from(vec![Span::styled("kolo", bold), Span::raw("  "), Span::raw(run.title.clone())]);
    frame.render_widget(Paragraph::new(name), title);
    frame.render_widget(progress(run, now), gauge);
    frame.render_widget(Paragraph::new(summary(run)), figures);
    frame.render_widget(Paragraph::new(time_of_a_step(run)), time);
}

fn progress(run: &RunState, now: Instant) -> LineGauge<'static> {
    let done = run.done as f64 / run.total_steps.max(1) as f64;
    let left = run.left(now).map_or(String::new(), |left| format!("  ETA {}", clock(left)));
    let label = format!(
        "step {}/{}  {:.0} %  {}{left} ",
        run.done,
        run.total_steps,
        100.0 * done.min(1.0),
        clock(run.elapsed(now))
    );
    LineGauge::default()
        .ratio(done.clamp(0.0, 1.0))
        .label(label)
        .filled_style(Style::new().fg(COMPUTE))
        .unfilled_style(faint())
}

fn summary(run: &RunState) -> String {
    let mut parts = Vec::new();
    if let Some(row) = run.last() {
        parts.push(format!("epoch {}/{}", row.epoch + 1, run.epochs));
        parts.push(format!("loss {}", row.loss.map_or_else(|| "–".into(), number)));
    }
    parts.extend(run.samples_per_second().map(|speed| format!("{speed:.0} {}/s", run.unit)));
    parts.extend(run.step_seconds().map(|time| format!("step {}", seconds(time))));
    parts.extend(run.last().map(|row| format!("learning rate {}", number(row.learning_rate))));
    parts.extend(run.world_size.map(|size| counted(size, "worker")));
    if run.generation > 0 {
        parts.push(format!("generation {}", run.generation));
    }
    if parts.is_empty() { "no step is done yet".into() } else { parts.join("  ") }
}

fn time_of_a_step(run: &RunState) -> Line<'static> {
    let Some(parts) = run.parts() else { return Line::default() };
    let part = |name: &str, time: f64, color| {
        [Span::styled("■ ", Style::new().fg(color)), Span::raw(format!("{name} {}  ", seconds(time)))]
    };
    let spans = [
        part("forward, data", parts.forward, DATA),
        part("backward", parts.backward, COMPUTE),
        part("optimizer", parts.optimizer, COMPUTE),
        part("waiting", parts.waiting, WAITING),
    ];
    Line::from_iter(spans.into_iter().flatten())
}
