//! Expansion of `~/` in arguments that no shell expands: `--out=~/runs/a` and `--data mnist:~/data`.

use std::ffi::OsString;

/// Replaces `~` by the home folder at the beginning of a path: at the beginning of an argument, or after `=`
/// or `:`. Arguments of other programs stay: all after `--`, and the program of `kolo launch`.
pub fn expanded(args: impl IntoIterator<Item = OsString>, home: Option<OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let home = home.and_then(|home| home.into_string().ok()).filter(|home| !home.is_empty());
    let Some(home) = home.filter(|_| args.get(1).is_none_or(|command| command != "launch")) else {
        return args;
    };
    let own = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    for arg in &mut args[..own] {
        let Some(text) = arg.to_str() else { continue };
        *arg = match text.strip_prefix("~/") {
            Some(rest) => format!("{home}/{rest}"),
            None => text.replacen("=~/", &format!("={home}/"), 1).replacen(":~/", &format!(":{home}/"), 1),
        }
        .into();
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_at_home_where_no_shell_has_said_so() {
        let of = |words: &str| {
            let args = words.split(' ').map(OsString::from);
            let all = expanded(args, Some("/home/a".into()));
            all.into_iter().map(|arg| arg.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        for (typed, expected) in [
            ("kolo train --out=~/run", "kolo train --out=/home/a/run"),
            ("kolo train --out ~/run", "kolo train --out /home/a/run"),
            ("kolo train --data mnist:~/data", "kolo train --data mnist:/home/a/data"),
            ("kolo train --data=mnist:~/data", "kolo train --data=mnist:/home/a/data"),
            ("kolo train --out a~/b", "kolo train --out a~/b"),
            ("kolo verify -- program --x=~/a", "kolo verify -- program --x=~/a"),
            ("kolo launch program --x=~/a", "kolo launch program --x=~/a"),
        ] {
            assert_eq!(of(typed), expected);
        }
        let alone = ["kolo", "report", "~/a"].map(OsString::from);
        assert_eq!(expanded(alone.clone(), None), alone);
    }
}
