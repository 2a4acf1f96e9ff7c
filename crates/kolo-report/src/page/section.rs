//! A section of the page, and the names by which pictures are told apart.

use crate::html::{Element, Html, element};
use crate::units::plural;

/// Names of pictures, each given once.
#[derive(Debug, Default)]
pub(super) struct Ids(usize);

impl Ids {
    pub(super) fn next(&mut self) -> String {
        self.0 += 1;
        format!("figure-{}", self.0)
    }
}

/// A section.
#[derive(Debug)]
pub(super) struct Section {
    /// By which it is linked.
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

/// A paragraph.
pub(super) fn paragraph(words: &str) -> Element {
    element("p").add(with_code(words))
}

/// A text in which what stands between two backticks is code.
pub(super) fn with_code(words: &str) -> Html {
    let parts: Vec<&str> = words.split('`').collect();
    if parts.len().is_multiple_of(2) {
        // One has no other.
        return words.into();
    }
    let part = |(index, part): (usize, &&str)| match index % 2 {
        0 => Html::from(*part),
        _ => element("code").add(*part).into(),
    };
    parts.iter().enumerate().map(part).collect()
}

/// Pictures, side by side where there is room.
pub(super) fn gallery(figures: impl IntoIterator<Item = Element>) -> Element {
    element("div").with("class", "gallery").add(figures.into_iter().collect::<Html>())
}

/// The name of a run before what is said of it, where there are several.
pub(super) fn titled(run: &str, runs: usize, title: &str) -> String {
    if runs > 1 { format!("{run}: {title}") } else { title.into() }
}

/// What is said of values that a picture has no room for.
pub(super) fn beyond_top(what: &str, values: &[f64], high: f64, words: fn(f64) -> String) -> Option<String> {
    let beyond = values.iter().filter(|value| **value > high).count();
    let most = values.iter().copied().fold(0.0, f64::max);
    let verb = if beyond == 1 { "goes" } else { "go" };
    (beyond > 0).then(|| {
        format!("{} {verb} on beyond the top, the largest up to {}.", plural(beyond, what), words(most))
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
