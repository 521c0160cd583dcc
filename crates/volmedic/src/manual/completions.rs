//! The completions command.

use std::error::Error;

/// Print what makes a shell complete commands and flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  source <(volmedic completions bash)                                       # in this shell
  volmedic completions bash > /etc/bash_completion.d/volmedic               # in every bash
  volmedic completions zsh > \"${fpath[1]}/_volmedic\"                        # in every zsh
  volmedic completions fish > ~/.config/fish/completions/volmedic.fish      # in every fish

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
