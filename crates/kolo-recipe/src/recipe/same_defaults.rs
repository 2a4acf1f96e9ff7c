//! Defaults are the same for the command line, for a part of a `config.toml`, and for a program: tested over
//! all sections, all optimizers, and all of their settings.

use std::path::Path;

use clap::{Args, Command, FromArgMatches};
use kolo_ddp::optimizer::OPTIMIZERS;
use kolo_ddp::table::{Allowed, Choice, Value};

use super::{OptimizerChoice, Recipe};

/// Returns the recipe of a command line.
fn typed(args: &[String]) -> Recipe {
    let command = Recipe::augment_args(Command::new("test").no_binary_name(true));
    Recipe::from_arg_matches(&command.try_get_matches_from(args).unwrap()).unwrap()
}

/// Returns the recipe of a `config.toml`.
fn read(text: &str) -> Recipe {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Recipe::read(Path::new(file.path())).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Collects each value of a file alone, below the names of its sections.
fn lone_values(sections: &str, table: &toml::Table, found: &mut Vec<String>) {
    for (name, value) in table {
        match value {
            toml::Value::Table(table) => lone_values(&format!("{sections}{name}."), table, found),
            value => found.push(format!("{sections}{name} = {value}\n")),
        }
    }
}

#[test]
fn any_part_of_the_usual_configuration_is_the_usual_run() {
    let usual = Recipe::default();
    assert_eq!((&typed(&[]), &read("")), (&usual, &usual));
    let whole: toml::Table = toml::from_str(&usual.to_toml().unwrap()).unwrap();
    let mut parts = Vec::new();
    lone_values("", &whole, &mut parts);
    assert!(parts.len() > 40 && parts.iter().any(|part| part.starts_with("optimizer.settings.momentum")));
    for part in parts {
        assert_eq!(read(&part), usual, "{part}");
    }
    for section in whole.iter().filter(|(_, value)| value.is_table()).map(|(name, _)| name) {
        assert_eq!(read(&format!("[{section}]\n")), usual, "{section}");
    }
}

#[test]
fn an_optimizer_has_the_same_settings_however_it_is_chosen() {
    for entry in OPTIMIZERS {
        let name = entry.name;
        let by_name = typed(&["--optimizer".into(), name.into()]);
        let settings = by_name.optimizer.build().unwrap().settings();
        assert_eq!(read(&format!("[optimizer]\nname = \"{name}\"\n")), by_name, "{name}");
        let program = Recipe { optimizer: OptimizerChoice(Choice::new(name)), ..Recipe::default() };
        assert_eq!(program, by_name, "{name}");
        assert_eq!(program.optimizer.build().unwrap().settings(), settings, "{name}");
        for setting in entry.settings {
            // Another value than the default, which all other settings keep.
            let value = match (&setting.allowed, setting.default) {
                (Allowed::Flag, Value::Flag(flag)) => Value::Flag(!flag),
                (Allowed::Whole(_), _) => Value::Number(3.0),
                _ => Value::Number(0.5),
            };
            let option = format!("--{}={value}", setting.name.replace('_', "-"));
            let one = typed(&["--optimizer".into(), name.into(), option.clone()]);
            let text =
                format!("[optimizer]\nname = \"{name}\"\nsettings = {{ {} = {value} }}\n", setting.name);
            assert_eq!(read(&text), one, "{text}");
            let choice = OptimizerChoice(Choice::new(name).with(setting.name, value));
            let program = Recipe { optimizer: choice, ..Recipe::default() };
            assert_eq!(program, one, "{option}");
            assert_ne!(one, by_name, "{option}");
            assert_eq!(
                program.optimizer.build().unwrap().settings(),
                one.optimizer.build().unwrap().settings(),
                "{option}"
            );
            // The file in a run folder has all settings.
            assert_eq!(read(&program.to_toml().unwrap()), one, "{option}");
        }
    }
}

#[test]
fn a_file_that_names_workers_has_a_shard_for_each() {
    let config = read("nproc = 4\n");
    assert_eq!((config.nproc, config.shards), (4, 4));
    let config = read("nproc = 4\nshards = 2\n");
    assert_eq!((config.nproc, config.shards), (4, 2));
}

#[test]
fn the_step_of_the_usual_run_is_the_librarys_usual_step() {
    let (run, usual) = (Recipe::default().ddp().unwrap(), kolo_ddp::Config::default());
    // All but the shards, which are those of two workers.
    let words = |config: kolo_ddp::Config| format!("{:?}", kolo_ddp::Config { shards: None, ..config });
    assert_eq!(words(run), words(usual));
}
