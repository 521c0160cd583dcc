//! The man command.

use std::error::Error;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap_mangen::Man;

use super::visible;

/// Print a manual page, or write all of them to a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  volmedic man agent | man -l -
  volmedic man --directory /usr/local/share/man/man1

Exit codes: 0 when it was printed or all pages were written, 1 when not, 2 when the command line is wrong.")]
pub(crate) struct Args {
    /// The command whose page is printed, as in `agent` or `fault inject`. Default: the page of volmedic itself.
    #[arg(value_name = "COMMAND", conflicts_with = "directory")]
    command: Vec<String>,
    /// Write the pages of all commands here. The directory is made if need be.
    #[arg(long, short, value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<(), Box<dyn Error>> {
    command.build();
    match &args.directory {
        Some(directory) => write(&command, directory)?,
        None => super::print(page(find(&command, &args.command)?)?.as_bytes())?,
    }
    Ok(())
}

fn find<'a>(root: &'a clap::Command, words: &[String]) -> anyhow::Result<&'a clap::Command> {
    let mut command = root;
    for word in words {
        command = match visible(command).find(|one| one.get_name() == word) {
            Some(found) => found,
            None => {
                let known: Vec<&str> = visible(command).map(clap::Command::get_name).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                bail!("{} has no command {word:?}; there are: {known}", name(command));
            }
        };
    }
    Ok(command)
}

fn name(command: &clap::Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

fn page(command: &clap::Command) -> anyhow::Result<String> {
    let source = format!("volmedic {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source).manual("Volmedic");
    let mut page = Vec::new();
    man.render(&mut page).context("the page cannot be made")?;
    let page = String::from_utf8(page).context("the page is no text")?;
    Ok(correct(&page))
}

/// What the library leaves undone: an absent date keeps its place in the title, the last part has a name that says what
/// it is, and an example stays on one line.
fn correct(page: &str) -> String {
    let mut corrected = String::with_capacity(page.len() + 100);
    let mut in_example = false;
    for line in page.lines() {
        let is_example = line.starts_with("  ");
        if is_example != in_example {
            corrected.push_str(if is_example { ".nf\n" } else { ".fi\n" });
            in_example = is_example;
        }
        match line {
            ".SH EXTRA" => corrected.push_str(".SH EXAMPLES AND EXIT CODES"),
            title if title.starts_with(".TH ") => corrected.push_str(&title.replacen(" 1  ", " 1 \"\" ", 1)),
            _ => corrected.push_str(line),
        }
        corrected.push('\n');
    }
    corrected
}

fn write(command: &clap::Command, directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("the directory {} cannot be made", directory.display()))?;
    let path = directory.join(format!("{}.1", name(command)));
    std::fs::write(&path, page(command)?).with_context(|| format!("{} cannot be written", path.display()))?;
    visible(command).try_for_each(|one| write(one, directory))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn root() -> clap::Command {
        let mut command = crate::app::Cli::command();
        command.build();
        command
    }

    #[test]
    fn a_command_is_found_by_its_words() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let root = root();
        let check =
            |text: &str, expected: &str| assert_eq!(name(find(&root, &words(text)).unwrap()), expected);
        check("", "volmedic");
        check("agent", "volmedic-agent");
        check("fault inject", "volmedic-fault-inject");
        let error = find(&root, &words("fault heal")).unwrap_err().to_string();
        assert_eq!(error, "volmedic-fault has no command \"heal\"; there are: list, inject, clear");
        let error = find(&root, &words("mounter")).unwrap_err().to_string();
        assert!(error.starts_with("volmedic has no command \"mounter\""), "it is internal: {error}");
    }

    #[test]
    fn a_page_has_its_parts() {
        let root = root();
        let page = page(find(&root, &["hub".to_owned()]).unwrap()).unwrap();
        for part in [
            concat!(".TH volmedic-hub 1 \"\" \"volmedic ", env!("CARGO_PKG_VERSION"), "\" Volmedic\n"),
            "\n.nf\n  volmedic hub \\-\\-http\\-endpoint=:8080\n.fi\n",
            ".SH NAME",
            ".SH SYNOPSIS",
            ".SH OPTIONS",
            ".SH EXAMPLES AND EXIT CODES",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
