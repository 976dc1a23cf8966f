// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker's page in headless Chromium, driven by `web/e2e/broker.mjs`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Visits the page at an address with `node`, a command of Node.js. Returns what it saw: numbers by
/// name. `None` skips it, and says so.
pub(crate) fn visit(mut node: Command, url: &str, words: &[&str]) -> Option<BTreeMap<String, u64>> {
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web");
    let browser = std::env::var_os("CHROMIUM").unwrap_or_else(|| "/usr/bin/chromium".into());
    let needed = [
        ("node", Command::new("node").arg("--version").output().is_ok()),
        ("chromium", Path::new(&browser).exists()),
        ("web/node_modules", web.join("node_modules/playwright-core").exists()),
    ];
    if let Some((what, _)) = needed.iter().find(|(_, there)| !there) {
        println!("SKIPPED the broker's page: there is no {what}");
        return None;
    }
    node.arg(web.join("e2e/broker.mjs")).arg(url).args(words);
    let output = node.stderr(Stdio::inherit()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let samples = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let number = |said: &Value| {
        (said["sample"].as_str().unwrap().to_owned(), said["value"].as_u64().unwrap())
    };
    let samples: BTreeMap<String, u64> = samples.map(|said| number(&said)).collect();
    println!("{samples:?}");
    let pictures = samples.iter().filter(|(name, _)| name.starts_with("axe/"));
    assert!(pictures.into_iter().all(|(_, findings)| *findings == 0), "{samples:?}");
    assert_eq!(samples["errors"], 0);
    Some(samples)
}
