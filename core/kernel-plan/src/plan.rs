// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way from one setup to another.
//!
//! New objects are made first, others are changed next, and those left over are removed last:
//! a vif that moves has its new class before its frames are marked for it, and its old one until
//! after. So no frame is without a class meanwhile.

use alloc::vec::Vec;

use crate::object::KernelObject;
use crate::setup::KernelSetup;

/// The way from one setup to another, in steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelPlan {
    /// The steps, in this order.
    pub steps: Vec<PlanStep>,
}

/// One step: a command, or an update of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    /// The object before; `None`: it is made.
    pub before: Option<KernelObject>,
    /// The object after; `None`: it is removed.
    pub after: Option<KernelObject>,
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanAction {
    /// The object is made.
    Add,
    /// Its values change.
    Change,
    /// It is removed.
    Remove,
}

impl KernelPlan {
    /// Returns the way from `before` to `after`; without a step if they are equal.
    #[must_use]
    pub fn between(before: &KernelSetup, after: &KernelSetup) -> Self {
        let (old, new) = (before.by_key(), after.by_key());
        let mut steps = Vec::new();
        for object in &after.objects {
            let before = old.get(&object.key()).copied();
            if before != Some(object) {
                steps.push(PlanStep { before: before.cloned(), after: Some(object.clone()) });
            }
        }
        for object in before.objects.iter().rev() {
            if !new.contains_key(&object.key()) {
                steps.push(PlanStep { before: Some(object.clone()), after: None });
            }
        }
        Self { steps }
    }

    /// Returns the way to `after` from a setup whose values are not known, since a plan was under
    /// way: what is there already is set again. A device or a scheduler stays, since it has no
    /// values.
    #[must_use]
    pub fn renewing(before: &KernelSetup, after: &KernelSetup) -> Self {
        let mut plan = Self::between(before, after);
        let same = |object: &&KernelObject| before.find(object.key()) == Some(*object);
        let again = after.objects.iter().filter(same);
        let again = again.filter(|object| !object.is_owned());
        let set = |object: &KernelObject| PlanStep {
            before: Some(object.clone()),
            after: Some(object.clone()),
        };
        let news = plan.steps.iter().take_while(|step| step.after.is_some()).count();
        plan.steps.splice(news..news, again.map(set));
        plan
    }

    /// Returns the way back.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self { steps: self.steps.iter().rev().map(PlanStep::reversed).collect() }
    }

    /// Returns true if there is nothing to do.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl PlanStep {
    /// Returns the step back.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self { before: self.after.clone(), after: self.before.clone() }
    }

    /// Returns the kind of the step.
    #[must_use]
    pub const fn action(&self) -> PlanAction {
        match (&self.before, &self.after) {
            (None, _) => PlanAction::Add,
            (Some(_), Some(_)) => PlanAction::Change,
            (Some(_), None) => PlanAction::Remove,
        }
    }

    /// Returns the object as it is to be, or as it was if it is removed.
    #[must_use]
    pub const fn object(&self) -> Option<&KernelObject> {
        match &self.after {
            Some(object) => Some(object),
            None => self.before.as_ref(),
        }
    }
}
