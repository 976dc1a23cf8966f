// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network's configuration, as the runtime gives it on standard input.
//!
//! Keys of the specification and keys with a dot (`cni.dev/…`) belong to the runtime. All others
//! are Weir's own. An unknown key of Weir's is refused, since a misspelt limit would otherwise not
//! hold.

use std::fmt::Display;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::{Map, Value};
use weir_api_types::change::VifShareChange;
use weir_units::{BitRate, ByteCount, PacketRate};

use crate::call::Attachment;
use crate::failure::{FailureCode, PluginFailure};

/// Supported versions of the specification. Before 0.3.0 a result had another form, and a plug-in
/// did not get the result of the plug-in before it.
pub(crate) const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// The configuration, and the part of it that each operation needs.
#[derive(Clone, Debug)]
pub(crate) struct NetworkConfiguration {
    keys: Map<String, Value>,
}

/// An interface in the result of the earlier plug-ins.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct ResultInterface {
    /// Its name.
    pub(crate) name: String,
    /// Its address.
    #[serde(default)]
    pub(crate) mac: String,
    /// The namespace that it is in; empty: the host's.
    #[serde(default)]
    pub(crate) sandbox: String,
}

/// The terms of a vif, besides its name, device and addresses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VifTerms {
    /// Its slice.
    pub(crate) slice: String,
    /// Its port, if the node has several.
    pub(crate) port: Option<String>,
    /// True if it may send only from the container's MAC address.
    pub(crate) pin_mac: bool,
    /// Guarantees and limits of the frames that it sends.
    pub(crate) send: Option<VifShareChange>,
    /// Guarantees and limits of the frames that it receives.
    pub(crate) receive: Option<VifShareChange>,
}

/// Weir's own keys.
#[derive(Debug, Deserialize)]
struct OwnKeys {
    slice: Option<String>,
    port: Option<String>,
    #[serde(default = "yes")]
    pin_mac: bool,
    #[serde(default)]
    send: ShareKeys,
    #[serde(default)]
    receive: ShareKeys,
}

/// Guarantees and limits in one direction, as a policy writes them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShareKeys {
    priority: Option<u32>,
    min_rate: Option<String>,
    rate: Option<String>,
    min_pps: Option<String>,
    max_pps: Option<String>,
    burst: Option<String>,
}

/// The values of the capability `bandwidth`: rates in bits a second, bursts in bits.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Bandwidth {
    ingress_rate: u64,
    ingress_burst: u64,
    egress_rate: u64,
    egress_burst: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuntimeConfiguration {
    bandwidth: Option<Bandwidth>,
}

impl NetworkConfiguration {
    /// Reads a configuration.
    pub(crate) fn parse(text: &str) -> Result<Self, PluginFailure> {
        let keys = serde_json::from_str::<Map<String, Value>>(text);
        let keys = keys.map_err(|error| {
            let message = format!("the network's configuration: {error}");
            PluginFailure::new(FailureCode::Decode, message)
        })?;
        Ok(Self { keys })
    }

    /// Returns the version that the configuration names, supported or not.
    pub(crate) fn version(&self) -> &str {
        self.text("cniVersion").unwrap_or("0.1.0")
    }

    /// Checks that the version is supported.
    pub(crate) fn check_version(&self) -> Result<(), PluginFailure> {
        let version = self.version();
        if VERSIONS.contains(&version) {
            return Ok(());
        }
        let message = format!("cniVersion: {version} is not one of {}", VERSIONS.join(", "));
        Err(PluginFailure::new(FailureCode::Version, message))
    }

    /// Returns the network's name.
    pub(crate) fn network(&self) -> Result<&str, PluginFailure> {
        let name = self.text("name").filter(|name| !name.is_empty());
        name.ok_or_else(|| wrong("name: is missing in the network's configuration"))
    }

    /// Returns the name of the node.
    pub(crate) fn node(&self) -> Result<&str, PluginFailure> {
        let name = match self.keys.get("node") {
            None => return Ok(NODE_DEFAULT),
            Some(name) => name.as_str().unwrap_or_default(),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if name.is_empty() || name.contains("..") || !name.bytes().all(plain) {
            return Err(wrong(format!("node: \"{name}\" is no node's name")));
        }
        Ok(name)
    }

    /// Returns the node's state folder, which has its socket; `None`: the default one.
    pub(crate) fn state(&self) -> Result<Option<&str>, PluginFailure> {
        match self.keys.get("state") {
            None => Ok(None),
            Some(Value::String(path)) if path.starts_with('/') => Ok(Some(path)),
            Some(other) => Err(wrong(format!("state: {other} is not an absolute path"))),
        }
    }

    /// Returns the result of the earlier plug-ins, unchanged.
    pub(crate) fn result_before(&self) -> Result<&Value, PluginFailure> {
        let found = self.keys.get("prevResult").filter(|result| result.is_object());
        found.ok_or_else(|| {
            wrong(
                "prevResult: is missing; weir-cni is chained behind a plug-in that makes a device \
                 on the bridge, such as `bridge`",
            )
        })
    }

    /// Returns the interfaces of that result.
    pub(crate) fn interfaces(&self) -> Result<Vec<ResultInterface>, PluginFailure> {
        let found = self.result_before()?.get("interfaces").cloned().unwrap_or_default();
        if found.is_null() {
            return Ok(Vec::new());
        }
        serde_json::from_value(found)
            .map_err(|error| wrong(format!("prevResult.interfaces: {error}")))
    }

    /// Returns the attachments that still exist, for `GC`.
    pub(crate) fn valid_attachments(&self) -> Result<Vec<Attachment>, PluginFailure> {
        #[derive(Deserialize)]
        struct Valid {
            #[serde(rename = "containerID")]
            container: String,
            ifname: String,
        }
        // Without the list, no attachment can be known to be gone.
        let list = self.keys.get(ATTACHMENTS).cloned();
        let list = list.ok_or_else(|| wrong(format!("{ATTACHMENTS}: is missing")))?;
        let list: Vec<Valid> = serde_json::from_value(list)
            .map_err(|error| wrong(format!("{ATTACHMENTS}: {error}")))?;
        let each = list.into_iter().map(|one| Attachment::new(one.container, one.ifname));
        each.collect::<Result<_, _>>().map_err(|error| wrong(format!("{ATTACHMENTS}: {error}")))
    }

    /// Returns the terms of the vif of an attachment.
    pub(crate) fn terms(&self) -> Result<VifTerms, PluginFailure> {
        self.check_keys()?;
        let read =
            |error: serde_json::Error| wrong(format!("the network's configuration: {error}"));
        let own: OwnKeys =
            serde_json::from_value(Value::Object(self.keys.clone())).map_err(read)?;
        let runtime = self.keys.get("runtimeConfig").cloned().filter(|config| !config.is_null());
        let runtime: RuntimeConfiguration = match runtime {
            Some(config) => serde_json::from_value(config)
                .map_err(|error| wrong(format!("runtimeConfig: {error}")))?,
            None => RuntimeConfiguration::default(),
        };
        let bandwidth = runtime.bandwidth.unwrap_or_default();
        let egress = ("egress", bandwidth.egress_rate, bandwidth.egress_burst);
        let ingress = ("ingress", bandwidth.ingress_rate, bandwidth.ingress_burst);
        let slice = own.slice.map_or_else(|| self.network().map(str::to_owned), Ok)?;
        Ok(VifTerms {
            slice,
            port: own.port,
            pin_mac: own.pin_mac,
            send: own.send.share("send", egress)?,
            receive: own.receive.share("receive", ingress)?,
        })
    }

    fn check_keys(&self) -> Result<(), PluginFailure> {
        let known = |key: &str| RUNTIME_KEYS.contains(&key) || OWN_KEYS.contains(&key);
        match self.keys.iter().find(|(key, _)| !known(key) && !key.contains('.')) {
            None => Ok(()),
            Some((key, value)) => {
                let message = format!("{key}: {value} is no key of weir-cni; its own are {OWN}");
                Err(PluginFailure::new(FailureCode::UnknownKey, message))
            }
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.keys.get(key)?.as_str()
    }
}

impl ShareKeys {
    /// Returns the share in one direction; `None` if it is empty. The runtime's limits are for this
    /// container, and the network's keys for each of its containers. The lower of the two rates and
    /// the lower of the two bursts apply.
    fn share(
        self,
        side: &str,
        (way, asked_bps, burst_bits): (&str, u64, u64),
    ) -> Result<Option<VifShareChange>, PluginFailure> {
        let read = |key: &str| format!("{side}.{key}");
        let rate = parsed::<BitRate>(&read("rate"), self.rate.as_deref())?;
        let burst = parsed::<ByteCount>(&read("burst"), self.burst.as_deref())?;
        let min_rate = parsed::<BitRate>(&read("min_rate"), self.min_rate.as_deref())?;
        let min_pps = parsed::<PacketRate>(&read("min_pps"), self.min_pps.as_deref())?;
        let max_pps = parsed::<PacketRate>(&read("max_pps"), self.max_pps.as_deref())?;
        if burst_bits > 0 && asked_bps == 0 {
            return Err(wrong(format!(
                "runtimeConfig.bandwidth: {way}Burst is {burst_bits}, and there is no {way}Rate"
            )));
        }
        let (rate, burst) = (rate.map(BitRate::as_bps), burst.map(ByteCount::get));
        let lower = |own: Option<u64>, asked: u64| match own {
            Some(own) if asked == 0 || own < asked => Some(own),
            _ => Some(asked).filter(|asked| *asked > 0),
        };
        let (rate, burst) = (lower(rate, asked_bps), lower(burst, burst_bits.div_ceil(8)));
        let share = VifShareChange {
            priority: self.priority.map(Some),
            min_rate_bps: min_rate.map(|rate| Some(rate.as_bps())),
            rate_bps: rate.map(Some),
            min_pps: min_pps.map(|rate| Some(rate.as_pps())),
            max_pps: max_pps.map(|rate| Some(rate.as_pps())),
            burst_bytes: burst.map(Some),
            ..VifShareChange::default()
        };
        Ok(Some(share).filter(|share| *share != VifShareChange::default()))
    }
}

fn parsed<T: FromStr<Err: Display>>(
    key: &str,
    text: Option<&str>,
) -> Result<Option<T>, PluginFailure> {
    let parse = |text: &str| text.parse().map_err(|error: T::Err| wrong(format!("{key}: {error}")));
    text.map(parse).transpose()
}

fn wrong(message: impl Into<String>) -> PluginFailure {
    PluginFailure::new(FailureCode::Configuration, message)
}

const fn yes() -> bool {
    true
}

/// Keys of the specification, and those of libcni's lists of networks.
const RUNTIME_KEYS: [&str; 13] = [
    "args",
    "capabilities",
    "cniVersion",
    "cniVersions",
    "disableCheck",
    "disableGC",
    "dns",
    "ipMasq",
    "ipam",
    "name",
    "prevResult",
    "runtimeConfig",
    "type",
];
const OWN_KEYS: [&str; 7] = ["node", "state", "slice", "port", "pin_mac", "send", "receive"];
const OWN: &str = "node, state, slice, port, pin_mac, send and receive";
const ATTACHMENTS: &str = "cni.dev/valid-attachments";
/// The default of `node.name` in a policy.
const NODE_DEFAULT: &str = "node";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn terms(keys: Value) -> Result<VifTerms, PluginFailure> {
        NetworkConfiguration::parse(&keys.to_string()).and_then(|read| read.terms())
    }

    #[test]
    fn the_lower_rate_and_burst_hold() {
        let limits = |asked: u64, burst: u64| {
            let keys = json!({
                "name": "pods",
                "send": { "min_rate": "5Mbit", "rate": "20Mbit", "burst": "50kB" },
                "runtimeConfig": {
                    "bandwidth": { "egressRate": asked, "egressBurst": burst },
                    "portMappings": [],
                },
            });
            let send = terms(keys).unwrap().send.unwrap();
            assert_eq!(send.min_rate_bps, Some(Some(5_000_000)));
            [send.rate_bps, send.burst_bytes].map(|value| value.flatten().unwrap())
        };
        assert_eq!(limits(10_000_000, 80_001), [10_000_000, 10_001]);
        assert_eq!(limits(30_000_000, 80_001), [20_000_000, 10_001]);
        // The kubelet sends this burst if it sets none.
        assert_eq!(limits(10_000_000, 2_147_483_647), [10_000_000, 50_000]);
        assert_eq!(limits(0, 0), [20_000_000, 50_000]);
    }

    #[test]
    fn ingress_is_what_the_container_receives() {
        let bandwidth = json!({ "ingressRate": 7_000_000, "ingressBurst": 0 });
        let of = terms(json!({ "name": "pods", "runtimeConfig": { "bandwidth": bandwidth } }));
        let of = of.unwrap();
        assert_eq!((of.slice.as_str(), of.send), ("pods", None));
        let receive = of.receive.unwrap();
        assert_eq!((receive.rate_bps, receive.burst_bytes), (Some(Some(7_000_000)), None));
    }

    #[test]
    fn bad_input_names_the_key_and_the_value() {
        let cases = [
            (json!({ "name": "pods", "recieve": {} }), FailureCode::UnknownKey, "recieve: {}"),
            (
                json!({ "name": "pods", "send": { "rat": "1Mbit" } }),
                FailureCode::Configuration,
                "rat",
            ),
            (
                json!({ "name": "pods", "send": { "rate": "fast" } }),
                FailureCode::Configuration,
                "send.rate: \"fast\" is not a bit rate",
            ),
            (json!({}), FailureCode::Configuration, "name: is missing"),
            (
                json!({ "name": "p", "runtimeConfig": { "bandwidth": { "egressBurst": 8 } } }),
                FailureCode::Configuration,
                "egressBurst is 8",
            ),
            (
                json!({ "name": "p", "runtimeConfig": { "bandwidth": { "egressRate": -1 } } }),
                FailureCode::Configuration,
                "runtimeConfig: invalid value: integer `-1`",
            ),
        ];
        for (keys, code, text) in cases {
            let failure = terms(keys.clone()).unwrap_err();
            assert_eq!(failure.code, code, "{keys}: {failure}");
            assert!(failure.message.contains(text), "{keys}: {failure}");
        }
        assert!(terms(json!({ "name": "pods", "example.org/key": 1 })).is_ok());
    }

    #[test]
    fn versions_and_lists_are_checked() {
        let read = |keys: Value| NetworkConfiguration::parse(&keys.to_string()).unwrap();
        assert!(read(json!({ "cniVersion": "1.0.0" })).check_version().is_ok());
        for keys in [json!({}), json!({ "cniVersion": "0.2.0" }), json!({ "cniVersion": 1 })] {
            assert_eq!(read(keys).check_version().unwrap_err().code, FailureCode::Version);
        }
        let failure = NetworkConfiguration::parse("[]").unwrap_err();
        assert_eq!(failure.code, FailureCode::Decode);
        let none = read(json!({ "name": "pods" }));
        assert!(none.valid_attachments().is_err() && none.interfaces().is_err());
        let valid = json!({ ATTACHMENTS: [{ "containerID": "a", "ifname": "eth0" }] });
        assert_eq!(read(valid).valid_attachments().unwrap().len(), 1);
        assert!(read(json!({ "node": "../x" })).node().is_err());
        assert!(read(json!({ "state": "run" })).state().is_err());
    }
}
