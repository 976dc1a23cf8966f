// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The developer's tasks in one program: `cargo xtask COMMAND`. `./x COMMAND` runs the same, and
//! first installs the Debian packages that a machine may lack.
//!
//! Every command prints the command lines that it runs, so that any of them can be repeated by
//! hand. The exit status is 0 for success, 1 for a failure, 2 for a wrong command line; `demo`,
//! `verify`, `lab` and `weir` pass on the status of the program that they run.

use std::process::ExitCode;

mod again;
mod bench;
mod cargo_test;
mod ci;
mod claims;
mod command;
mod correctness;
mod deb;
mod fuzz;
mod lines;
mod no_std;
mod picture;
mod revision;
mod stolen;
mod summary;
mod tidy;
mod tools;
mod web;
mod xen;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = match arguments.split_first() {
        Some((name, rest)) => (name.as_str(), rest),
        None => ("help", &[][..]),
    };
    if let Err(error) = std::env::set_current_dir(command::root()) {
        eprintln!("xtask: {}: {error}", command::root().display());
        return ExitCode::FAILURE;
    }
    let outcome = match name {
        "ci" => ci::all(),
        "test" if rest.is_empty() => ci::all(),
        "test" => cargo_test::run_selected(rest),
        "tidy" => tidy::check_repository(),
        "house" => tidy::house(rest),
        "no-std" => no_std::prove(),
        "fuzz" => fuzz::run_all(rest),
        "claims" => claims::call(rest),
        "lines" => lines::call(rest),
        "bench" if rest.first().is_some_and(|word| word == "instructions") => {
            bench::instructions::call(&rest[1..])
        }
        "bench" => match bench::Call::parse(rest) {
            Ok(call) => call.run(),
            Err(message) => {
                eprintln!("xtask: {message}");
                return ExitCode::from(2);
            }
        },
        "bless" => tools::bless(rest),
        "openapi" => tools::bless(&["--workspace", "--test", "openapi"].map(str::to_owned)),
        "web" => web::renew(),
        "picture" => picture::renew(),
        "deb" => deb::build(rest),
        "xen-lab" => xen::call(rest),
        "demo" | "verify" | "lab" | "weir" => return tools::program(name, rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("xtask: no command named '{name}'\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

const HELP: &str = "\
usage: ./x COMMAND [ARGUMENTS]   (or: cargo xtask COMMAND)

  demo [ARGS]       build for release and run `weir-lab demo`
  verify [ARGS]     build for release and run `weir-lab verify`
  lab ARGS          build for release and run `weir-lab` with these arguments
  weir ARGS         build for release and run `weir` with these arguments
  test              everything that must hold: what continuous integration runs
  test ARGS         `cargo test ARGS` alone, with the same summary
  ci                the same as `test` without arguments
  openapi           write docs/openapi.json anew, from the routes
  web               the pages of node and broker: write types, run tests, build them anew
  tidy              the rules of style that a program can check
  house [PATH]      count cycles between files, names used twice, riddles; list those below PATH
  no-std            the proof that the pure crates need no operating system
  fuzz [SECONDS]    every fuzz target for that long (30)
  bench [NAME..]    all benches, or those named; `bench --help` says which, how long they take,
                    what is kept where, and how to compare with another revision
  bless             rewrite goldens and generated documents, then show what changed
  picture           run the demo, and put its chart and table into the README
  claims RESULT..   list identifier, rule and bound of every claim in result files
  lines [REVISION]  count the lines of code that no product binary reaches, here or at a revision
  deb [--out DIR]   a Debian package, in target/debian; the same tree gives the same bytes
  xen-lab [ARGS]    Xen with two guests in QEMU, and Weir that holds their rates: out/xen
  help              this text
";
