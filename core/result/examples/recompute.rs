// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads result files, recomputes every verdict from the samples, and prints them: what anybody
//! can do with a file that somebody else made.
//!
//! `cargo run -p weir-result --example recompute -- out/demo/result.json`

use std::process::ExitCode;

use weir_result::ResultFile;

fn main() -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    for path in std::env::args().skip(1) {
        let read = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        // Reading refuses a case that does not follow from its series.
        match read.and_then(|text| ResultFile::from_json(&text).map_err(|error| error.to_string()))
        {
            Ok(result) => println!("{path}\n{result}"),
            Err(error) => {
                eprintln!("{path}: {error}");
                status = ExitCode::FAILURE;
            }
        }
    }
    status
}
