//! The page of the documentation with every command and every flag. Made from the command line, so that it is never
//! wrong; `cargo xtask codegen` asks for it through the test below.

use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};

use super::{generated, visible};

const HEAD: &str = "\
# Commands

<!-- Made by `cargo xtask codegen` from the command line itself. Edits here are overwritten. -->

Every command with every flag and its default. `volmedic help <command>` shows the same in a terminal,
`volmedic man <command>` as a manual page, and `volmedic completions <shell>` makes a shell complete it.
";

fn page() -> String {
    let mut root = crate::app::Cli::command();
    root.build();
    let mut page = HEAD.to_owned();
    page.push_str("\n| command | what it does |\n|---|---|\n");
    table_of_commands(&root, &mut page);
    section(
        "Flags of every command",
        root.get_arguments().filter(|arg| arg.is_global_set()),
        "##",
        &mut page,
    );
    describe(&root, &mut page);
    page
}

fn full_name(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).to_owned()
}

fn table_of_commands(command: &Command, page: &mut String) {
    for one in visible(command) {
        let name = full_name(one);
        let mut about = one.get_about().map(ToString::to_string).unwrap_or_default();
        finish(&mut about);
        let _ = writeln!(page, "| [`{name}`](#{}) | {} |", name.replace(' ', "-"), cell(&about));
        table_of_commands(one, page);
    }
}

fn describe(command: &Command, page: &mut String) {
    for one in visible(command) {
        let mut about = one.get_long_about().or(one.get_about()).map(ToString::to_string).unwrap_or_default();
        finish(&mut about);
        let usage = one.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ");
        let _ = write!(page, "\n## {}\n\n{}\n\n```\n{usage}\n```\n", full_name(one), about.trim());
        let own: Vec<&Arg> = one.get_arguments().filter(|arg| !arg.is_global_set() && shown(arg)).collect();
        let mut headings: Vec<Option<&str>> = Vec::new();
        for heading in own.iter().map(|arg| arg.get_help_heading()) {
            if !headings.contains(&heading) {
                headings.push(heading);
            }
        }
        for heading in headings {
            let args = own.iter().copied().filter(|arg| arg.get_help_heading() == heading);
            section(heading.unwrap_or("Flags"), args, "###", page);
        }
        if let Some(after) = one.get_after_long_help().or(one.get_after_help()) {
            let _ = write!(page, "\n```\n{}\n```\n", after.to_string().trim_end());
        }
        describe(one, page);
    }
}

fn shown(arg: &Arg) -> bool {
    !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
}

fn section<'a>(heading: &str, args: impl Iterator<Item = &'a Arg>, level: &str, page: &mut String) {
    let _ = write!(page, "\n{level} {heading}\n\n| flag | default | what it is for |\n|---|---|---|\n");
    for arg in args.filter(|arg| shown(arg)) {
        let _ = writeln!(page, "| `{}` | {} | {} |", flag(arg), default(arg), meaning(arg));
    }
}

/// As one would type it.
fn flag(arg: &Arg) -> String {
    let values: Vec<String> =
        arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let value = if arg.get_action().takes_values() { values.join(" ") } else { String::new() };
    let text = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long} {value}"),
        (None, Some(long)) => format!("--{long} {value}"),
        (Some(short), None) => format!("-{short} {value}"),
        (None, None) => value,
    };
    text.trim_end().replace('|', "\\|")
}

fn default(arg: &Arg) -> String {
    let values = arg.get_default_values().iter().map(|value| value.to_string_lossy());
    let values: Vec<String> =
        values.filter(|value| !value.is_empty()).map(|value| format!("`{value}`")).collect();
    if !arg.get_action().takes_values() || values.is_empty() { String::new() } else { values.join(", ") }
}

fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    finish(&mut text);
    let choices: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|choice| !choice.is_hide_set())
        .map(|choice| format!("`{}`", choice.get_name()))
        .collect();
    // A switch that takes true or false says so by being one.
    if arg.get_action().takes_values() && !choices.is_empty() && choices != ["`true`", "`false`"] {
        let _ = write!(text, " One of {}.", choices.join(", "));
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(text, " Also as `{}` in the environment.", variable.to_string_lossy());
    }
    if arg.is_required_set() {
        text.push_str(" Required.");
    }
    cell(&text)
}

/// Clap takes the full stop away from what stands alone.
fn finish(text: &mut String) {
    if !text.is_empty() && !text.ends_with('.') {
        text.push('.');
    }
}

/// A text in one cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}

#[test]
fn every_command_and_flag_is_on_the_page() {
    fn names(command: &Command, all: &mut Vec<String>) {
        for one in visible(command) {
            all.push(format!("\n## {}\n", full_name(one)));
            let args = one.get_arguments().filter(|arg| shown(arg));
            all.extend(args.filter_map(|arg| Some(format!("--{}", arg.get_long()?))));
            names(one, all);
        }
    }
    let page = page();
    let mut root = crate::app::Cli::command();
    root.build();
    let mut all = Vec::new();
    names(&root, &mut all);
    assert!(all.len() > 50);
    for name in all {
        assert!(page.contains(&name), "{name}");
    }
    assert!(page.contains("| `--timeout DURATION` | `15s` | Deadline of one call"), "{page}");
    assert!(!page.contains("volmedic mounter"), "it is internal");
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        assert!(matches!(columns(line), 3 | 4), "{line}");
    }
    generated("commands.md", &page);
}
