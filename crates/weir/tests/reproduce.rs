// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A figure of a text made on a real lab, by the command that a reader would type.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use weir_result::ResultFile;

#[test]
fn a_figure_is_made_drawn_and_reported() {
    if !weir_host::process::is_root() {
        println!("SKIPPED a_figure_is_made_drawn_and_reported: needs root");
        return;
    }
    let folder = std::env::temp_dir().join(format!("weir-reproduce-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let weir = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.current_dir(&folder).args(["reproduce", "netback"]).args(arguments);
        command.output().unwrap()
    };
    let made = weir(&["fig7", "--quick", "--duration", "1s"]);
    let said = String::from_utf8_lossy(&made.stderr);
    // A busy machine may break a bound; then the status is 3.
    assert!(matches!(made.status.code(), Some(0 | 3)), "{said}");
    let place = folder.join("out/reproduce/netback-fig7");
    let text = std::fs::read_to_string(place.join("result.json")).unwrap();
    let result = ResultFile::from_json(&text).unwrap();
    for middle in ["before", "wrr", "hfsc"] {
        for machine in ["vm1", "vm2"] {
            let samples = &result.series()[&format!("free/{middle}/{machine}/0")].samples;
            assert!(samples.iter().sum::<f64>() > 0.0, "nothing arrived of {machine}: {said}");
        }
    }
    for file in ["figure.svg", "figure.png", "data.csv"] {
        assert!(place.join(file).exists(), "no {file}: {said}");
    }
    assert!(weir(&["report"]).status.success());
    let page = std::fs::read_to_string(folder.join("docs/reproduced/netback.md")).unwrap();
    assert!(page.contains("## Figure 7") && page.contains("this kernel") | page.contains("before"));
    std::fs::remove_dir_all(&folder).unwrap();
}
