// SPDX-License-Identifier: Apache-2.0 OR MIT
//! docs/cli.md is what the program says of itself; `./x bless` rewrites it.
#![allow(clippy::unwrap_used)]

#[path = "common/cli_page.rs"]
mod cli_page;

use std::path::Path;
use std::process::Command;

#[test]
fn the_page_of_the_command_line_is_what_the_program_says() {
    let page = cli_page::page(HEAD, "weir", env!("CARGO_BIN_EXE_weir"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == page, "docs/cli.md is not what the program says; ./x bless rewrites it");
    for command in ["node run", "capture", "set vif", "explain", "clean", "doctor", "top"] {
        assert!(page.contains(&format!("\n## weir {command}\n")), "no part about {command}");
    }
}

/// For one release, a command that went to `weir-lab` says so.
#[test]
fn a_command_that_has_moved_names_the_program_to_run_instead() {
    for line in ["demo --quick", "lab up x.toml", "traffic send --udp 127.0.0.1:9", "verify"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_weir")).args(line.split(' ')).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(&format!("weir-lab {line}")), "{line}: {said}");
    }
}

/// Each shell and each page has what the program has.
#[test]
fn completions_and_manual_pages_follow_the_program() {
    let weir = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for shell in ["bash", "zsh", "fish"] {
        let script = weir(&["completions", shell]);
        for word in ["doctor", "min-rate", "interval"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    for (shell, option) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = std::env::temp_dir().join(format!("weir-t-{shell}-{}", std::process::id()));
        std::fs::write(&script, weir(&["completions", shell])).unwrap();
        match Command::new(shell).arg(option).arg(&script).output() {
            Ok(output) => assert!(output.status.success(), "{shell}: {output:?}"),
            Err(_) => println!("SKIPPED completions of {shell}: not installed"),
        }
        std::fs::remove_file(&script).unwrap();
    }
    let folder = std::env::temp_dir().join(format!("weir-t-man-{}", std::process::id()));
    weir(&["man", folder.to_str().unwrap()]);
    let mut pages: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort();
    let help =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md"));
    let help = help.unwrap();
    let mut commands: Vec<String> = help
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|name| format!("{}.1", name.replace(' ', "-")))
        .collect();
    commands.sort();
    assert_eq!(pages, commands);
    let page = std::fs::read_to_string(folder.join("weir-set-vif.1")).unwrap();
    assert!(page.contains(".TH") && page.contains("min\\-rate"), "{page}");
    std::fs::remove_dir_all(&folder).unwrap();
}

const HEAD: &str = "# Command line

What the program says of itself, command by command. A test holds this page to it. Exit status: 0
done, 1 it could not be done, 2 the command line was wrong, 4 a node was not confirmed in time and
has undone what it did, 5 the slices of a plan do not fit, 6 a plan is not held, 7 nothing of a plan
is broken and not all is proven. The laboratory's program has [a page of its own](cli-lab.md).

State (journals, control sockets) is in `/run/weir`, or where `WEIR_STATE` says.

With `--json` a command that asks a node or the broker prints the answer as it comes, in the shape
that [openapi.json](openapi.json) or [broker-openapi.json](broker-openapi.json) gives it; a command
about one connection prints a list of one. Everything else that is printed as JSON has a `version`,
which changes when a key is removed or changes its meaning; only the JSON of `doctor` has none.
`node status` prints JSON with or without `--json`; `capture`, `completions` and `man` write files
and scripts.

A node is asked on its Unix socket, or with `--url` over TCP with TLS. `WEIR_TOKEN` in the
environment is the caller's token: an administrator's, a reader's or a tenant's ([api.md](api.md)).
";
