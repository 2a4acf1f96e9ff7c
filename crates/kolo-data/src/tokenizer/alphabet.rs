//! The characters by which a byte-level BPE spells bytes. GPT-2's `bytes_to_unicode` defines them: a visible
//! character of Latin-1 is itself, and the other bytes are the characters from U+0100 on.

/// Returns the character of each byte.
pub(super) fn characters() -> [char; 256] {
    let mut other = '\u{100}'..;
    std::array::from_fn(|byte| match byte as u8 {
        byte @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..) => char::from(byte),
        _ => other.next().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_gpt2s_characters() {
        let all = characters();
        let of = |byte: u8| all[usize::from(byte)];
        assert_eq!(
            [of(b'a'), of(b'\n'), of(b' '), of(0), of(0xad), of(0xff)],
            ['a', 'Ċ', 'Ġ', 'Ā', 'Ń', 'ÿ']
        );
        assert_eq!(all.into_iter().collect::<std::collections::BTreeSet<_>>().len(), 256);
    }
}
