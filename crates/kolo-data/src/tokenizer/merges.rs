//! The merges of a byte-level BPE (Sennrich et al. 2016,
//! [arXiv:1508.07909](https://arxiv.org/abs/1508.07909)): the most frequent pair of neighboring tokens
//! becomes a token, until there are enough. Of equally frequent pairs the one with the smaller numbers comes
//! first, as in the crate `tokenizers`, whose own trainer does not always give the same merges.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap, HashMap};

/// Fewest places of a pair that becomes a token.
const FEWEST: u64 = 2;

type Pair = (u32, u32);

/// A word as tokens, and how often it is in the text.
pub(super) type Word = (Vec<u32>, u64);

/// Words, and the pairs in them.
struct Pairs {
    words: Vec<Word>,
    counts: HashMap<Pair, u64>,
    /// Indices of the words that have, or have had, a pair.
    places: HashMap<Pair, Vec<usize>>,
}

/// Returns the merges in their order, and adds the texts of their tokens to those of the alphabet, until
/// there are `size` texts. Two merges may make the same text.
pub(super) fn merges(words: Vec<Word>, texts: &mut Vec<String>, size: usize) -> Vec<Pair> {
    let mut ids: HashMap<String, u32> = texts.iter().cloned().zip(0..).collect();
    let mut pairs = Pairs { words, counts: HashMap::new(), places: HashMap::new() };
    (0..pairs.words.len()).for_each(|word| pairs.count(word, |_| true));
    let mut queue: BinaryHeap<(u64, Reverse<Pair>)> =
        pairs.counts.iter().map(|(pair, count)| (*count, Reverse(*pair))).collect();
    let mut merges = Vec::new();
    while texts.len() < size
        && let Some((count, Reverse(pair))) = queue.pop().filter(|(count, _)| *count >= FEWEST)
    {
        let now = pairs.counts.get(&pair).copied().unwrap_or(0);
        match now.cmp(&count) {
            Ordering::Less => queue.push((now, Reverse(pair))),
            // The queue has had the larger count, too.
            Ordering::Greater => {}
            Ordering::Equal => {
                let text = format!("{}{}", texts[pair.0 as usize], texts[pair.1 as usize]);
                let new = *ids.entry(text.clone()).or_insert_with(|| {
                    texts.push(text);
                    texts.len() as u32 - 1
                });
                merges.push(pair);
                let more = pairs.merge(pair, new);
                queue.extend(more.into_iter().map(|pair| (pairs.counts[&pair], Reverse(pair))));
            }
        }
    }
    merges
}

impl Pairs {
    /// Counts the pairs of a word; remembers its place for those that are `new` to it.
    fn count(&mut self, word: usize, new: impl Fn(Pair) -> bool) {
        let (tokens, count) = &self.words[word];
        for pair in tokens.windows(2).map(|pair| (pair[0], pair[1])) {
            *self.counts.entry(pair).or_default() += count;
            if new(pair) {
                let places = self.places.entry(pair).or_default();
                // Once a word: a long one may have a pair thousands of times.
                if places.last() != Some(&word) {
                    places.push(word);
                }
            }
        }
    }

    /// Replaces a pair by a token in all words, and returns the pairs that have become more.
    fn merge(&mut self, pair: Pair, new: u32) -> BTreeSet<Pair> {
        let mut more = BTreeSet::new();
        let has_new = |pair: Pair| pair.0 == new || pair.1 == new;
        for word in self.places.remove(&pair).unwrap_or_default() {
            let (tokens, count) = &mut self.words[word];
            let merged = merged(tokens, pair, new);
            if merged.len() == tokens.len() {
                continue;
            }
            for pair in tokens.windows(2).map(|pair| (pair[0], pair[1])) {
                self.counts.entry(pair).and_modify(|all| *all -= *count);
            }
            *tokens = merged;
            more.extend(tokens.windows(2).map(|pair| (pair[0], pair[1])).filter(|pair| has_new(*pair)));
            self.count(word, has_new);
        }
        more
    }
}

/// Returns a word with a token in place of each pair, from the left.
fn merged(tokens: &[u32], pair: Pair, new: u32) -> Vec<u32> {
    let (mut found, mut at) = (Vec::with_capacity(tokens.len()), 0);
    while let Some(token) = tokens.get(at) {
        let is_pair = *token == pair.0 && tokens.get(at + 1) == Some(&pair.1);
        found.push(if is_pair { new } else { *token });
        at += if is_pair { 2 } else { 1 };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: all pairs are counted anew for each merge.
    fn plain(words: &[Word], texts: &mut Vec<String>, size: usize) -> Vec<Pair> {
        let (mut words, mut merges) = (words.to_vec(), Vec::new());
        while texts.len() < size {
            let mut counts: HashMap<Pair, u64> = HashMap::new();
            for (word, count) in &words {
                word.windows(2).for_each(|pair| *counts.entry((pair[0], pair[1])).or_default() += count);
            }
            let most = counts.into_iter().max_by_key(|(pair, count)| (*count, Reverse(*pair)));
            let Some((pair, _)) = most.filter(|(_, count)| *count >= FEWEST) else { break };
            let text = format!("{}{}", texts[pair.0 as usize], texts[pair.1 as usize]);
            let known = texts.iter().position(|known| *known == text);
            let new = known.unwrap_or(texts.len()) as u32;
            if known.is_none() {
                texts.push(text);
            }
            words.iter_mut().for_each(|(word, _)| *word = merged(word, pair, new));
            merges.push(pair);
        }
        merges
    }

    #[test]
    fn merges_are_those_of_the_definition() {
        let key = kolo_sampler::key::Key::new(3);
        for letters in [1, 2, 3, 7] {
            let word = |number: u64| {
                let key = key.with(letters).with(number);
                let length = 1 + key.with_str("length").below(12) as u64;
                let tokens = (0..length).map(|at| key.with(at).below(letters as usize) as u32).collect();
                (tokens, 1 + key.with_str("count").below(4) as u64)
            };
            let words: Vec<Word> = (0..60).map(word).collect();
            let alphabet: Vec<String> =
                (b'a'..).take(letters as usize).map(|c| char::from(c).into()).collect();
            for size in [letters as usize, 9, 40, 10_000] {
                let [mut found, mut expected] = [alphabet.clone(), alphabet.clone()];
                let known = plain(&words, &mut expected, size);
                assert_eq!(merges(words.clone(), &mut found, size), known, "{letters} letters, {size}");
                assert_eq!(found, expected);
            }
        }
    }
}
