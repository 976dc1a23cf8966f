// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Configurations for tests: the networks that a test names, without routers that answer.

use crate::config::BrokerConfig;

/// Returns the configuration of a broker with these networks.
pub(crate) fn with(networks: &[&str]) -> BrokerConfig {
    parse(&networks.concat()).unwrap()
}

/// Parses a configuration with what a text adds to the broker's own settings.
pub(crate) fn parse(text: &str) -> Result<BrokerConfig, String> {
    BrokerConfig::parse(&(HEAD.to_owned() + text).replace("HOST_KEY", HOST_KEY))
}

/// Returns two nodes with a physical link of 100 Mbit/s, of which 90 are reservable, and the
/// networks `blue` and `red` with these shares of it.
pub(crate) fn shared(blue: &str, red: &str) -> String {
    let mut text = NODES.to_owned();
    for (name, vlan, number, share) in [("blue", "10", "1", blue), ("red", "20", "2", red)] {
        let own = PAIR
            .replace("[[network.link]]", "[[network.link]]\nover = \"n1-n2\"")
            .replace("\nouter =", &format!("\nvlan = {vlan}\nouter ="))
            .replace("::1\" }\n", &format!("::1\", vif = \"{name}1\" }}\n"))
            .replace("::2\" }\n", &format!("::2\", vif = \"{name}2\" }}\n"))
            .replace("rate = \"100Mbit\"", &format!("rate = \"{share}\""));
        text += &own.replace("NAME", name).replace("NUMBER", number);
    }
    text
}

/// Returns two nodes and the networks `blue` and `red`, each with an agreement: packets of both
/// enter at n1 and pass n2.
pub(crate) fn policed() -> String {
    let mut text = NODES.to_owned();
    for (name, number, terms) in [
        ("blue", 1, "min = \"100pps\"\nmax = \"2kpps\"\npriority = 3"),
        ("red", 2, "min = \"100pps\""),
    ] {
        let letter = &name[..1];
        text += &pair(name, number);
        text += &format!(
            "[network.agreement]\n{terms}\nrouter = [\n\
             {{ name = \"{letter}1\", node = \"n1\", entry = true }},\n\
             {{ name = \"{letter}2\", node = \"n2\" }},\n]\n"
        );
    }
    text
}

/// Returns a network of one link `l` of 100 Mbit/s and 3 ms, between the routers of the end nodes
/// `x` and `y`. Its routers and addresses have its number.
pub(crate) fn pair(name: &str, number: u8) -> String {
    let named = PAIR.replace("NAME", name).replace("NUMBER", &number.to_string());
    named.replace("HOST_KEY", HOST_KEY)
}

/// The key of all hosts.
pub(crate) const HOST_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFm8ZtUIpdv4YV57u6Je7yqIVfHdBGSrc1VXZEWnk4dz";

/// Network `n`: a link `short` between the routers of `x` and `y`, and a longer way of two.
pub(crate) const TRIANGLE: &str = r#"
[[network]]
name = "n"
outer = "fd0f::"
router = [
    { name = "a", ssh = "[::1]:22", host_key = "HOST_KEY" },
    { name = "b", ssh = "[::2]:22", host_key = "HOST_KEY" },
    { name = "c", ssh = "[::3]:22", host_key = "HOST_KEY" },
]
host = [
    { name = "x", router = "a", device = "x", address = "fd10::1" },
    { name = "y", router = "c", device = "y", address = "fd10::2" },
]
[[network.link]]
name = "short"
a = { router = "a", device = "c", address = "fd11::1" }
b = { router = "c", device = "a", address = "fd11::2" }
rate = "100Mbit"
reservable = "50Mbit"
delay = "1ms"
[[network.link]]
name = "first"
a = { router = "a", device = "b", address = "fd12::1" }
b = { router = "b", device = "a", address = "fd12::2" }
rate = "100Mbit"
delay = "3ms"
[[network.link]]
name = "second"
a = { router = "b", device = "c", address = "fd13::1" }
b = { router = "c", device = "b", address = "fd13::2" }
rate = "100Mbit"
delay = "3ms"
"#;

const HEAD: &str = r#"
version = 1
[broker]
name = "t"
listen = "[::1]:1"
certificate = "c"
key = "k"
store = "s"
ssh_key = "i"
"#;

const PAIR: &str = r#"
[[network]]
name = "NAME"
outer = "fd0f:NUMBER::"
router = [
    { name = "NAME-1", ssh = "[::1]:NUMBER001", host_key = "HOST_KEY" },
    { name = "NAME-2", ssh = "[::1]:NUMBER002", host_key = "HOST_KEY" },
]
host = [
    { name = "x", router = "NAME-1", device = "x", address = "fd10:NUMBER::1" },
    { name = "y", router = "NAME-2", device = "y", address = "fd10:NUMBER::2" },
]
[[network.link]]
name = "l"
a = { router = "NAME-1", device = "c", address = "fd11:NUMBER::1" }
b = { router = "NAME-2", device = "a", address = "fd11:NUMBER::2" }
rate = "100Mbit"
delay = "3ms"
"#;

const NODES: &str = r#"
[[node]]
name = "n1"
api = "/run/weir/node-n1.sock"
[[node]]
name = "n2"
api = "/run/weir/node-n2.sock"
[[link]]
name = "n1-n2"
a = { node = "n1", port = "p" }
b = { node = "n2", port = "p" }
rate = "100Mbit"
reservable = "90Mbit"
"#;
