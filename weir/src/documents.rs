// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir completions` and `weir man`: what a package installs beside the program, made of the same
//! description as `--help`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command, ValueEnum};
use clap_complete::aot::{Bash, Fish, Zsh};
use serde::Deserialize;

use crate::node::NodeName;
use weir_platform::failure::Failure;
use weir_platform::output;

/// Print the completions of a shell.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Whose
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Write the manual pages into a folder, one for each command.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The folder; made if it is not there
    dir: PathBuf,
}

/// Names of the node's vifs, for completions: nothing where no node answers.
#[derive(Debug, Args)]
pub(crate) struct Names {
    #[command(flatten)]
    node: NodeName,
}

impl Completions {
    pub(crate) fn run(self, mut command: Command) -> Result<ExitCode, Failure> {
        let mut script = Vec::new();
        let to = &mut script;
        let names = match self.shell {
            Shell::Bash => {
                clap_complete::generate(Bash, &mut command, PROGRAM, to);
                BASH_NAMES
            }
            Shell::Zsh => {
                clap_complete::generate(Zsh, &mut command, PROGRAM, to);
                ""
            }
            Shell::Fish => {
                clap_complete::generate(Fish, &mut command, PROGRAM, to);
                FISH_NAMES
            }
        };
        output::print(&(String::from_utf8(script)? + names))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Man {
    pub(crate) fn run(self, command: Command) -> Result<ExitCode, Failure> {
        let named = |error: std::io::Error| format!("{}: {error}", self.dir.display());
        std::fs::create_dir_all(&self.dir).map_err(named)?;
        clap_mangen::generate_to(command, &self.dir).map_err(named)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Names {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        #[derive(Deserialize)]
        struct Policy {
            vifs: Vec<Vif>,
        }
        #[derive(Deserialize)]
        struct Vif {
            name: String,
        }
        // A failure is of no use to the user who completes a line.
        let Ok(client) = self.node.client() else { return Ok(ExitCode::SUCCESS) };
        let Ok(Policy { vifs }) = client.get("/v1/policy") else { return Ok(ExitCode::SUCCESS) };
        output::print(&vifs.into_iter().map(|vif| vif.name + "\n").collect::<String>())?;
        Ok(ExitCode::SUCCESS)
    }
}

const PROGRAM: &str = "weir";

/// Completes the name of a vif with those of the running node.
const BASH_NAMES: &str = r#"
_weir_with_names() {
    _weir "$@"
    case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
        "set vif" | "show "* | "capture "* | "explain "*)
            COMPREPLY+=( $(compgen -W "$(weir names 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}") )
            ;;
    esac
}
complete -F _weir_with_names -o bashdefault -o default weir
"#;

/// Completes the names of a running node in fish.
const FISH_NAMES: &str = r#"
function __weir_names_a_vif
    __fish_seen_subcommand_from show capture explain
    or begin; __fish_seen_subcommand_from set; and __fish_seen_subcommand_from vif; end
end
complete -c weir -n __weir_names_a_vif -f -a "(weir names 2>/dev/null)"
"#;
