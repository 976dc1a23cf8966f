// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The values of a policy that no change may touch while the node runs.
//!
//! At the start the pool of frames is made, the worker's processor time is reserved, and the bounds
//! of API and report are set. A change of such a value is refused by its key: a node that accepted
//! a value without following it would mislead its operator.

use weir_policy::{Api, Policy};

/// A value that is fixed while the node runs, and differs in another policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FixedValue {
    /// This key of the table `node`.
    #[error("node.{0}: it is fixed while the node runs; start the node again")]
    Node(&'static str),
    /// The table `report`.
    #[error("report: it is fixed while the node runs; start the node again")]
    Report,
    /// The table `api`, but for its tokens.
    #[error("api: but for its tokens it is fixed while the node runs; start it again")]
    Api,
}

impl FixedValue {
    /// Checks that `new` changes no fixed value of `old`.
    ///
    /// # Errors
    /// The first fixed value that it changes.
    pub fn check(old: &Policy, new: &Policy) -> Result<(), Self> {
        let keys = [
            ("name", old.node.name == new.node.name),
            ("idle", old.node.idle == new.node.idle),
            ("worker_cpu", old.node.worker_cpu == new.node.worker_cpu),
            ("reservation", old.node.reservation == new.node.reservation),
            ("frames", old.node.frames == new.node.frames),
            ("frame_size", old.node.frame_size == new.node.frame_size),
        ];
        let bounds = |policy: &Policy| Api { tokens: Vec::new(), ..policy.api.clone() };
        if old.report != new.report {
            return Err(Self::Report);
        }
        if bounds(old) != bounds(new) {
            return Err(Self::Api);
        }
        let changed = keys.into_iter().find(|(_, same)| !same);
        changed.map_or(Ok(()), |(key, _)| Err(Self::Node(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_what_is_fixed_is_refused_by_its_key() {
        let policy = Policy::new("edge");
        assert_eq!(FixedValue::check(&policy, &policy), Ok(()));
        type Change = fn(&mut Policy);
        let changes: [(&str, Change); 4] = [
            ("node.name", |policy| policy.node.name = "core".to_owned()),
            ("node.idle", |policy| policy.node.idle = weir_policy::Idle::Spin),
            ("node.worker_cpu", |policy| policy.node.worker_cpu = Some(7)),
            ("node.frames", |policy| policy.node.frames += 1),
        ];
        for (key, change) in changes {
            let mut changed = policy.clone();
            change(&mut changed);
            let refused = FixedValue::check(&policy, &changed).unwrap_err().to_string();
            assert!(refused.starts_with(key), "{key}: {refused}");
        }
    }
}
