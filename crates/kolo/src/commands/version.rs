//! Text of `kolo --version`, from the build script.

use std::sync::LazyLock;

/// Version and commit: `0.1.0 (1a2b3c4d5e)`.
pub(super) fn short() -> &'static str {
    static SHORT: LazyLock<String> =
        LazyLock::new(|| with_commit(env!("CARGO_PKG_VERSION"), env!("BUILD_COMMIT")));
    &SHORT
}

/// The same with the features and the target of the build.
pub(super) fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        format!("{}\nfeatures: {}\ntarget: {}", short(), env!("BUILD_FEATURES"), env!("BUILD_TARGET"))
    });
    &LONG
}

/// Adds the commit, which is empty if the sources came without a repository.
fn with_commit(version: &str, commit: &str) -> String {
    if commit.is_empty() { version.into() } else { format!("{version} ({commit})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_its_commit_features_and_target() {
        assert_eq!(with_commit("1.2.3", "1a2b3c4d5e"), "1.2.3 (1a2b3c4d5e)");
        assert_eq!(with_commit("1.2.3", ""), "1.2.3");
        let lines: Vec<&str> = long().lines().collect();
        let etcd = cfg!(feature = "etcd");
        assert!(lines[0].starts_with(env!("CARGO_PKG_VERSION")), "{lines:?}");
        assert_eq!(
            (lines[1].starts_with("features: "), lines[1].contains("etcd")),
            (true, etcd),
            "{lines:?}"
        );
        assert!(lines[2].contains(std::env::consts::ARCH) && lines[2].contains("linux"), "{lines:?}");
    }
}
