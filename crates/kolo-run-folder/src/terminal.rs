//! Text from outside, such as names of files and classes, in a form for a terminal.

use std::fmt::Display;

/// Returns a text as one line of a terminal: control characters, and those that change the direction of
/// writing or break lines, become escapes such as `\u{1b}`.
pub fn in_line(text: impl Display) -> String {
    let is_raw = |character: char| {
        character.is_control()
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut line = String::new();
    for character in text.to_string().chars() {
        match is_raw(character) {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    line
}

/// Returns a text of several lines with each as [`in_line`] has it.
pub fn in_lines(text: impl Display) -> String {
    text.to_string().split('\n').map(in_line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_terminal_has_no_control_characters() {
        let name = "b\u{1b}[2J\u{7}\r\n\u{202e}\u{9b}é '\\\"";
        assert_eq!(in_line(name), "b\\u{1b}[2J\\u{7}\\r\\n\\u{202e}\\u{9b}é '\\\"");
        assert_eq!(in_lines("one \u{1b}[1m\n  two"), "one \\u{1b}[1m\n  two");
    }
}
