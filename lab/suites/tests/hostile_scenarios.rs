// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: no scenario exhausts memory, slips past a bound or names what is not its own; each is
//! refused by thing, value and bound. Method: scenarios that are good but for one line each, in a
//! table; all are to be answered at once.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use weir_suites::reproduce::{NETBACK, Scenario};

/// Figure, what is replaced in it, by what, and how the refusal names it.
const HOSTILE: &[(&str, &str, &str, &str)] = &[
    // Numbers that would be multiplied.
    ("tenants", "count = 63", "count = 4000000000", "count is 4000000000; 1 to 256"),
    ("tenants", "count = 63", "count = 0", "count is 0; 1 to 256"),
    ("tenants", "count = 63", "count = 256", "number is 257; 1 to 256"),
    ("fig8", "connections = 2", "connections = 4294967295", "is 4294967295; 1 to 1024"),
    ("fig8", "connections = 2", "connections = 2000", "connections is 2000; 1 to 1024"),
    ("fig8", "connections = 2", "connections = 0", "connections is 0; 1 to 1024"),
    ("tenants", "count = 63", "count = 63, connections = 17", "of all is 1074; 1 to 1024"),
    ("fig8", "connections = 2", "connections = -1", "invalid value"),
    ("fig10", "every = \"1s\"", "every = \"1ms\"", "sweep: every is 1ms; 200ms to 8s"),
    ("fig10", "every = \"1s\"", "every = \"0s\"", "sweep: every is 0ns; 200ms to 8s"),
    ("fig10", "every = \"1s\"", "every = \"60s\"", "sweep: every is 60s; 200ms to 8s"),
    ("fig10", "every = \"1s\"", "every = \"333ms\"", "every is 333ms; a multiple of 10ms"),
    ("fig10", "from = 30", "from = 0", "sweep: from is 0; 1 to 10000"),
    ("fig10", "from = 30", "from = 4294967295", "from is 4294967295; 1 to 10000"),
    ("fig8", "repetitions = 10", "repetitions = 0", "repetitions is 0; 1 to 100"),
    ("fig8", "repetitions = 10", "repetitions = 4000000000", "4000000000; 1 to 100"),
    // Times.
    ("fig8", "duration = \"100s\"", "duration = \"100\"", "duration"),
    ("fig8", "duration = \"100s\"", "duration = \"0s\"", "duration is 0ns; 1s to 590s"),
    ("fig8", "duration = \"100s\"", "duration = \"36000s\"", "duration is 36000s; 1s to 590s"),
    ("fig5", "start = \"5s\"", "start = \"500s\"", "start is 500s; before the end"),
    ("fig9", "from = \"15s\"", "from = \"40s\"", "disk: to is 30s; 42s to 45s"),
    ("fig9", "from = \"15s\"", "from = \"0s\"", "disk: from is 0ns; 3s to 45s"),
    ("fig9", "to = \"30s\"", "to = \"300s\"", "disk: to is 300s; 17s to 45s"),
    // Rates and sizes.
    ("fig8", "link = \"100Mbit\"", "link = \"0bit\"", "link is 0bit; 12kbit to 1000Gbit"),
    (
        "fig8",
        "link = \"100Mbit\"",
        "link = \"18000000Gbit\"",
        "link is 18000000Gbit; 12kbit to 1000Gbit",
    ),
    ("fig6", "rate = \"30Mbit\"", "rate = \"1bit\"", "rate is 1bit; 12kbit to 1000Gbit"),
    ("sizes", "frame_min = 64", "frame_min = 13", "frame_min is 13; 64 to 1514"),
    ("sizes", "frame_min = 64", "frame_max = 65535", "frame_max is 65535; 64 to 1514"),
    ("fig7", "nice = 10", "nice = 99", "nice is 99; -20 to 19"),
    // Names of devices, namespaces, series and files.
    ("fig8", "name = \"vm1\"", "name = \"a/../b\"", "name is \"a/../b\"; 1 to 15 letters"),
    ("fig8", "name = \"vm1\"", "name = \"\"", "name is \"\"; 1 to 15 letters"),
    ("fig8", "name = \"vm1\"", "name = \"-rf\"", "name is \"-rf\"; 1 to 15 letters"),
    ("fig8", "name = \"vm1\"", "name = \"a b\"", "name is \"a b\"; 1 to 15 letters"),
    ("fig8", "name = \"vm1\"", "name = \"sixteen-letters-\"", "1 to 15 letters"),
    ("fig8", "name = \"vm1\"", "name = \"wire\"", "name is \"wire\"; that is the lab's own"),
    ("fig8", "name = \"vm1\"", "name = \"vm2\"", "name is \"vm2\" twice"),
    ("tenants", "name = \"other\"", "name = \"fifteen-letters\"", "1 to 14 letters"),
    ("fig8", "name = \"2x\"", "name = \"2/x\"", "panel \"2/x\": name is \"2/x\"; 1 to 32"),
    ("fig8", "name = \"2x\"", "name = \"3x\"", "panel: name is \"3x\" twice"),
    // What belongs together.
    ("fig8", "measure = \"balance\"", "measure = \"rates\"", "rate: there is none"),
    ("fig8", "measure = \"balance\"", "measure = \"weights\"", "sweep: there is none"),
    ("fig8", "measure = \"balance\"", "measure = \"disturbance\"", "disk: there is none"),
    ("fig10", "{ name = \"vm2\" }", "{ name = \"vm2\", count = 2 }", "3 tenants; a sweep is of 2"),
    ("fig9", "tenant = \"vm2\"", "tenant = \"vm7\"", "disk: tenant is \"vm7\""),
    ("fig8", "favours = \"vm2\"", "favours = \"vm9\"", "favours is \"vm9\""),
    ("fig9", "panels = [\"text\"]", "panels = [\"none\"]", "panel is \"none\"; one of text"),
    ("fig9", "claim = \"kept\"", "claim = \"kebt\"", "claim is \"kebt\"; one of kept, gained"),
    ("fig9", "at_most = 0.9", "at_most = nan", "one of both, a number"),
    ("fig9", "at_most = 0.9", "", "at_most is None, at_least is None; one of both"),
    ("fig9", "at_most = 0.9", "at_most = 0.9\nat_least = 0.1", "one of both, a number"),
    ("fig8", "pinning = \"own\"", "pinning = \"own\"\npin = 1", "pin"),
];

#[test]
fn each_hostile_scenario_is_refused_at_once_by_thing_value_and_bound() {
    let started = Instant::now();
    let mut taken = Vec::new();
    for (figure, from, to, expected) in HOSTILE {
        let text = NETBACK.iter().find(|(name, _)| name == figure).unwrap().1;
        assert!(text.contains(from), "{figure} has no {from:?} to replace");
        let said = match Scenario::parse("own.toml", &text.replacen(from, to, 1)) {
            Ok(_) => "taken".to_owned(),
            Err(error) => error.to_string(),
        };
        let is_named = said.contains("own.toml") && said.contains(expected);
        if !is_named || said.len() > 1_000 {
            taken.push(format!("{figure}, {to:?}: {expected:?} is not in {said:?}"));
        }
    }
    assert!(taken.is_empty(), "{}", taken.join("\n"));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}
