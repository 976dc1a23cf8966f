// SPDX-License-Identifier: Apache-2.0 OR MIT
//! docs/cli-lab.md is what the program says of itself; `./x bless` rewrites it.
#![allow(clippy::unwrap_used)]

#[path = "../../../weir/tests/common/cli_page.rs"]
mod cli_page;

use std::path::Path;
use std::process::Command;

#[test]
fn the_page_of_the_command_line_is_what_the_program_says() {
    let page = cli_page::page(HEAD, "weir-lab", env!("CARGO_BIN_EXE_weir-lab"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli-lab.md");
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == page, "docs/cli-lab.md is not what the program says; ./x bless rewrites it");
    for command in ["demo", "lab up", "traffic send", "verify", "conformance", "reproduce"] {
        assert!(page.contains(&format!("\n## weir-lab {command}\n")), "no part about {command}");
    }
}

/// A script tells a typo from a lab that cannot be made: 2, and what there is.
#[test]
fn a_name_that_is_not_known_is_a_wrong_command_line() {
    for (line, known) in [
        ("verify first-lite", "first-light, netback"),
        ("verify netback --row 77", "no row 77; netback has 1, 2, 3"),
        ("verify netback --row 8 --row 0", "no row 0; netback has 1, 2, 3"),
        ("conformance --on swich", "switch, sim, kernel, kernel-hfsc, bridge, htb, hfsc"),
        ("conformance --on switch --only fairnes", "fairness, weights, minimum"),
        ("conformance --only fairnes", "fairness, weights, minimum"),
        ("sim swarm --mutant no", "no: not one of shares-too-much, halves-minimums"),
        ("sim swarm --keep 1", "--keep is for one seed, --seeds says 300"),
        ("verify node --on sim", "node: not in virtual time, which has first-light 4, 6; netback"),
        ("verify netback --row 1 --on sim", "netback.1: not in virtual time, which has first"),
        ("verify netback --on moon", "possible values: lab, sim"),
        ("reproduce xtc fig3 --on sim", "xtc fig3: not in virtual time, which has table1, fig5"),
        ("reproduce xtc report --on sim", "xtc report: not in virtual time, which has table1"),
        ("reproduce xtc fig5 --on sim --router process", "--router process: it is of the lab"),
        ("reproduce em fig2 --on sim", "em fig2: not in virtual time, which has table2, table3"),
        ("reproduce iip fig5 --on sim", "iip fig5: not in virtual time, which has all"),
        ("reproduce jitter ping --on sim", "not in virtual time, which has rtp, shares, rtp-85"),
        (
            "verify first-light --seed 7",
            "--on lab: --seed changes nothing there; it is for --on sim",
        ),
        ("verify netback --pcap", "--on lab: --pcap finds no frames there; it is for --on sim"),
        (
            "verify xtc --on sim --seed 7",
            "xtc: --seed changes nothing there; it is for first-light 6;",
        ),
        (
            "verify jitter --row 10 --on sim --pcap",
            "jitter: --pcap finds no frames there; it is for",
        ),
        ("verify first-light --row 4 --on sim --seed 7", "first-light.4: --seed changes nothing"),
        ("verify node --on sim --seed 7", "node: not in virtual time, which has first-light 6;"),
        ("conformance --on switch --seed 7", "--on switch: --seed changes nothing there"),
        ("conformance --pcap", "the list: --pcap finds no frames there; it is for --on sim"),
        ("reproduce xtc fig9 --pcap", "--on lab: --pcap finds no frames there"),
        ("reproduce xtc fig9 --on sim --pcap", "xtc fig9: --pcap finds no frames there; it is for"),
        (
            "reproduce jitter reno --on sim --seed 7",
            "reno: --seed changes nothing there; it is for rtp",
        ),
        ("reproduce netback report --on sim", "report: its page is of results on the lab"),
    ] {
        let words = line.split(' ');
        let output = Command::new(env!("CARGO_BIN_EXE_weir-lab")).args(words).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(known), "{line}: {said}");
    }
}

const HEAD: &str = "# Command line of the laboratory

What `weir-lab` says of itself, command by command. A test holds this page to it. It runs
experiments on the `weir` that stands beside it, and refuses one of another build. Exit status: 0
done and everything held, 1 it could not be done, 2 the command line was wrong, 3 it was measured
and a case does not hold.

With `--json` a command that measures prints its [result](results.md), which names its version;
`traffic` prints JSON alone. State (journals, control sockets) is in `/run/weir`, or where
`WEIR_STATE` says.
";
