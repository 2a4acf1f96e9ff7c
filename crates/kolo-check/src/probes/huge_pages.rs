//! System setting of huge pages.

use serde::{Deserialize, Serialize};

/// Policy by which the system gives huge pages to programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HugePages {
    /// Always, where possible.
    Always,
    /// Only on request (`madvise`).
    Asked,
    /// Never.
    Never,
}

impl HugePages {
    /// Reads the setting of this host; `None` if it has none.
    pub fn here() -> Option<HugePages> {
        let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
        chosen(&text)
    }
}

/// Parses the word in brackets.
fn chosen(text: &str) -> Option<HugePages> {
    match text.split_once('[')?.1.split_once(']')?.0 {
        "always" => Some(HugePages::Always),
        "madvise" => Some(HugePages::Asked),
        "never" => Some(HugePages::Never),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_in_brackets_counts() {
        assert_eq!(chosen("always [madvise] never\n"), Some(HugePages::Asked));
        assert_eq!(chosen("always madvise [never]\n"), Some(HugePages::Never));
        assert_eq!(chosen("[always] madvise never\n"), Some(HugePages::Always));
        assert_eq!(chosen("off\n"), None);
    }
}
