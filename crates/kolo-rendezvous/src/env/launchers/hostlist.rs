//! Slurm's host list expressions: `node[01-03,7],gpu1` is node01, node02, node03, node7, gpu1.

/// Upper bound on the hosts of a list, above the size of any cluster: a wrong list must not fill the memory.
const MOST: usize = 100_000;

/// Returns all names of a list, in order.
/// The error is the end of a sentence about the list.
pub(super) fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for item in items(list)? {
        hosts.extend(expand_item(item)?);
        within_bounds(hosts.len())?;
    }
    Ok(hosts)
}

/// Splits at the commas outside of brackets.
fn items(list: &str) -> Result<Vec<&str>, String> {
    let (mut items, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, character) in list.char_indices() {
        match (character, inside) {
            ('[', false) | (']', true) => inside = !inside,
            ('[', true) | (']', false) => return Err("in which brackets do not match".into()),
            (',', false) => {
                items.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("in which a bracket is not closed".into());
    }
    items.push(&list[begin..]);
    if items.iter().any(|item| item.is_empty()) {
        return Err("in which a name is empty".into());
    }
    Ok(items)
}

/// Expands `a[1-2]b[3,5]` to a1b3, a1b5, a2b3, a2b5. The brackets match, because [`items`] has checked them.
fn expand_item(item: &str) -> Result<Vec<String>, String> {
    let Some((head, rest)) = item.split_once('[') else { return Ok(vec![item.into()]) };
    let Some((ranges, tail)) = rest.split_once(']') else { return Ok(vec![item.into()]) };
    let (numbers, tails) = (numbers(ranges)?, expand_item(tail)?);
    within_bounds(numbers.len().saturating_mul(tails.len()))?;
    let names = |number: &String| tails.iter().map(|tail| format!("{head}{number}{tail}")).collect();
    Ok(numbers.iter().flat_map(|number| -> Vec<String> { names(number) }).collect())
}

/// Expands `08-10,12` to 08, 09, 10, 12: a range keeps the width of its first number.
fn numbers(ranges: &str) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let wrong = || format!("in which `{range}` is no range of numbers");
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        // `parse` alone takes a sign, too.
        let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let parse =
            |text| Some(text).filter(digits).and_then(|text| text.parse::<usize>().ok()).ok_or_else(wrong);
        let (low, high) = (parse(first)?, parse(last)?);
        let count = high.checked_sub(low).ok_or_else(wrong)?;
        within_bounds(count.saturating_add(1 + numbers.len()))?;
        numbers.extend((low..=high).map(|number| format!("{number:0width$}", width = first.len())));
    }
    Ok(numbers)
}

fn within_bounds(hosts: usize) -> Result<(), String> {
    if hosts > MOST { Err(format!("which is more than {MOST} hosts")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_expanded_in_order() {
        for (list, hosts) in [
            ("gpu1", "gpu1"),
            ("node[01-03,7],gpu1", "node01 node02 node03 node7 gpu1"),
            ("b,a", "b a"),
            ("n[8-11]", "n8 n9 n10 n11"),
            ("n[098-101]", "n098 n099 n100 n101"),
            ("rack[1-2]n[3,5].site", "rack1n3.site rack1n5.site rack2n3.site rack2n5.site"),
            ("a-b[2]", "a-b2"),
        ] {
            assert_eq!(expand(list).unwrap().join(" "), hosts, "{list}");
        }
    }

    #[test]
    fn wrong_lists_are_refused() {
        for list in [
            "", ",", "a,,b", "a[1", "a1]", "a[[1]]", "a[]", "a[x]", "a[3-1]", "a[1-]", "a[-1]", "a[+1]",
            "a[1-+2]", "a[0-100000]", "a[1-99999999]", "a[0-999]b[0-999]", "a[1-99999999999999999999999]",
        ] {
            assert!(expand(list).is_err(), "{list}: {:?}", expand(list));
        }
    }
}
