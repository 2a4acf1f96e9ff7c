//! Limits of the control groups of this process, in both versions.

use std::path::{Path, PathBuf};

/// Returns the folders of a controller that apply to this process: its own first, then its ancestors.
pub(super) fn folders(controller: &str) -> Vec<PathBuf> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    folders_of(controller, &read("/proc/self/cgroup"), &read("/proc/self/mounts"))
}

/// Returns a unique name of a control group; inside containers, paths alone are the same.
pub(super) fn name(folder: &Path) -> String {
    let container = std::fs::read_link("/proc/self/ns/mnt").unwrap_or_default();
    format!("{} of {}", folder.display(), container.display())
}

/// Reads a file that holds one number.
pub(super) fn number(path: &Path) -> Option<f64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn folders_of(controller: &str, groups: &str, mounts: &str) -> Vec<PathBuf> {
    // Lines are `4:memory:/path` in version 1 and `0::/path` in version 2; a host can have both.
    let group = |wanted: &dyn Fn(&str) -> bool| {
        let mut lines = groups.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?, parts.next()?))
        });
        lines.find(|(controllers, _)| wanted(controllers)).map(|(_, path)| path.to_owned())
    };
    let mount = |wanted: &dyn Fn(&str, &str) -> bool| {
        let mut lines = mounts.lines().filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            Some((words.next()?, words.next()?, words.next()?))
        });
        lines.find(|(_, kind, options)| wanted(kind, options)).map(|(place, ..)| place.to_owned())
    };
    let has = |list: &str, word: &str| list.split(',').any(|other| other == word);
    let first = group(&|list| has(list, controller))
        .zip(mount(&|kind, options| kind == "cgroup" && has(options, controller)));
    let second = group(&|list| list.is_empty()).zip(mount(&|kind, _| kind == "cgroup2"));
    let mut folders = Vec::new();
    for (group, mount) in first.into_iter().chain(second) {
        // In a container the path may be one of the host, which does not exist here; the mount does.
        let mut path = Path::new(&group).strip_prefix("/").unwrap_or(Path::new("")).to_owned();
        loop {
            folders.push(Path::new(&mount).join(&path));
            if !path.pop() {
                break;
            }
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_found() {
        let mounts = "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = folders_of("memory", "4:memory:/a/b\n0::/c\n", mounts);
        let expected = ["memory/a/b", "memory/a", "memory/", "unified/c", "unified/"];
        assert_eq!(found, expected.map(|path| Path::new("/sys/fs/cgroup").join(path)));
        let second = folders_of("cpu", "0::/\n", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        assert_eq!(second, [Path::new("/sys/fs/cgroup/")]);
        assert_eq!(folders_of("cpu", "", ""), [] as [PathBuf; 0]);
    }
}
