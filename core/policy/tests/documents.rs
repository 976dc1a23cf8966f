// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: what is written about the document is true. Method: the files in `docs/` are compared
//! with what the types give (`WEIR_BLESS=1` writes them), every default that the schema names is
//! compared with the effective policy, and every policy of the repository is read.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

fn same_as_checked_in(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("WEIR_BLESS").is_some_and(|value| value == "1") {
        fs::write(&path, text).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "docs/{name} is out of date: WEIR_BLESS=1 cargo test -p weir-policy");
}

#[test]
fn the_reference_page_is_checked_in() {
    same_as_checked_in("policy.md", &weir_policy::reference());
}

#[test]
fn the_schema_is_checked_in() {
    let text = serde_json::to_string_pretty(&weir_policy::schema()).unwrap();
    same_as_checked_in("policy.schema.json", &(text + "\n"));
}

#[test]
fn every_key_of_the_reference_has_a_meaning() {
    let schema = weir_policy::schema();
    let mut keys = 0;
    for node in schema["$defs"].as_object().unwrap().values().chain([&schema]) {
        for (key, property) in node["properties"].as_object().into_iter().flatten() {
            keys += 1;
            assert!(
                property["description"].as_str().is_some_and(|text| text.ends_with('.')),
                "{key}"
            );
        }
    }
    assert!(keys > 60, "{keys}");
}

#[test]
fn defaults_are_what_the_schema_says() {
    let policy = weir_policy::parse(
        "version = 1\n\
         port = [{ name = \"up0\", rate = \"1Gbit\" }]\n\
         slice = [{ name = \"gold\" }]\n\
         router = [{ name = \"vr1\", slice = \"gold\" }]\n\
         vif = [{ name = \"a\", slice = \"gold\", send = { queue = { aqm = \"codel\" } }, \
             receive = { rate = \"2Mbit\", shaper = \"smooth\" } }]\n",
    );
    let effective: Value = toml::from_str(&policy.unwrap().to_toml()).unwrap();
    let schema = weir_policy::schema();
    let vif = &effective["vif"][0];
    let mut compared = 0;
    for (name, table) in [
        ("node", &effective["node"]),
        ("port", &effective["port"][0]),
        ("share", &effective["slice"][0]["send"]),
        ("share", &effective["router"][0]["receive"]),
        ("vif", vif),
        ("vif-share", &vif["receive"]),
        ("queue", &vif["send"]["queue"]),
    ] {
        for (key, property) in schema["$defs"][name]["properties"].as_object().unwrap() {
            let Some(default) = property.get("default") else { continue };
            // Set above, since the keys beside it need it.
            if ["aqm", "shaper"].contains(&key.as_str()) {
                continue;
            }
            compared += 1;
            match (default.as_f64(), table[key].as_f64()) {
                (Some(default), Some(value)) => assert!((default - value).abs() < 1e-9, "{key}"),
                _ => assert_eq!(default, &table[key], "{name}.{key}"),
            }
        }
    }
    assert!(compared > 20, "{compared}");
}

/// Goal: what a document leaves out stays within the bounds of what it may say. Method: rates at
/// both ends of their range, written with all defaults and read back.
#[test]
fn defaults_at_both_ends_of_a_rate_are_within_their_bounds() {
    let ends = ["1kbit", "3kbit", "18kbit", "180Gbit", "700Gbit", "10000Gbit"];
    for (port, vif) in ends.iter().flat_map(|port| ends.map(|vif| (port, vif))) {
        let text = format!(
            "version = 1\n\
             port = [{{ name = \"up0\", rate = \"{port}\" }}]\n\
             slice = [{{ name = \"gold\" }}]\n\
             router = [{{ name = \"vr1\", slice = \"gold\" }}]\n\
             vif = [{{ name = \"a\", slice = \"gold\", router = \"vr1\" }}, \
                 {{ name = \"b\", slice = \"gold\", send = {{ rate = \"{vif}\" }}, \
                     receive = {{ rate = \"{vif}\", queue = {{ aqm = \"lan\" }} }} }}]\n"
        );
        let policy = weir_policy::parse(&text).unwrap();
        assert_eq!(policy.check(), Ok(()), "{port} and {vif}");
        assert_eq!(weir_policy::parse(&policy.to_toml()), Ok(policy), "{port} and {vif}");
    }
}

/// Goal: a rate that falls refuses no `interval` on account of a `target` that nobody gave.
#[test]
fn a_derived_target_gives_way_to_a_given_interval() {
    let target = |queue: &str, rate: &str| {
        let policy = weir_policy::parse(&format!(
            "version = 1\n\
             port = [{{ name = \"up0\", rate = \"1Gbit\" }}]\n\
             slice = [{{ name = \"gold\" }}]\n\
             vif = [{{ name = \"a\", slice = \"gold\", \
                 send = {{ rate = \"{rate}\", queue = {{ {queue} }} }} }}]\n"
        ));
        policy.unwrap().vifs[0].send_queue.codel.unwrap().target.to_string()
    };
    assert_eq!(target("interval = \"100ms\"", "180kbit"), "50ms");
    assert_eq!(target("interval = \"100ms\"", "100Mbit"), "5ms");
    assert_eq!(target("aqm = \"codel\", kind = \"fifo\", interval = \"4ms\"", "1Mbit"), "2ms");
}

#[test]
fn every_policy_of_the_repository_is_sound() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut read = 0;
    for folder in ["examples", "lab/scenarios/policies"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            // Other tests read the request of `weir plan` and the file of a broker.
            let others = ["plan.toml", "broker.toml"];
            let is_other = path.file_name().is_some_and(|name| others.iter().any(|o| name == *o));
            if is_other || path.extension().is_none_or(|end| end != "toml") {
                continue;
            }
            read += 1;
            let answer = weir_policy::parse(&fs::read_to_string(&path).unwrap());
            assert!(answer.is_ok(), "{}:\n{}", path.display(), answer.unwrap_err());
        }
    }
    assert!(read >= 3, "{read}");
}

/// The page on routers that are held has policies in it.
#[test]
fn the_example_of_the_page_on_classes_is_sound() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/realtime.md")).unwrap();
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let policy = weir_policy::parse(rest.split("```").next().unwrap());
    let policy = policy.unwrap_or_else(|problems| panic!("{problems}"));
    assert!(policy.routers.len() == 4 && policy.routers.iter().all(|one| one.realtime.is_some()));
}

#[test]
fn the_examples_of_the_page_on_routers_are_sound() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/xtc.md")).unwrap();
    let examples = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let held = |example: &str| {
        let policy = weir_policy::parse(example);
        let policy = policy.unwrap_or_else(|problems| panic!("{problems}"));
        policy.routers.iter().filter(|router| router.xtc.is_some()).count()
    };
    assert_eq!(examples.map(held).collect::<Vec<_>>(), [3, 2, 1]);
}
