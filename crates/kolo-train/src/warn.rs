//! What a user must know though the run goes on.

/// Warnings, each once, with how often it came: a full disk says the same at every step.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Vec<(String, usize)>);

impl Warnings {
    /// Tells the user, by the program's logger or, where there is none, on stderr; and keeps it for those who
    /// sum up.
    pub(crate) fn tell(&mut self, words: String) {
        kolo_ddp::checkpoint::tell(&words);
        self.keep(words);
    }

    /// Whether the user knows of something that begins so.
    pub(crate) fn has(&self, words: &str) -> bool {
        self.0.iter().any(|(known, _)| known.starts_with(words))
    }

    /// Keeps what the user has been told.
    pub(crate) fn keep(&mut self, words: String) {
        match self.0.iter_mut().find(|(known, _)| *known == words) {
            Some((_, times)) => *times += 1,
            None => self.0.push((words, 1)),
        }
    }

    /// Adds those of another one.
    pub(crate) fn append(&mut self, other: Warnings) {
        for (words, times) in other.0 {
            (0..times).for_each(|_| self.keep(words.clone()));
        }
    }

    /// A line for each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |(words, times): &(String, usize)| match times {
            1 => words.clone(),
            _ => format!("{words} ({times} times)"),
        };
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_is_counted() {
        let (mut all, mut more) = (Warnings::default(), Warnings::default());
        ["full", "slow", "full"].into_iter().for_each(|words| all.keep(words.into()));
        more.keep("full".into());
        all.append(more);
        assert_eq!(all.lines(), ["full (3 times)", "slow"]);
    }
}
