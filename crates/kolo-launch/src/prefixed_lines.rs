//! Splits a stream of bytes into lines and prefixes each, in bounded memory.

/// Maximum length of a line in bytes. Longer lines are split, because a program that never ends its line
/// must not fill the memory.
pub(crate) const MAX_LINE: usize = 64 << 10;

/// Returns the prefix of a line that ends now.
pub(crate) type Prefix = Box<dyn Fn() -> String + Send>;

/// One stream that is split into lines. Its bytes are arbitrary; only `\n` has a meaning.
pub(crate) struct PrefixedLines {
    prefix: Prefix,
    /// True if lines that begin as JSON objects get no prefix.
    pub keeps_objects: bool,
    /// The unfinished line, at most [`MAX_LINE`] bytes.
    partial: Vec<u8>,
}

impl PrefixedLines {
    pub fn new(prefix: Prefix) -> PrefixedLines {
        PrefixedLines { prefix, keeps_objects: false, partial: Vec::new() }
    }

    /// Adds bytes of the stream and appends the lines that they complete to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (mut body, ends) = match piece.split_last() {
                Some((b'\n', body)) => (body, true),
                _ => (piece, false),
            };
            while !body.is_empty() {
                if self.partial.len() == MAX_LINE {
                    self.emit(out);
                }
                let (now, later) = body.split_at(body.len().min(MAX_LINE - self.partial.len()));
                self.partial.extend_from_slice(now);
                body = later;
            }
            if ends {
                self.emit(out);
            }
        }
    }

    /// Ends the stream: its last line counts even without a line end.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            self.emit(out);
        }
    }

    fn emit(&mut self, out: &mut Vec<u8>) {
        if !(self.keeps_objects && self.partial.starts_with(b"{")) {
            out.extend_from_slice((self.prefix)().as_bytes());
        }
        out.append(&mut self.partial);
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixed(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut lines, mut out) = (PrefixedLines::new(Box::new(|| "> ".into())), Vec::new());
        pieces.iter().for_each(|piece| lines.push(piece, &mut out));
        lines.finish(&mut out);
        out
    }

    #[test]
    fn lines_are_the_same_however_they_arrive() {
        let text: &[u8] = b"one\n\ntwo \xff\x00 three\r\nlast";
        let expected = b"> one\n> \n> two \xff\x00 three\r\n> last\n";
        for cut in 0..=text.len() {
            assert_eq!(prefixed(&[&text[..cut], &text[cut..]]), expected);
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(prefixed(&bytes), expected);
        assert_eq!(prefixed(&[]), b"");
    }

    #[test]
    fn objects_are_passed_on_as_they_are_where_that_is_asked_for() {
        let (mut lines, mut out) = (PrefixedLines::new(Box::new(|| "> ".into())), Vec::new());
        lines.keeps_objects = true;
        lines.push(b"{\"a\":1}\nwords {}\n", &mut out);
        assert_eq!(out, b"{\"a\":1}\n> words {}\n");
    }

    #[test]
    fn unfinished_lines_wait() {
        let (mut lines, mut out) = (PrefixedLines::new(Box::new(|| "> ".into())), Vec::new());
        lines.push(b"half", &mut out);
        assert_eq!(out, b"");
        lines.push(b" whole\nnext", &mut out);
        assert_eq!(out, b"> half whole\n");
    }

    #[test]
    fn endless_lines_are_broken_and_nothing_is_lost() {
        for (length, broken_into) in [(MAX_LINE, 1), (MAX_LINE + 1, 2), (3 * MAX_LINE, 3)] {
            let mut text = vec![b'x'; length];
            text.push(b'\n');
            for piece in [1000, MAX_LINE, text.len()] {
                let out = prefixed(&text.chunks(piece).collect::<Vec<_>>());
                assert_eq!(out.iter().filter(|byte| **byte == b'x').count(), length);
                assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), broken_into);
                assert!(out.split(|byte| *byte == b'\n').all(|line| line.len() <= MAX_LINE + 2));
            }
        }
    }
}
