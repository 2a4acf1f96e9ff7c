//! Paths in commands that the user may run.

use std::path::Path;

/// Returns a path as a word of a POSIX shell: unchanged if no character has a special meaning, else in single
/// quotes (POSIX.1-2017, Shell Command Language, 2.2.2).
///
/// ```
/// use kolo_recipe::shell_quoted;
///
/// assert_eq!(shell_quoted("runs/0001-mlp".as_ref()), "runs/0001-mlp");
/// assert_eq!(shell_quoted("my runs/it's".as_ref()), r"'my runs/it'\''s'");
/// ```
pub fn shell_quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    // Programs take a word that begins with `-` for an option.
    match !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        true => text,
        false if text.starts_with('-') => format!("'./{}'", text.replace('\'', r"'\''")),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_the_path_itself() {
        for path in
            ["a", "a b", "a'b", "$HOME", "a;b", "a\nb", "~", "*", "a\\b", "\"", "größe", "#", "!", "`id`"]
        {
            let command = format!("printf %s {}", shell_quoted(Path::new(path)));
            let output = Command::new("sh").args(["-c", &command]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), path);
        }
        assert_eq!(shell_quoted(Path::new("-x y")), "'./-x y'");
    }
}
