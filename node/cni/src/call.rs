// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The call of the runtime: the operation and the attachment that it is for (CNI specification,
//! *Parameters*).

use crate::failure::{FailureCode, PluginFailure};

/// The operation that the runtime asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// An attachment is new.
    Add,
    /// An attachment is to be compared with what ADD left.
    Check,
    /// An attachment is gone.
    Del,
    /// All attachments except the named ones are gone.
    Gc,
    /// The runtime is about to add attachments.
    Status,
    /// The runtime asks for the supported versions.
    Version,
}

/// An attachment: one interface of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    /// The runtime's name for the container.
    pub(crate) container: String,
    /// The interface's name inside.
    pub(crate) interface: String,
}

/// A function that reads a variable of the environment. An empty variable counts as missing.
pub(crate) type Variables<'a> = dyn Fn(&str) -> Option<String> + 'a;

impl Operation {
    pub(crate) fn from_variables(get: &Variables<'_>) -> Result<Self, PluginFailure> {
        let word = needed(get, "CNI_COMMAND")?;
        match word.as_str() {
            "ADD" => Ok(Self::Add),
            "CHECK" => Ok(Self::Check),
            "DEL" => Ok(Self::Del),
            "GC" => Ok(Self::Gc),
            "STATUS" => Ok(Self::Status),
            "VERSION" => Ok(Self::Version),
            _ => {
                let known = "ADD, CHECK, DEL, GC, STATUS or VERSION";
                Err(wrong(format!("CNI_COMMAND: \"{word}\" is not {known}")))
            }
        }
    }
}

impl Attachment {
    pub(crate) fn from_variables(get: &Variables<'_>) -> Result<Self, PluginFailure> {
        let container = needed(get, "CNI_CONTAINERID")?;
        let interface = needed(get, "CNI_IFNAME")?;
        Self::new(container, interface).map_err(wrong)
    }

    /// Checks both names by the rules of the specification and of the kernel.
    pub(crate) fn new(container: String, interface: String) -> Result<Self, String> {
        let begins = |text: &str| text.starts_with(|first: char| first.is_ascii_alphanumeric());
        let all =
            |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        if !begins(&container) || !all(&container) || container.len() > CONTAINER_MAX {
            return Err(format!(
                "container \"{container}\": 1 to {CONTAINER_MAX} letters, digits, dots, dashes and \
                 underscores, the first one a letter or a digit"
            ));
        }
        let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
        let dots = interface == "." || interface == "..";
        if interface.is_empty() || interface.len() > DEVICE_MAX || dots || interface.contains(bad) {
            return Err(format!(
                "interface \"{interface}\": 1 to {DEVICE_MAX} characters, none of them a slash, \
                 colon or space"
            ));
        }
        Ok(Self { container, interface })
    }
}

/// Returns the path of the container's network namespace.
pub(crate) fn namespace(get: &Variables<'_>) -> Result<String, PluginFailure> {
    needed(get, "CNI_NETNS")
}

fn needed(get: &Variables<'_>, name: &str) -> Result<String, PluginFailure> {
    let value = get(name).filter(|value| !value.is_empty());
    value.ok_or_else(|| wrong(format!("{name}: is missing in the environment")))
}

fn wrong(message: String) -> PluginFailure {
    PluginFailure::new(FailureCode::Environment, message)
}

/// The specification has no bound; runtimes' names have 64 characters.
const CONTAINER_MAX: usize = 256;
/// `IFNAMSIZ` without its zero.
const DEVICE_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_containers_and_interfaces_are_checked() {
        let attachment = |container: &str, interface: &str| {
            Attachment::new(container.to_owned(), interface.to_owned())
        };
        assert!(attachment("0a1b_c.d-e", "eth0").is_ok());
        for container in ["", "-a", "a/b", "a b", &"x".repeat(257)] {
            assert!(attachment(container, "eth0").is_err(), "{container}");
        }
        for interface in ["", ".", "..", "a/b", "a b", "a:b", "sixteencharacter"] {
            assert!(attachment("pod", interface).is_err(), "{interface}");
        }
    }

    #[test]
    fn an_unknown_command_names_the_known_ones() {
        let failure = Operation::from_variables(&|_| Some("ADDD".to_owned())).unwrap_err();
        assert_eq!(failure.code, FailureCode::Environment);
        assert!(failure.message.contains("\"ADDD\" is not ADD, CHECK"), "{failure}");
        let failure = Operation::from_variables(&|_| Some(String::new())).unwrap_err();
        assert!(failure.message.contains("CNI_COMMAND: is missing"), "{failure}");
    }
}
