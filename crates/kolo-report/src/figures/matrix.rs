//! A square matrix of counts: each cell is as opaque as its share of the row.

use super::plane::WIDTH;
use super::table::Table;
use crate::html::{Element, Html, element};

/// Height of the line of labels above the cells, and of the axis' title.
const ABOVE: f64 = 40.0;
/// Letters of a label, which is cut behind them.
const LETTERS: usize = 14;
/// Width of a letter.
const LETTER: f64 = 7.5;
/// Opacity of a whole row in one cell, on which text can still be read.
const DARKEST: f64 = 0.6;
/// Smallest cells that hold a number.
const ROOMY: f64 = 26.0;

#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) title: String,
    /// Description of the picture for users of screen readers.
    pub(crate) about: String,
    /// Names of rows and columns alike.
    pub(crate) names: Vec<String>,
    /// Title of the rows, and of the columns.
    pub(crate) axes: [&'static str; 2],
    /// Row, column and count, without zeros.
    pub(crate) cells: Vec<(usize, usize, u64)>,
    pub(crate) table: Table,
}

impl Matrix {
    /// Renders the matrix; `id` must be unique on the page.
    pub(crate) fn html(&self, id: &str) -> Element {
        element("figure")
            .add(element("figcaption").add(self.title.as_str()))
            .add(self.svg(id))
            .add(self.table.details("Numbers"))
    }

    fn svg(&self, id: &str) -> Element {
        let names = self.names.iter().enumerate();
        let longest = names.map(|(row, name)| row_label(row, name).chars().count()).max().unwrap_or(0);
        let left = (LETTER * longest as f64 + 8.0).max(40.0);
        let side = (WIDTH - left - 4.0) / self.names.len().max(1) as f64;
        let height = ABOVE + WIDTH - left;
        let (title, about) = (format!("{id}-title"), format!("{id}-about"));
        element("svg")
            .with("viewBox", format!("0 0 {WIDTH} {height:.0}"))
            .with("role", "img")
            .with("aria-labelledby", format!("{title} {about}"))
            .add(element("title").with("id", &title).add(self.title.as_str()))
            .add(element("desc").with("id", &about).add(self.about.as_str()))
            .add(self.labels(left, side))
            .add(self.marks(left, side))
    }

    /// Draws numbers and names of the rows, and those of the columns, as far as they have room.
    fn labels(&self, left: f64, side: f64) -> Html {
        let [rows, columns] = self.axes;
        let mut labels = Html::default();
        labels.push(text("start", 4.0, 14.0, rows));
        labels.push(text("end", WIDTH - 4.0, 14.0, columns));
        let every = (13.0 / side).ceil().max(1.0) as usize;
        for (index, name) in self.names.iter().enumerate().step_by(every) {
            let middle = (index as f64 + 0.5) * side;
            labels.push(text("end", left - 6.0, ABOVE + middle + 4.5, &row_label(index, name)));
        }
        let every = (24.0 / side).ceil().max(1.0) as usize;
        let is_short = |name: &String| name.chars().count() as f64 * LETTER <= side * every as f64;
        let has_names = self.names.iter().all(is_short);
        for (index, name) in self.names.iter().enumerate().step_by(every) {
            let label = if has_names { name.clone() } else { index.to_string() };
            labels.push(text("middle", left + (index as f64 + 0.5) * side, ABOVE - 6.0, &label));
        }
        labels
    }

    fn marks(&self, left: f64, side: f64) -> Html {
        let mut sums = vec![0; self.names.len()];
        self.cells.iter().for_each(|(row, _, count)| sums[*row] += count);
        let mut marks = Html::default();
        for (row, column, count) in &self.cells {
            let share = *count as f64 / sums[*row] as f64;
            let (x, y) = (left + *column as f64 * side, ABOVE + *row as f64 * side);
            let [of, guess] = [*row, *column].map(|index| self.names[index].as_str());
            let cell = element("rect")
                .with("class", if row == column { "bar s0" } else { "bar s1" })
                .with("x", format!("{x:.1}"))
                .with("y", format!("{y:.1}"))
                .with("width", format!("{side:.1}"))
                .with("height", format!("{side:.1}"))
                .with("opacity", format!("{:.3}", DARKEST * share))
                .add(
                    element("title")
                        .add(format!("{of}, taken for {guess}: {count} ({:.1} %)", 100.0 * share)),
                );
            marks.push(cell);
            if side >= ROOMY.max(LETTER * count.to_string().len() as f64) {
                let number = text("middle", x + side / 2.0, y + side / 2.0 + 4.5, &count.to_string());
                marks.push(number.with("class", "count"));
            }
        }
        let (right, bottom) = (WIDTH - 4.0, ABOVE + WIDTH - left - 4.0);
        let frame = format!("M{left:.1} {ABOVE}H{right:.1}V{bottom:.1}H{left:.1}Z");
        marks.push(element("path").with("class", "grid").with("fill", "none").with("d", frame));
        marks
    }
}

/// The number of a row, by which columns are named, and its name.
fn row_label(row: usize, name: &str) -> String {
    let number = row.to_string();
    if number == name { number } else { format!("{number} {}", cut(name)) }
}

fn cut(name: &str) -> String {
    match name.chars().count() > LETTERS {
        true => name.chars().take(LETTERS - 1).chain(['…']).collect(),
        false => name.into(),
    }
}

fn text(anchor: &str, x: f64, y: f64, content: &str) -> Element {
    element("text")
        .with("x", format!("{x:.1}"))
        .with("y", format!("{y:.1}"))
        .with("text-anchor", anchor)
        .add(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_as_opaque_as_their_share_of_the_row() {
        let matrix = Matrix {
            title: "Confusion".into(),
            about: "about".into(),
            names: vec!["a very long <name> indeed".into(), "dog".into()],
            axes: ["class", "predicted"],
            cells: vec![(0, 0, 3), (0, 1, 1), (1, 1, 5)],
            table: Table::new("Confusion", ["class"]),
        };
        let html = Html::from(matrix.html("m")).into_string();
        for part in
            ["opacity=\"0.450\"", "opacity=\"0.150\"", "opacity=\"0.600\"", "a very long &lt;…</text>"]
        {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(html.contains("taken for dog: 1 (25.0 %)</title>"), "{html}");
        assert_eq!(html.matches("class=\"count\"").count(), 3);
        assert!(!html.contains("NaN") && !html.contains("inf"), "{html}");
    }
}
