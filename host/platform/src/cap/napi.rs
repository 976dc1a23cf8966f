// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers for which the kernel forwards: its threads that do a device's work can be given a
//! budget.
//!
//! Forwarding in soft interrupts is charged to no router. With `threaded` on, a thread
//! `napi/DEVICE-ID` of the kernel's own does all receive and forward work of a device. A veth has
//! NAPI only while GRO is on at this end and its peer does not segment late (TSO, GSO).
//!
//! Source: Linux, Documentation/networking/napi.rst, section Threaded NAPI.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use super::napi_threads;
use crate::error::HostError;
use crate::host::Change;
use crate::netns;
use crate::process::{self, Identity, Stat};
use crate::purpose::ChangePurpose;
use crate::run::{Command, Platform};
use crate::undo::Undo;

/// A device of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NapiDevice {
    /// Its name.
    pub device: String,
    /// The name of its namespace; `None`: that of this process.
    pub namespace: Option<String>,
    /// The other end of a veth, with its namespace.
    pub peer: Option<(String, Option<String>)>,
}

/// The changes that give a device NAPI threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NapiPlan {
    /// The changes, for [`crate::host::apply`]; empty where the device is ready.
    pub changes: Vec<Change>,
    /// True if the device has no NAPI threads until the changes are made; then [`new_threads`]
    /// finds them.
    pub starts_threads: bool,
}

/// Plans how to give a device NAPI threads of its own. Reads only.
///
/// # Errors
/// A name is malformed, the device does not exist, or the kernel has no NAPI threads.
pub fn threaded(on: &dyn Platform, device: &NapiDevice) -> Result<NapiPlan, HostError> {
    check_name(&device.device)?;
    let mut changes = Vec::new();
    if let Some((peer, namespace)) = &device.peer {
        check_name(peer)?;
        changes.extend(offload(on, &device.device, device.namespace.as_deref(), "gro", true)?);
        for key in ["tso", "gso"] {
            changes.extend(offload(on, peer, namespace.as_deref(), key, false)?);
        }
    }
    let file = format!("/sys/class/net/{}/threaded", device.device);
    let shell = |script: String| in_sysfs(device.namespace.as_deref(), &script);
    let is_on = on.run(&shell(format!("cat {file}")))?;
    let starts_threads = is_on.trim() == "0";
    if starts_threads {
        let write = |value| shell(format!("echo {value} > {file}"));
        changes.push(Change {
            purpose: ChangePurpose::Other,
            what: format!("{}: threads of its own", device.device),
            run: vec![write("1")],
            undo: Undo::run(write("0")),
        });
    }
    Ok(NapiPlan { changes, starts_threads })
}

/// Turns an offload on or off, if it is not so already.
fn offload(
    on: &dyn Platform,
    device: &str,
    namespace: Option<&str>,
    key: &str,
    want: bool,
) -> Result<Option<Change>, HostError> {
    let read = Command::new("ethtool", ["-k", device]).maybe_in_namespace(namespace);
    let text = on.run(&read)?;
    let long = match key {
        "gro" => "generic-receive-offload",
        "gso" => "generic-segmentation-offload",
        _ => "tcp-segmentation-offload",
    };
    let value = text.lines().find_map(|line| line.trim().strip_prefix(long)?.strip_prefix(": "));
    let is_on = value.is_some_and(|value| value.starts_with("on"));
    if value.is_none() || is_on == want {
        return Ok(None);
    }
    let set = |on: bool| {
        let value = if on { "on" } else { "off" };
        Command::new("ethtool", ["-K", device, key, value]).maybe_in_namespace(namespace)
    };
    let undo = Undo::run(set(is_on));
    let what = format!("{device}: {key} {}", if want { "on" } else { "off" });
    Ok(Some(Change { purpose: ChangePurpose::Other, what, run: vec![set(want)], undo }))
}

/// Returns a command that runs a script with the sysfs of a namespace, which `ip netns exec`
/// mounts.
fn in_sysfs(namespace: Option<&str>, script: &str) -> Command {
    match namespace {
        Some(name) => Command::new("ip", ["netns", "exec", name, "sh", "-c", script]),
        None => Command::new("sh", ["-c", script]),
    }
}

/// Returns the NAPI threads of all devices with this name, in all namespaces.
#[must_use]
pub fn threads_named(device: &str) -> BTreeSet<u32> {
    let prefix = format!("napi/{device}-");
    let is_one = |pid: &u32| {
        Stat::of(*pid).is_some_and(|stat| {
            let id = stat.name.strip_prefix(&prefix).unwrap_or_default();
            stat.parent == KTHREADD && !id.is_empty() && id.bytes().all(|c| c.is_ascii_digit())
        })
    };
    process::all().into_iter().filter(is_one).collect()
}

/// Returns the threads that a device got since `before`, the result of [`threads_named`] before the
/// changes of [`threaded`] were made. Other namespaces may have devices of the same name.
///
/// # Errors
/// There are none after a second: the device is down, or has no NAPI.
pub fn new_threads(device: &str, before: &BTreeSet<u32>) -> Result<Vec<Identity>, HostError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let now = threads_named(device);
        let new: Vec<Identity> =
            now.difference(before).filter_map(|pid| Identity::of(*pid)).collect();
        if !new.is_empty() {
            return Ok(new);
        }
        if Instant::now() >= until {
            return Err(HostError::Refused(format!(
                "device {device}: no thread napi/{device}-… came up within {} ms; is it up, and \
                 gro on?",
                PATIENCE.as_millis()
            )));
        }
        thread::sleep(POLL);
    }
}

/// Returns the threads of a device that has them already.
///
/// # Errors
/// There are none, or there is no such device or namespace. Before Linux 6.8: there are several
/// threads of that name, which may be of several devices.
pub fn threads_of(device: &NapiDevice) -> Result<Vec<Identity>, HostError> {
    let name = &device.device;
    let listed = match &device.namespace {
        Some(namespace) => netns::in_namespace(namespace, || napi_threads::listed(name))?,
        None => napi_threads::listed(name),
    };
    let found: Vec<Identity> = match listed? {
        Some(threads) => threads.into_iter().filter_map(Identity::of).collect(),
        None => by_name(name)?,
    };
    match found.is_empty() {
        true => Err(HostError::Refused(format!("device {name}: it has no thread of its own"))),
        false => Ok(found),
    }
}

/// Returns the thread of the only device of that name.
fn by_name(device: &str) -> Result<Vec<Identity>, HostError> {
    let found: Vec<Identity> = threads_named(device).into_iter().filter_map(Identity::of).collect();
    match found.len() {
        0 | 1 => Ok(found),
        count => Err(HostError::Refused(format!(
            "device {device}: {count} threads of that name, which this kernel does not list by \
             device"
        ))),
    }
}

/// Checks a name, which goes into a line of the shell.
fn check_name(name: &str) -> Result<(), HostError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let fits = (1..=15).contains(&name.len());
    match fits && name.chars().all(plain) && !name.starts_with(['-', '.']) {
        true => Ok(()),
        false => Err(HostError::Refused(format!(
            "device {name:?}: its threads can be capped where its name is 1 to 15 letters, digits \
             or '-_.@'"
        ))),
    }
}

/// The parent of the kernel's threads.
const KTHREADD: u32 = 2;
const PATIENCE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Recorder;

    const FEATURES: &str = "Features for v0:\ntcp-segmentation-offload: on\n\
        \ttx-tcp-segmentation: on\ngeneric-segmentation-offload: on [requested on]\n\
        generic-receive-offload: off\n";

    fn router() -> NapiDevice {
        let peer = Some(("p0".to_owned(), None));
        NapiDevice { device: "v0".to_owned(), namespace: Some("vr".to_owned()), peer }
    }

    #[test]
    fn a_veth_gets_threads_and_its_peer_no_late_segments() {
        let answers = [FEATURES, FEATURES, FEATURES, "0\n"].map(|text| Ok(text.to_owned()));
        let recorder = Recorder::answering(answers);
        let NapiPlan { changes, starts_threads } = threaded(&recorder, &router()).unwrap();
        assert!(starts_threads);
        let lines: Vec<String> = changes.iter().map(|one| one.run[0].to_string()).collect();
        let sysfs = "ip netns exec vr sh -c 'echo 1 > /sys/class/net/v0/threaded'";
        let expected = [
            "nsenter --net=/run/netns/vr ethtool -K v0 gro on",
            "ethtool -K p0 tso off",
            "ethtool -K p0 gso off",
            sysfs,
        ];
        assert_eq!(lines, expected);
        let Undo::Run(back) = &changes[3].undo else { panic!() };
        assert_eq!(back[0].to_string(), sysfs.replace("echo 1", "echo 0"));
        assert_eq!(recorder.commands().len(), 4, "reads only");
    }

    #[test]
    fn a_device_that_has_threads_is_left_alone() {
        let done = FEATURES
            .replace(": on", ": off")
            .replace("receive-offload: off", "receive-offload: on");
        let answers = [&done, &done, &done, "1\n"].map(|text| Ok(text.to_owned()));
        let plan = threaded(&Recorder::answering(answers), &router()).unwrap();
        assert_eq!(plan, NapiPlan { changes: Vec::new(), starts_threads: false });
        for name in ["", "a b", "x;y", "-k", "sixteen-letters-"] {
            let device = NapiDevice { device: name.to_owned(), namespace: None, peer: None };
            assert!(threaded(&Recorder::default(), &device).is_err(), "{name:?}");
        }
        assert!(by_name("no-such-0").unwrap().is_empty());
    }
}
