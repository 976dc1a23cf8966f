// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The recorded figures of MLRsearch are what it finds; `WEIR_BLESS=1` records them anew.
#![allow(clippy::unwrap_used, missing_docs)]

use weir_suites::iip::oracle::recorded;
use weir_suites::iip::recorded_again;

#[test]
fn the_recorded_figures_are_what_mlrsearch_finds() {
    let Some(found) = recorded_again().unwrap() else {
        println!(
            "SKIPPED the_recorded_figures_are_what_mlrsearch_finds: no Python with the package \
             MLRsearch 1.2 (WEIR_PYTHON names one)"
        );
        return;
    };
    if std::env::var_os("WEIR_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/iip/mlrsearch.json");
        std::fs::write(path, serde_json::to_string_pretty(&found).unwrap() + "\n").unwrap();
        return;
    }
    assert_eq!(recorded().unwrap(), found, "WEIR_BLESS=1 records them anew");
}
