// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a case.

use weir_sched::{ClassConfig, CodelConfig, FlowQueueConfig};
use weir_units::{BitRate, ByteCount, Nanos};

/// One case, as written.
#[derive(Default)]
pub(crate) struct Case {
    pub(crate) info: String,
    config: Vec<String>,
    pub(crate) input: Vec<String>,
    pub(crate) expect: Vec<String>,
}

impl Case {
    pub(crate) fn parse(name: &str, text: &str) -> Self {
        let mut case = Self::default();
        let mut section = "";
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let content = line.trim().to_owned();
            match (line.starts_with(' '), section) {
                (false, _) => section = line.trim(),
                (true, "info") => case.info += &content,
                (true, "config") => case.config.push(content),
                (true, "input") => case.input.push(content),
                (true, "expect") => case.expect.push(content),
                _ => panic!("{name}: \"{line}\" is in no section"),
            }
        }
        case
    }

    pub(crate) fn subject(&self) -> &str {
        self.value("scheduler").unwrap()
    }

    /// The rest of the first configuration line that begins with `key`.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        self.config.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
    }

    pub(crate) fn rate(&self, key: &str) -> Option<BitRate> {
        self.value(key).map(|text| text.parse().unwrap())
    }

    /// The classes' names and configurations.
    pub(crate) fn classes(&self) -> Vec<(String, ClassConfig)> {
        let lines = self.config.iter().filter_map(|line| line.strip_prefix("class "));
        let class = |line: &str| {
            let (name, pairs) = line.split_once(' ').unwrap_or((line, ""));
            let mut config = ClassConfig::default();
            configure(&mut config, pairs);
            (name.to_owned(), config)
        };
        lines.map(class).collect()
    }
}

/// Sets the values named by `key=value` pairs.
pub(crate) fn configure(config: &mut ClassConfig, pairs: &str) {
    for pair in pairs.split_whitespace() {
        let (key, value) = pair.split_once('=').unwrap();
        match key {
            "weight" => config.weight = value.parse().unwrap(),
            "min_rate" => config.min_rate = value.parse().unwrap(),
            "rate" => config.max_rate = Some(value.parse().unwrap()),
            "burst" => config.burst = value.parse().unwrap(),
            "packets" => config.queue.packets = value.parse().unwrap(),
            "bytes" => config.queue.bytes = value.parse::<ByteCount>().unwrap(),
            "delay" => config.delay = Some(value.parse().unwrap()),
            "delay_packet" => config.delay_packet = value.parse().unwrap(),
            "flows" => {
                let flows = value.parse().unwrap();
                config.queue.flows = (flows > 0).then_some(FlowQueueConfig { flows, l4s: None });
            }
            "codel" => {
                let parts: Vec<&str> = value.split('/').collect();
                let time = |text: &str| text.parse::<Nanos>().unwrap();
                let (target, interval) = (time(parts[0]), time(parts[1]));
                let ecn = parts.get(2) == Some(&"ecn");
                config.queue.codel = Some(CodelConfig { target, interval, ecn });
            }
            _ => panic!("unknown key \"{key}\""),
        }
    }
}
