// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tenant's own machine: the command line over TCP, with its token, against a running node.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::process::Output;

use common::NodeLab;
use serde_json::Value;

const URL: &str = "https://127.0.0.1:18443";

/// `weir`, over TCP from within the node's namespace.
fn over_tcp(lab: &NodeLab, token: &str, ca: &str, words: &[&str]) -> Output {
    let mut command = lab.inside("sw", env!("CARGO_BIN_EXE_weir"));
    command.args(words).args(["--url", URL, "--ca", ca]).env("WEIR_TOKEN", token);
    command.output().unwrap()
}

#[test]
fn a_tenant_sees_and_changes_its_own_from_its_own_machine() {
    let Some(lab) = NodeLab::up("weir-t-remote", common::TOPOLOGY, common::POLICY) else { return };
    assert!(lab.inside("sw", "ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (lab.path("cert.pem"), lab.path("key.pem"));
    std::fs::write(&certificate, own.cert.pem()).unwrap();
    std::fs::write(&key, own.signing_key.serialize_pem()).unwrap();
    let made = lab.weir(&["token", "ada", "--slice", "gold", "--json"]);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made["version"], 1, "{made}");
    let [token, sha256] = ["token", "sha256"].map(|key| made[key].as_str().unwrap().to_owned());
    let api = format!(
        "[api]\nlisten = \"127.0.0.1:18443\"\ncertificate = {certificate:?}\nkey = {key:?}\n\n\
         [[api.token]]\nname = \"ada\"\nrole = \"tenant\"\nslice = \"gold\"\nsha256 = {sha256:?}\n"
    );
    lab.write(&format!("{}\n{api}", common::POLICY));
    let node = lab.run(&[]);
    lab.wait_for_node();
    let said = |words: &[&str]| {
        let output = over_tcp(&lab, &token, &certificate, words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let refused = |token: &str, ca: &str, words: &[&str]| {
        let output = over_tcp(&lab, token, ca, words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let shown = said(&["show"]);
    assert!(shown.contains("gold.0") && !shown.contains("lead.0"), "{shown}");
    let set = said(&["set", "vif", "gold.0", "--rate", "5Mbit"]);
    assert!(set.contains("nothing -> \"5Mbit\""), "{set}");
    assert!(said(&["diff"]).contains("5Mbit"));
    let top: Value =
        serde_json::from_str(&said(&["top", "--json", "--interval", "200ms"])).unwrap();
    let names: Vec<&str> =
        top["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!((names, &top["version"]), (vec!["gold.0", "gold"], &Value::from(1)), "{top:#}");
    assert_eq!(
        (top.get("worker"), &top["rows"][0]["send"]["limit_bps"]),
        (None, &5_000_000.into())
    );
    assert!(said(&["undo"]).contains("\"5Mbit\" -> nothing"));
    let other = refused(&token, &certificate, &["set", "vif", "lead.0", "--rate", "5Mbit"]);
    assert!(other.contains("there is no vif"), "{other}");
    assert!(refused("", &certificate, &["show"]).contains("there is no token"));
    assert!(refused("wrong", &certificate, &["diff"]).contains("not known"));
    // Nobody vouches for this certificate but itself.
    let strange = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let other_ca = lab.path("other.pem");
    std::fs::write(&other_ca, strange.cert.pem()).unwrap();
    let why = refused(&token, &other_ca, &["show"]);
    assert!(why.contains(URL) && why.contains("certificate"), "{why}");
    lab.stop(node);
}

/// A page for people, the same for programs, and a terminal that is none.
#[test]
fn top_measures_once_for_scripts() {
    let Some(lab) = NodeLab::up("weir-t-top", common::TOPOLOGY, common::POLICY) else { return };
    let node = lab.run(&[]);
    lab.wait_for_node();
    let page = lab.weir(&["top", "--once", "--interval", "200ms"]);
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.contains("up0 (port)") && page.contains("  gold.0"), "{page}");
    let wrong = lab.weir(&["top", "--interval", "50ms"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let done = lab.weir(&["node", "reload", "--json"]);
    let done: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(done, serde_json::json!({ "version": 1, "done": "reload" }));
    let names = lab.weir(&["names"]);
    assert_eq!(String::from_utf8(names.stdout).unwrap(), "gold.0\nlead.0\n");
    lab.stop(node);
    assert!(lab.weir(&["names"]).status.success());
}
