// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real-time shares of processors: who is admitted, and what each router may use.
//!
//! **Problem.** A router that must answer within 5 ms needs its share of the processor in time, and
//! not only on average. It runs as a *constant bandwidth server* (CBS: Abeni, Buttazzo,
//! *Integrating Multimedia Applications in Hard Real-Time Systems*, 1998) under earliest deadline
//! first, which is what Linux calls `SCHED_DEADLINE`: a budget in each period, with a deadline.
//!
//! **Idea.** Deadlines hold only if the whole set was admitted. The kernel checks the sum of
//! budget ÷ period alone, which is not sufficient on several processors, nor where a deadline is
//! shorter than its period. [`admit`] therefore checks the sum of *densities* by the test of
//! Goossens, Funk and Baruah (*Priority-Driven Scheduling of Periodic Task Systems on
//! Multiprocessors*, 2003).
//!
//! **One budget, two wishes.** A real-time class guarantees time; a control loop caps it. Both meet
//! in one [`Allotment`] a router, of which [`AllotmentLedger`] keeps the sums.
//!
//! Periodic and aperiodic routers are served alike: a CBS gives a thread time only while it can
//! run, so that one that waits for an event costs nothing.

mod admission;
mod advice;
mod allotment;

pub use admission::{
    AdmissionBound, AdmissionRefusal, ProcessorPool, TimingDemand, admit, density_bound,
};
pub use advice::{Activation, ActivationPattern, ClassAdvice, advise};
pub use allotment::{Allotment, AllotmentLedger, CeilingRefusal};
