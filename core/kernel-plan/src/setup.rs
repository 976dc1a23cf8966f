// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All objects of a data plane, and the numbers that they are known by.
//!
//! A number stays with its owner as long as the owner stays in its place, so that a live change of
//! one tenant leaves the classes of all others alone. A number that became free is used again by a
//! later change only: within one change it would stand for two classes.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::held::KernelProblem;
use crate::object::{KernelObject, ObjectKey};

/// All objects of a data plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSetup {
    /// The numbers of slices, routers and vifs, by kind, name and place.
    pub owners: BTreeMap<String, u16>,
    /// The objects, each after those that it depends on.
    pub objects: Vec<KernelObject>,
}

/// Most slices, routers and vifs of a node together: the size of the programs' tables.
pub const OWNERS_MAX: u16 = 1024;

/// The first number of an owner; those below are the link's and of frames that no vif sent.
pub(crate) const OWNER_FIRST: u16 = 0x10;

impl KernelSetup {
    /// Gives each of `owners` a number below `end`: the one that it has, or a free one.
    pub(crate) fn numbers(
        &self,
        owners: &[String],
        end: u16,
    ) -> Result<BTreeMap<String, u16>, KernelProblem> {
        let mut taken: BTreeSet<u16> = self.owners.values().copied().collect();
        let mut numbers = BTreeMap::new();
        for owner in owners {
            let number = match self.owners.get(owner) {
                Some(number) => *number,
                None => {
                    let free = (OWNER_FIRST..end).find(|number| !taken.contains(number));
                    free.ok_or_else(|| full(owners.len(), end))?
                }
            };
            taken.insert(number);
            numbers.insert(owner.to_string(), number);
        }
        Ok(numbers)
    }

    /// Returns the objects by identity, for a caller that looks up many of them.
    #[must_use]
    pub fn by_key(&self) -> BTreeMap<ObjectKey<'_>, &KernelObject> {
        self.objects.iter().map(|object| (object.key(), object)).collect()
    }

    /// Returns the object of that identity.
    #[must_use]
    pub fn find(&self, key: ObjectKey<'_>) -> Option<&KernelObject> {
        self.objects.iter().find(|object| object.key() == key)
    }
}

fn full(wanted: usize, end: u16) -> KernelProblem {
    let most = end - OWNER_FIRST;
    KernelProblem::new(
        "node.dataplane",
        format!(
            "{wanted} slices, routers and vifs; there is room for {most}, those included that \
             this change removes"
        ),
    )
}
