// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounds the CPU time of a router: control groups for processes and guests, deadline budgets for
//! the kernel's own threads, Xen's schedulers for its guests. Which of them a host has is found by
//! trying ([`probe`]); all stand behind one trait, [`Actuator`].

mod actuator;
mod budget;
mod budgets;
pub mod cgroup;
mod deadline;
pub mod napi;
mod napi_threads;
mod probe;
mod quota;
mod rtds;
mod threaded;
mod threads;
mod xl;
pub mod xl_text;

pub use actuator::{Actuator, CapError, PERIODS_LEAST, check_period};
pub use budget::{Need, RUNTIME_LEAST, runtime, split};
pub use budgets::{BudgetUse, Budgets, GuaranteeError, PERCENT_GRANTED, PERIOD, THREADS_MAX};
pub use cgroup::CgroupCap;
pub use deadline::DeadlineCap;
pub use probe::{ActuatorProbe, MissingActuator, probe};
pub use quota::{PERIOD_US, PERIOD_US_MAX, QUOTA_US_MIN, Quota, QuotaShape};
pub use rtds::{RtdsBudget, RtdsClass, XenRoom};
pub use threaded::{PATIENCE, ThreadedActuator};
pub use threads::BudgetUser;
pub use xl::XlCap;
