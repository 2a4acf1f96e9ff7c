//! A figure with its axes, its legend and the table of its numbers.

use super::axis::Axis;
use super::plane::{BOTTOM, HEIGHT, LEFT, RIGHT, SERIES, WIDTH, x_of, y_of};
use super::table::Table;
use crate::html::{Element, Html, element};

#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// Description of the picture for users of screen readers.
    pub(crate) about: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) marks: Html,
    /// Color and name of each series; empty if there is only one.
    pub(crate) legend: Vec<(usize, String)>,
    /// Sentence below the picture.
    pub(crate) note: Option<String>,
    pub(crate) table: Table,
}

impl Figure {
    /// Renders the figure; `id` must be unique on the page.
    pub(crate) fn html(self, id: &str) -> Element {
        let mut figure = element("figure").add(element("figcaption").add(self.title.as_str()));
        if !self.legend.is_empty() {
            figure = figure.add(legend(&self.legend));
        }
        figure = figure.add(self.svg(id));
        if let Some(note) = &self.note {
            figure = figure.add(element("p").with("class", "note").add(note.as_str()));
        }
        figure.add(self.table.details("Numbers"))
    }

    fn svg(&self, id: &str) -> Element {
        let (title, about) = (format!("{id}-title"), format!("{id}-about"));
        element("svg")
            .with("viewBox", format!("0 0 {WIDTH} {HEIGHT}"))
            .with("role", "img")
            .with("aria-labelledby", format!("{title} {about}"))
            .add(element("title").with("id", &title).add(self.title.as_str()))
            .add(element("desc").with("id", &about).add(self.about.as_str()))
            .add(self.frame())
            .add(self.marks.clone())
    }

    /// Draws grid, ticks and titles of the axes.
    fn frame(&self) -> Html {
        let mut frame = Html::default();
        for (value, label) in self.y.ticks() {
            let y = y_of(&self.y, value);
            frame.push(element("path").with("class", "grid").with("d", format!("M{LEFT} {y:.1}H{RIGHT}")));
            frame.push(text("end", LEFT - 6.0, y + 4.5, &label));
        }
        for (value, label) in self.x.ticks() {
            let x = x_of(&self.x, value);
            frame.push(element("path").with("class", "tick").with("d", format!("M{x:.1} {BOTTOM}v5")));
            frame.push(text("middle", x, BOTTOM + 19.0, &label));
        }
        frame.push(element("path").with("class", "axis").with("d", format!("M{LEFT} {BOTTOM}H{RIGHT}")));
        frame.push(text("start", 4.0, 14.0, &self.y.title));
        frame.push(text("end", RIGHT, HEIGHT - 6.0, &self.x.title));
        frame
    }
}

fn text(anchor: &str, x: f64, y: f64, content: &str) -> Element {
    element("text")
        .with("x", format!("{x:.1}"))
        .with("y", format!("{y:.1}"))
        .with("text-anchor", anchor)
        .add(content)
}

fn legend(series: &[(usize, String)]) -> Element {
    let entry = |(color, name): &(usize, String)| {
        let key = element("span").with("class", format!("key s{}", color % SERIES)).with("aria-hidden", true);
        element("li").add(key).add(name.as_str())
    };
    element("ul").with("class", "legend").add(series.iter().map(entry).collect::<Html>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_a_description_axes_and_numbers() {
        let mut table = Table::new("Loss", ["step", "a <b>"]);
        table.add(["0", "2.3"]);
        let figure = Figure {
            title: "Loss".into(),
            about: "It falls.".into(),
            x: Axis::linear("step", [0.0, 10.0], false),
            y: Axis::linear("mean loss", [0.0, 2.0], true),
            marks: Html::default(),
            legend: vec![(0, "a <b>".into())],
            note: None,
            table,
        };
        let html = Html::from(figure.html("f1")).into_string();
        for part in [
            "aria-labelledby=\"f1-title f1-about\"",
            "<desc id=\"f1-about\">It falls.</desc>",
            ">mean loss</text>",
            ">step</text>",
            "<summary>Numbers</summary>",
            "a &lt;b&gt;",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }
}
