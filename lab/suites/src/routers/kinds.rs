// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kinds of routers, and the ways in which they are held.

use weir_policy::ControllerKind;

/// The ways in which a running node holds routers, to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldingMeans {
    /// Not at all.
    Without,
    /// By their caps alone, with Weir's controller.
    Cap,
    /// By Weir's default controller.
    Weir,
}

impl HoldingMeans {
    /// All, in the order in which they are tried.
    pub(crate) const ALL: [Self; 3] = [Self::Without, Self::Cap, Self::Weir];

    /// The ways that hold anything.
    pub(crate) const HELD: [Self; 2] = [Self::Cap, Self::Weir];

    /// Returns its name on a page.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Without => "without",
            Self::Cap => "Weir, cap alone",
            Self::Weir => "Weir",
        }
    }

    /// Returns its name in identifiers.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Without => "without",
            Self::Cap => "cap",
            Self::Weir => "weir",
        }
    }

    /// Returns the controller.
    pub(crate) const fn controller(self) -> Option<ControllerKind> {
        match self {
            Self::Without => None,
            Self::Cap => Some(ControllerKind::FeedForward),
            Self::Weir => Some(ControllerKind::Combined),
        }
    }
}

/// The kind of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterKind {
    /// A process, under the CPU quota of a control group.
    Process,
    /// A namespace, under deadline budgets of its devices' NAPI threads.
    Namespace,
}

impl RouterKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Process, Self::Namespace];

    /// Returns its name in identifiers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Namespace => "namespace",
        }
    }
}
