//! What is made from the program itself: completions for shells, manual pages, the page of all commands, and the
//! definitions of its resources.

pub(crate) mod completions;
#[cfg(test)]
mod definitions;
pub(crate) mod man;
#[cfg(test)]
mod page;

use std::error::Error;
use std::io::{self, Write};

/// Anyone who closes the pipe has read enough.
fn print(text: &[u8]) -> Result<(), Box<dyn Error>> {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("standard output cannot be written: {error}").into())
        }
        _ => Ok(()),
    }
}

/// The commands below this one that a person may use.
fn visible(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help")
}

/// Writes a file for `cargo xtask codegen`, which names the folder.
#[cfg(test)]
fn generated(name: &str, text: &str) {
    if let Some(folder) = std::env::var_os("VOLMEDIC_GENERATED") {
        std::fs::write(std::path::Path::new(&folder).join(name), text).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn check(command: &clap::Command, found: &mut Vec<String>) {
        let help = command.clone().render_long_help().to_string();
        let name = command.get_display_name().unwrap_or(command.get_name());
        for part in ["Example", "Exit codes"] {
            if !help.lines().any(|line| line.starts_with(part)) {
                found.push(format!("the help of {name} has no part {part:?}"));
            }
        }
        if command.get_about().is_none_or(|about| about.to_string().trim().is_empty()) {
            found.push(format!("the help of {name} does not say what it is for"));
        }
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            if argument.get_help().is_none() {
                found.push(format!("{name} does not say what {} is", argument.get_id()));
            }
        }
        for one in visible(command) {
            check(one, found);
        }
    }

    #[test]
    fn the_help_of_every_command_shows_an_example_and_the_exit_codes() {
        let mut command = crate::app::Cli::command();
        command.build();
        let mut found = Vec::new();
        check(&command, &mut found);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
