// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operations.
//!
//! A vif's name follows from the network's name and the attachment. So `DEL` and `GC` find the vif
//! without a record of their own, and without the container's namespace, which may be gone.

use std::fmt::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use weir_api_types::change::{ChangeView, NewVif};
use weir_api_types::error::ErrorCode;
use weir_api_types::policy::VifView;
use weir_api_types::status::{Health, NodeStatus};
use weir_client::{Client, ClientError, Method, escaped};
use weir_platform::StateDir;
use weir_platform::run::Platform;

use crate::call::{Attachment, Operation, Variables, namespace};
use crate::configuration::{NetworkConfiguration, VERSIONS};
use crate::device::HostDevice;
use crate::failure::{FailureCode, PluginFailure};

/// Executes a call. Returns the answer that the runtime reads on standard output, if any.
pub(crate) fn execute(
    operation: Operation,
    configuration: &NetworkConfiguration,
    get: &Variables<'_>,
    on: &dyn Platform,
) -> Result<Option<Value>, PluginFailure> {
    if operation == Operation::Version {
        let newest = VERSIONS.last();
        return Ok(Some(json!({ "cniVersion": newest, "supportedVersions": VERSIONS })));
    }
    configuration.check_version()?;
    let network = AttachedNetwork::open(configuration)?;
    match operation {
        Operation::Add => {
            let attachment = Attachment::from_variables(get)?;
            network.add(&attachment, &namespace(get)?, on)?;
            Ok(Some(configuration.result_before()?.clone()))
        }
        Operation::Check => {
            let attachment = Attachment::from_variables(get)?;
            network.check(&attachment, &namespace(get)?, on).map(|()| None)
        }
        Operation::Del => network.remove(&Attachment::from_variables(get)?).map(|()| None),
        Operation::Gc => network.garbage_collect().map(|()| None),
        Operation::Status => network.status().map(|()| None),
        Operation::Version => Ok(None),
    }
}

/// A network, and the node on which its containers' interfaces are vifs.
struct AttachedNetwork<'a> {
    configuration: &'a NetworkConfiguration,
    /// The beginning of the names of its vifs.
    prefix: String,
    client: Client,
}

impl<'a> AttachedNetwork<'a> {
    fn open(configuration: &'a NetworkConfiguration) -> Result<Self, PluginFailure> {
        let state = configuration.state()?;
        let state = state.map_or_else(StateDir::from_env, |path| StateDir::at(Path::new(path)));
        let socket = state.node_socket(configuration.node()?);
        let prefix = format!("cni-{}-", digits(NETWORK_DIGITS, &[configuration.network()?]));
        Ok(Self { configuration, prefix, client: Client::new(&socket) })
    }

    /// Returns the name of an attachment's vif.
    fn vif(&self, attachment: &Attachment) -> String {
        let parts = [attachment.container.as_str(), &attachment.interface];
        format!("{}{}", self.prefix, digits(ATTACHMENT_DIGITS, &parts))
    }

    fn add(
        &self,
        attachment: &Attachment,
        namespace: &str,
        on: &dyn Platform,
    ) -> Result<(), PluginFailure> {
        let terms = self.configuration.terms()?;
        let interfaces = self.configuration.interfaces()?;
        let device = HostDevice::find(on, namespace, &attachment.interface, &interfaces)?;
        let name = self.vif(attachment);
        let new = NewVif {
            name: name.clone(),
            slice: terms.slice,
            port: terms.port,
            device: Some(device.name.clone()),
            mac: terms.pin_mac.then_some(device.mac).into_iter().collect(),
            send: terms.send,
            receive: terms.receive,
            ..NewVif::default()
        };
        let _made: ChangeView = self.client.ask(Method::POST, "/v1/vifs", Some(&new))?;
        // While the vif waits for its device, no limit holds: the device is on no bridge of the
        // node.
        for _ in 0..TAKEN_TRIES {
            if !self.waits(&name)? {
                return Ok(());
            }
            thread::sleep(TAKEN_PAUSE);
        }
        self.remove(attachment)?;
        let message = format!(
            "device {}: the node did not take it; is it on the bridge of the vif's port?",
            device.name
        );
        Err(PluginFailure::new(FailureCode::Refused, message))
    }

    fn check(
        &self,
        attachment: &Attachment,
        namespace: &str,
        on: &dyn Platform,
    ) -> Result<(), PluginFailure> {
        let interfaces = self.configuration.interfaces()?;
        let device = HostDevice::find(on, namespace, &attachment.interface, &interfaces)?.name;
        let name = self.vif(attachment);
        let vif: VifView = self.client.get(&format!("/v1/vifs/{}", escaped(&name)))?;
        let refused = |message| Err(PluginFailure::new(FailureCode::Refused, message));
        if vif.device != device {
            let message = format!("vif {name}: its device is {}, not {device}", vif.device);
            return refused(message);
        }
        match self.waits(&name)? {
            true => refused(format!("vif {name}: it waits for device {device}")),
            false => Ok(()),
        }
    }

    /// Returns true if a vif waits for its device or is missing.
    fn waits(&self, name: &str) -> Result<bool, PluginFailure> {
        let status: NodeStatus = self.client.get("/v1/status")?;
        Ok(status.vif(name).is_none_or(|vif| vif.waiting))
    }

    /// Removes an attachment's vif. A missing vif is no error.
    fn remove(&self, attachment: &Attachment) -> Result<(), PluginFailure> {
        self.remove_vif(&self.vif(attachment))
    }

    fn remove_vif(&self, name: &str) -> Result<(), PluginFailure> {
        let path = format!("/v1/vifs/{}", escaped(name));
        match self.client.ask::<Value>(Method::DELETE, &path, None::<&()>) {
            Ok(_) => Ok(()),
            Err(ClientError::Refused(refusal)) if refusal.code == ErrorCode::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the network's vifs whose attachments are gone.
    fn garbage_collect(&self) -> Result<(), PluginFailure> {
        let valid = self.configuration.valid_attachments()?;
        let valid: Vec<String> = valid.iter().map(|attachment| self.vif(attachment)).collect();
        let status: NodeStatus = self.client.get("/v1/status")?;
        let own = status.vifs.iter().map(|vif| &vif.name).filter(|name| self.is_own(name));
        // A failure does not keep the other vifs from being removed; the first error is returned.
        let all = own.filter(|name| !valid.contains(name)).map(|name| self.remove_vif(name));
        all.fold(Ok(()), Result::and)
    }

    fn is_own(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&self.prefix);
        rest.is_some_and(|rest| rest.len() == ATTACHMENT_DIGITS)
    }

    fn status(&self) -> Result<(), PluginFailure> {
        let unavailable = |message| PluginFailure::new(FailureCode::NotAvailable, message);
        let health = self.client.get::<Health>("/v1/health");
        let health = health.map_err(|error| unavailable(error.to_string()))?;
        match health.forwards {
            true => Ok(()),
            false => Err(unavailable(health.findings.join("; "))),
        }
    }
}

/// Returns the first hexadecimal digits of the digest of the parts.
fn digits(count: usize, parts: &[&str]) -> String {
    // A zero byte separates the parts, since no name of a container or interface contains one.
    let sum = digest(&SHA256, parts.join("\0").as_bytes());
    let mut text = String::new();
    for byte in sum.as_ref() {
        let _written = write!(text, "{byte:02x}");
    }
    text.truncate(count);
    text
}

/// Digits for a network. Two given networks have the same digits with a probability of 2⁻³².
const NETWORK_DIGITS: usize = 8;
/// Digits for an attachment. Among a thousand attachments, two have the same digits with a
/// probability of 2⁻⁴⁵; the node refuses the second.
const ATTACHMENT_DIGITS: usize = 16;
/// The most looks for the vif's device: two seconds in all. A node follows its devices within a
/// tenth of a second.
const TAKEN_TRIES: u32 = 40;
const TAKEN_PAUSE: Duration = Duration::from_millis(50);
