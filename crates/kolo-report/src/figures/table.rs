//! Tables, which scroll in their own box on narrow pages.

use crate::html::{Element, Html, element};

#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Label for users of screen readers.
    pub(crate) name: String,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(name: impl Into<String>, header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Table { name: name.into(), header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(row.into_iter().map(Into::into).collect());
    }

    /// Renders the table; the first column names the rows.
    pub(crate) fn html(&self) -> Element {
        let head: Html =
            self.header.iter().map(|name| element("th").with("scope", "col").add(name.as_str())).collect();
        let rows: Html = self.rows.iter().map(|row| row_html(row)).collect();
        let table = element("table")
            .add(element("thead").add(element("tr").add(head)))
            .add(element("tbody").add(rows));
        // The keyboard focus allows scrolling without a pointer.
        element("div")
            .with("class", "scroll")
            .with("role", "region")
            .with("tabindex", 0)
            .with("aria-label", &self.name)
            .add(table)
    }

    /// Renders the table collapsed behind the label `word`.
    pub(crate) fn details(&self, label: &str) -> Element {
        element("details").add(element("summary").add(label)).add(self.html())
    }
}

fn row_html(row: &[String]) -> Element {
    let cells: Html = row
        .iter()
        .enumerate()
        .map(|(index, cell)| match index {
            0 => element("th").with("scope", "row").add(cell.as_str()),
            _ => element("td").add(cell.as_str()),
        })
        .collect();
    element("tr").add(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_column_names_the_rows() {
        let mut table = Table::new("runs", ["run", "loss"]);
        table.add(["<a>", "0.5"]);
        let html = Html::from(table.html()).into_string();
        assert!(html.contains("<th scope=\"row\">&lt;a&gt;</th><td>0.5</td>"), "{html}");
        assert!(html.contains("tabindex=\"0\" aria-label=\"runs\""), "{html}");
    }
}
