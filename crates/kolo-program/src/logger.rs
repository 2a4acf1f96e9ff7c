//! The logger of a program: its lines, as text or JSON, with the rank that writes them.

use std::io::{IsTerminal, Write};
use std::time::SystemTime;

use kolo_comm::{Rank, env};
use kolo_elastic::MEMBER;
use kolo_launch::UnblockedStderr;
use kolo_run_folder::in_lines;
use kolo_train::LOG_FORMAT;

/// Returns true if this process writes the messages of its logger as JSON.
pub fn logs_json() -> bool {
    std::env::var_os(LOG_FORMAT).is_some_and(|format| format == "json")
}

/// Installs a logger for warnings, or for the levels in `RUST_LOG`, unless the program has one already.
pub fn install() {
    let mut builder = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn"));
    builder.format_timestamp(None);
    // A warning must not stop a worker whose output nobody reads.
    builder.target(env_logger::Target::Pipe(Box::new(UnblockedStderr)));
    let unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    if std::io::stderr().is_terminal() && unset("NO_COLOR") && unset("RUST_LOG_STYLE") {
        builder.write_style(env_logger::WriteStyle::Always);
    }
    if logs_json() {
        let who = std::env::var(MEMBER).ok().or_else(|| rank_to_show().map(|rank| rank.to_string()));
        builder.format(move |out, record| writeln!(out, "{}", log_object(record, who.as_deref())));
    } else {
        let is_filtered = !unset("RUST_LOG");
        let rank = rank_to_show().map(|rank| format!("[{rank}] ")).unwrap_or_default();
        builder.format(move |out, record| {
            let (level, target) = (record.level(), record.target());
            let style = out.default_level_style(level);
            // The user of a program does not know the files of Kolo.
            if level <= log::Level::Warn && !is_filtered && is_own(target) {
                let word = if level == log::Level::Warn { "warning" } else { "error" };
                return writeln!(out, "{rank}{style}{word}{style:#}: {}", in_lines(record.args()));
            }
            // Names of files in a message may have control characters.
            writeln!(out, "{rank}[{style}{level}{style:#} {target}] {}", in_lines(record.args()))
        });
    }
    // Fails if the program has a logger of its own, which stays.
    let _ = builder.try_init();
}

/// Returns true for a crate of Kolo.
fn is_own(target: &str) -> bool {
    let name = target.split("::").next().unwrap_or_default();
    name == "kolo" || name.starts_with("kolo_")
}

/// Formats a log message as a JSON object like the events of `--log-format json`.
fn log_object(record: &log::Record<'_>, worker: Option<&str>) -> serde_json::Value {
    serde_json::json!({
        "time_unix": kolo_run_folder::unix_seconds(SystemTime::now()),
        "event": "log",
        "level": record.level().as_str().to_lowercase(),
        "target": record.target(),
        "worker": worker,
        "message": record.args().to_string(),
    })
}

/// Returns the rank that output lines must carry. Kolo's launcher adds the rank itself; others do not.
fn rank_to_show() -> Option<Rank> {
    if std::env::var_os(MEMBER).is_some() {
        return None;
    }
    // The code that needs the launcher's variables reports what is wrong with them.
    let (rank, world_size) = env::rank_and_world_size().ok()??;
    (world_size > 1).then_some(rank)
}
