//! HTML and SVG that are safe from injection.
//!
//! [`Html`] consists of escaped texts, of elements whose names are constants, and of literals. A string
//! that was read from a file can enter it only as text.

use std::fmt::{Display, Write};

#[derive(Clone, Debug, Default)]
pub(crate) struct Html(String);

impl Html {
    /// Creates markup from a constant.
    pub(crate) fn literal(markup: &'static str) -> Self {
        Html(markup.into())
    }

    pub(crate) fn push(&mut self, next: impl Into<Html>) {
        self.0 += &next.into().0;
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

impl From<&str> for Html {
    fn from(text: &str) -> Self {
        Html(escaped(text))
    }
}

impl From<String> for Html {
    fn from(text: String) -> Self {
        Html(escaped(&text))
    }
}

impl From<Element> for Html {
    fn from(element: Element) -> Self {
        let Element { name, attributes, inner } = element;
        Html(format!("<{name}{attributes}>{}</{name}>", inner.0))
    }
}

impl<T: Into<Html>> FromIterator<T> for Html {
    fn from_iter<I: IntoIterator<Item = T>>(parts: I) -> Self {
        let mut all = Html::default();
        parts.into_iter().for_each(|part| all.push(part));
        all
    }
}

/// An element under construction.
#[derive(Debug)]
pub(crate) struct Element {
    name: &'static str,
    attributes: String,
    inner: Html,
}

pub(crate) fn element(name: &'static str) -> Element {
    Element { name, attributes: String::new(), inner: Html::default() }
}

impl Element {
    pub(crate) fn with(mut self, name: &'static str, value: impl Display) -> Self {
        // Writing to a string cannot fail.
        let _ = write!(self.attributes, " {name}=\"{}\"", escaped(&value.to_string()));
        self
    }

    pub(crate) fn add(mut self, inner: impl Into<Html>) -> Self {
        self.inner.push(inner);
        self
    }
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            // Characters that HTML does not allow.
            '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\x7f' => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_attributes_are_no_markup() {
        let link =
            element("p").with("title", "\"><script>").add("a < b & 'c'\u{1}").add(element("b").add("d"));
        assert_eq!(
            Html::from(link).into_string(),
            "<p title=\"&quot;&gt;&lt;script&gt;\">a &lt; b &amp; &#39;c&#39;\u{fffd}<b>d</b></p>"
        );
    }
}
