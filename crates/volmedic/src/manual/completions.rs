//! The completions command.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;

/// Under this name kubectl asks a plugin for completions; it is a link to the program.
const HELPER: &str = "kubectl_complete-volmedic";
/// The same as the first word, as other command lines have it.
const WORD: &str = "__complete";

/// Print what makes a shell complete commands and flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(volmedic completions bash)                                       # in this shell
  volmedic completions bash > /etc/bash_completion.d/volmedic               # in every bash
  volmedic completions zsh > \"${fpath[1]}/_volmedic\"                        # in every zsh
  volmedic completions fish > ~/.config/fish/completions/volmedic.fish      # in every fish
  ln -s \"$(command -v kubectl-volmedic)\" ~/bin/kubectl_complete-volmedic    # claims and more, behind kubectl

Exit codes: 0 when it was printed, 1 when it could not be, 2 when the command line is wrong.")]
pub(crate) struct Args {
    /// Which shell.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The words to complete, if that is asked.
pub(crate) fn asked(words: impl Iterator<Item = OsString>) -> Option<Vec<String>> {
    let mut words = words.peekable();
    let name = words.next()?;
    let is_helper = Path::new(&name).file_name() == Some(OsStr::new(HELPER));
    if !is_helper && words.next_if(|word| word == WORD).is_none() {
        return None;
    }
    Some(words.map(|word| word.to_string_lossy().into_owned()).collect())
}

pub(crate) fn complete(words: &[String]) -> ExitCode {
    let offers = volmedic_cli::complete::answer(&mut crate::app::Cli::command(), words);
    // A shell that no longer listens needs no answer.
    let _ = super::print(offers.as_bytes());
    ExitCode::SUCCESS
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<(), Box<dyn Error>> {
    let mut script = Vec::new();
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, "volmedic", &mut script);
    super::print(&script)
}
