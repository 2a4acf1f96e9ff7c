//! Marks between the axes: lines, stacked bars, dots and whiskers.

use super::axis::Axis;
use super::plane::{SERIES, TOP, x_of, y_of};
use crate::html::{Element, Html, element};

/// Draws a line through points, interrupted at points without a number.
pub(crate) fn polyline(x: &Axis, y: &Axis, points: &[(f64, Option<f64>)], series: usize) -> Html {
    let mut path = String::new();
    let mut is_drawn = false;
    for (at, value) in points {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            is_drawn = false;
            continue;
        };
        path += &format!("{}{:.1} {:.1}", if is_drawn { "L" } else { "M" }, x_of(x, *at), y_of(y, value));
        is_drawn = true;
    }
    element("path").with("class", format!("line s{}", series % SERIES)).with("d", path).into()
}

/// Draws dots, each with a text that a browser shows when the pointer is on it.
pub(crate) fn dots(x: &Axis, y: &Axis, points: &[(f64, f64, String)], series: usize) -> Html {
    let dot = |(at, value, title): &(f64, f64, String)| {
        element("circle")
            .with("class", format!("dot s{}", series % SERIES))
            .with("cx", format!("{:.1}", x_of(x, *at)))
            .with("cy", format!("{:.1}", y_of(y, *value)))
            .with("r", "3.5")
            .add(element("title").add(title.as_str()))
    };
    points.iter().map(dot).collect()
}

/// Draws a whisker from the first value to the last, with a bar at its end and a short one at the middle
/// value.
pub(crate) fn whisker(x: &Axis, y: &Axis, at: f64, [low, middle, high]: [f64; 3], series: usize) -> Element {
    let (x, [low, middle, high]) = (x_of(x, at), [low, middle, high].map(|value| y_of(y, value)));
    let (left, right, tip) = (x - 4.0, x + 4.0, x - 2.5);
    let path = format!(
        "M{x:.1} {low:.1}V{high:.1}M{left:.1} {high:.1}H{right:.1}M{tip:.1} {middle:.1}H{:.1}",
        x + 2.5
    );
    element("path").with("class", format!("whisker s{}", series % SERIES)).with("d", path)
}

#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// Beginning and end on the x axis.
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) parts: Vec<f64>,
}

/// Draws stacked bars. A bar that is taller than the axis gets a notch at the top.
pub(crate) fn bars(x: &Axis, y: &Axis, bars: &[Bar], colors: &[usize]) -> Html {
    let mut all = Html::default();
    for (part, color) in colors.iter().enumerate() {
        // One path per part: each bar is a rectangle in it.
        let mut path = String::new();
        for bar in bars {
            let below: f64 = bar.parts.iter().take(part).sum();
            let (bottom, top) =
                (y_of(y, below), y_of(y, below + bar.parts.get(part).copied().unwrap_or(0.0)));
            if bottom - top < 0.05 {
                continue;
            }
            let (left, right) = edges(x, bar);
            path += &format!("M{left:.1} {bottom:.1}V{top:.1}H{right:.1}V{bottom:.1}Z");
        }
        all.push(element("path").with("class", format!("bar s{}", color % SERIES)).with("d", path));
    }
    all.push(notches(x, y, bars));
    all
}

fn edges(x: &Axis, bar: &Bar) -> (f64, f64) {
    let (left, right) = (x_of(x, bar.from), x_of(x, bar.to));
    let gap = if right - left > 4.0 { 0.5 } else { 0.0 };
    (left + gap, right - gap)
}

fn notches(x: &Axis, y: &Axis, bars: &[Bar]) -> Html {
    let mut path = String::new();
    for bar in bars.iter().filter(|bar| bar.parts.iter().sum::<f64>() > y.high()) {
        let (left, right) = edges(x, bar);
        let middle = (left + right) / 2.0;
        path += &format!("M{:.1} {:.1}l3 -5l3 5Z", middle - 3.0, TOP - 1.0);
    }
    if path.is_empty() {
        return Html::default();
    }
    element("path").with("class", "notch").with("d", path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes() -> (Axis, Axis) {
        (Axis::linear("x", [0.0, 10.0], true), Axis::linear("y", [0.0, 2.0], true))
    }

    #[test]
    fn a_point_that_is_no_number_interrupts_a_line() {
        let (x, y) = axes();
        let points =
            [(0.0, Some(0.0)), (1.0, Some(1.0)), (2.0, None), (3.0, Some(f64::NAN)), (4.0, Some(2.0))];
        let html = polyline(&x, &y, &points, 9).into_string();
        assert_eq!((html.matches('M').count(), html.matches('L').count()), (2, 1), "{html}");
        assert!(html.contains("line s1"), "{html}");
    }

    #[test]
    fn parts_are_stacked_and_tall_bars_have_a_notch() {
        let (x, y) = axes();
        let all = [
            Bar { from: 0.0, to: 1.0, parts: vec![1.0, 0.5] },
            Bar { from: 1.0, to: 2.0, parts: vec![1.0, 9.0] },
        ];
        let html = bars(&x, &y, &all, &[0, 1]).into_string();
        assert_eq!(
            (html.matches("class=\"bar").count(), html.matches("class=\"notch").count()),
            (2, 1),
            "{html}"
        );
        let [at_1, at_high] = [1.0, 2.0].map(|value| format!("{:.1}", y_of(&y, value)));
        assert!(html.contains(&format!("V{at_1}H")) && html.contains(&format!("V{at_high}H")), "{html}");
        assert!(!html.contains("NaN"), "{html}");
    }
}
