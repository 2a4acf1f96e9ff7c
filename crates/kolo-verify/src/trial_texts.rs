//! A folder of texts for trials of a job with a language model.

use std::fs;
use std::io;
use std::path::Path;

/// Words of a document.
const WORDS: usize = 40;

/// Writes so many documents of different words and lengths.
///
/// # Errors
///
/// A file cannot be written.
pub fn write(folder: &Path, count: usize) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for number in 0..count {
        fs::write(folder.join(format!("{number:05}.txt")), document(number))?;
    }
    Ok(())
}

fn document(number: usize) -> String {
    let word = |at: usize| {
        ["a shard ", "a worker ", "adds ", "the gradient ", "and ", "waits. "][(at * at + number) % 6]
    };
    (0..WORDS + number % 7).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_follow_a_rule_that_can_be_learned_and_differ_in_length() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 3).unwrap();
        let texts = [0, 1, 2]
            .map(|number| fs::read_to_string(folder.path().join(format!("{number:05}.txt"))).unwrap());
        assert!(
            texts[0].starts_with("a shard a worker and ") && texts[1].starts_with("a worker adds "),
            "{texts:?}"
        );
        assert!(texts[0].len() > 200 && texts[0].len() != texts[1].len());
    }
}
