//! Tables as text: cells between commas, which may be quoted ([RFC
//! 4180](https://www.rfc-editor.org/rfc/rfc4180)).

/// A record of cells, and the line on which it begins, from 1.
pub(crate) type Row = (usize, Vec<String>);

/// Splits a text into its records; empty lines are none. The error is the line of a quote that does not end.
pub(crate) fn rows(text: &str) -> Result<Vec<Row>, usize> {
    let (mut rows, mut line) = (Vec::new(), 1);
    let mut characters = text.chars().peekable();
    while characters.peek().is_some() {
        let (first_line, mut cells, mut cell, mut was_quoted) = (line, Vec::new(), String::new(), false);
        while let Some(character) = characters.next() {
            match character {
                '"' if cell.is_empty() => {
                    cell = quoted(&mut characters, &mut line).ok_or(first_line)?;
                    was_quoted = true;
                }
                ',' => cells.push(std::mem::take(&mut cell)),
                '\r' if characters.peek() == Some(&'\n') => {}
                '\n' => {
                    line += 1;
                    break;
                }
                other => cell.push(other),
            }
        }
        if was_quoted || !cells.is_empty() || !cell.trim().is_empty() {
            cells.push(cell);
            rows.push((first_line, cells));
        }
    }
    Ok(rows)
}

/// Returns the text up to the quote that ends it; two quotes stand for one. `None` if the text ends first.
fn quoted(characters: &mut std::iter::Peekable<std::str::Chars<'_>>, line: &mut usize) -> Option<String> {
    let mut text = String::new();
    loop {
        match characters.next()? {
            '"' if characters.peek() == Some(&'"') => text.extend(characters.next()),
            '"' => return Some(text),
            other => {
                *line += usize::from(other == '\n');
                text.push(other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_split_as_rfc_4180_says() {
        let cells = |text: &str| rows(text).unwrap();
        let row = |line: usize, cells: &[&str]| (line, cells.iter().map(|cell| cell.to_string()).collect());
        assert_eq!(cells("a,b\r\n1,\n"), [row(1, &["a", "b"]), row(2, &["1", ""])]);
        assert_eq!(cells("a,b\n\n  \n1,2"), [row(1, &["a", "b"]), row(4, &["1", "2"])]);
        let quoted = "\"a, \"\"b\"\"\",\"two\nlines\"\nc,d\n";
        assert_eq!(cells(quoted), [row(1, &["a, \"b\"", "two\nlines"]), row(3, &["c", "d"])]);
        assert_eq!(cells(""), []);
        assert_eq!(rows("a\nb,\"c\n"), Err(2));
    }
}
