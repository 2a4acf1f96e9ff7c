//! A chart of lines over a logarithmic axis, as SVG.

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 560);

/// Distinct colors, also for readers who do not see red and green. The first is blue, the second vermilion,
/// the last gray.
pub const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 240),
    RGBColor(90, 90, 90),
];

/// An axis of a chart.
#[derive(Debug)]
pub struct Axis {
    /// Its description, with the unit.
    pub name: &'static str,
    /// The first and the last value.
    pub range: Range<f64>,
    /// True if its scale is logarithmic.
    pub is_logarithmic: bool,
    /// Text of a value; `None` for the number itself.
    pub label: Option<fn(&f64) -> String>,
}

/// A line of a chart.
#[derive(Debug)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
    /// Its color, one of [`COLORS`].
    pub color: RGBColor,
}

/// A chart.
#[derive(Debug)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The axis below, which is logarithmic.
    pub x: Axis,
    /// The axis on the left.
    pub y: Axis,
    /// The lines.
    pub lines: Vec<Line>,
    /// Radius of the points on the lines; 0 draws none.
    pub point_size: u32,
    /// True to draw a legend.
    pub has_legend: bool,
}

impl Chart {
    /// Draws the chart.
    ///
    /// # Errors
    ///
    /// The text cannot be laid out; says why.
    pub fn svg(&self) -> Result<String, String> {
        match self.y.is_logarithmic {
            true => self.over(self.y.range.clone().log_scale()),
            false => self.over(self.y.range.clone()),
        }
    }

    /// Draws the chart into a file.
    ///
    /// # Errors
    ///
    /// The text cannot be laid out, or the file cannot be written; says why.
    pub fn write(&self, file: &Path) -> Result<(), String> {
        std::fs::write(file, self.svg()?).map_err(text)
    }

    fn over<Y>(&self, y: Y) -> Result<String, String>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut picture = String::new();
        {
            let root = SVGBackend::with_string(&mut picture, SIZE).into_drawing_area();
            root.fill(&WHITE).map_err(text)?;
            let mut chart = ChartBuilder::on(&root)
                .caption(&self.title, ("sans-serif", 20))
                .margin(16)
                .x_label_area_size(44)
                .y_label_area_size(64)
                .build_cartesian_2d(self.x.range.clone().log_scale(), y)
                .map_err(text)?;
            let mesh = &mut chart.configure_mesh();
            mesh.x_desc(self.x.name).y_desc(self.y.name);
            if let Some(label) = &self.x.label {
                mesh.x_label_formatter(label);
            }
            if let Some(label) = &self.y.label {
                mesh.y_label_formatter(label);
            }
            mesh.draw().map_err(text)?;
            for Line { name, points, color } in &self.lines {
                let (style, points) = (color.stroke_width(2), points.iter().copied());
                let drawn = chart.draw_series(LineSeries::new(points, style).point_size(self.point_size));
                let legend = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style);
                drawn.map_err(text)?.label(name).legend(legend);
            }
            if self.has_legend {
                let labels = &mut chart.configure_series_labels();
                labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE).border_style(BLACK);
                labels.draw().map_err(text)?;
            }
            root.present().map_err(text)?;
        }
        Ok(picture)
    }
}

fn text(cause: impl Display) -> String {
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_its_lines_labels_and_legend() {
        let axis = |name, is_logarithmic| Axis { name, range: 1.0..100.0, is_logarithmic, label: None };
        let line = Line { name: "measured".into(), points: vec![(1.0, 1.0), (100.0, 9.0)], color: COLORS[1] };
        let mut chart = Chart {
            title: "Trial".into(),
            x: axis("bytes", true),
            y: axis("GB/s", false),
            lines: vec![line],
            point_size: 3,
            has_legend: true,
        };
        chart.x.label = Some(|bytes| format!("{bytes} B"));
        let svg = chart.svg().unwrap();
        for part in ["<svg", "Trial", "bytes", "GB/s", "100 B", "measured", "#D55E00", "<circle"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        (chart.has_legend, chart.point_size, chart.y.is_logarithmic) = (false, 0, true);
        let svg = chart.svg().unwrap();
        assert!(!svg.contains("measured") && !svg.contains("<circle"), "{svg}");
    }
}
