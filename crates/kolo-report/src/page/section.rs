//! A section of the page, and unique ids of figures.

use crate::html::{Element, Html, element};
use crate::units::plural;

/// Generator of unique ids of figures.
#[derive(Debug, Default)]
pub(super) struct Ids(usize);

impl Ids {
    pub(super) fn next(&mut self) -> String {
        self.0 += 1;
        format!("figure-{}", self.0)
    }
}

#[derive(Debug)]
pub(super) struct Section {
    /// Target of links to the section.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) body: Html,
}

impl Section {
    pub(super) fn html(self) -> Html {
        let heading = element("h2").add(self.title);
        element("section").with("id", self.id).add(heading).add(self.body).into()
    }
}

pub(super) fn paragraph(text: &str) -> Element {
    element("p").add(with_code(text))
}

/// Renders a text in which backticks enclose code.
pub(super) fn with_code(text: &str) -> Html {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        // A backtick without a partner.
        return text.into();
    }
    let part = |(index, part): (usize, &&str)| match index % 2 {
        0 => Html::from(*part),
        _ => element("code").add(*part).into(),
    };
    parts.iter().enumerate().map(part).collect()
}

/// Renders figures, side by side if there is room.
pub(super) fn gallery(figures: impl IntoIterator<Item = Element>) -> Element {
    element("div").with("class", "gallery").add(figures.into_iter().collect::<Html>())
}

/// Puts the name of the run before the title if there are several runs.
pub(super) fn titled(run: &str, runs: usize, title: &str) -> String {
    if runs > 1 { format!("{run}: {title}") } else { title.into() }
}

/// Returns a note about values above the end of an axis, if there are any.
pub(super) fn beyond_top(what: &str, values: &[f64], high: f64, format: fn(f64) -> String) -> Option<String> {
    let beyond = values.iter().filter(|value| **value > high).count();
    let most = values.iter().copied().fold(0.0, f64::max);
    let verb = if beyond == 1 { "goes" } else { "go" };
    (beyond > 0).then(|| {
        format!("{} {verb} on beyond the top, the largest up to {}.", plural(beyond, what), format(most))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_stands_between_backticks() {
        assert_eq!(with_code("a `<b>` c").into_string(), "a <code>&lt;b&gt;</code> c");
        assert_eq!(with_code("a ` b").into_string(), "a ` b");
    }
}
