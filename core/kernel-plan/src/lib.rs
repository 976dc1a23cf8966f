// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's data plane as a plan. Input: a policy and the facts of a host. Output: the steps
//! that make the host enforce the policy.
//!
//! **Problem.** Most hosts have a bridge that must stay. The kernel can schedule, police and count
//! its frames, but only in terms of its own: queueing disciplines, classes, tables of programs.
//!
//! **Idea.** A policy is compiled to *objects* ([`KernelObject`]), each with an identity and
//! values. All objects together are a [`KernelSetup`]. A [`KernelPlan`] leads from one setup to
//! another: objects to add, to change and to remove, each step with its undo. A start is the plan
//! from an empty setup, a live change the plan from the present one, and an undo a plan reversed.
//!
//! **The path of a frame.** A program at the vif's device ([`Hook::Send`]) drops frames that are
//! spoofed or beyond a limit, and writes the vif's class into the frame (`skb->priority`). The
//! bridge forwards the frame as always. At the port's device, a tree of HTB or HFSC takes the class
//! from `skb->priority`, so it needs no filter. A second program at the receiving vif
//! ([`Hook::Receive`]) drops frames of other slices and frames beyond the receiver's limits; a
//! small tree behind it holds the receiver's rate.
//!
//! ```text
//! vif's device ─► program: spoofing, limits, class ─► bridge ─┬─► tree at the port's device
//!                                                             └─► program of another vif ─► vif
//! port's device ─► program: addresses, class ─► tree at an ifb ─► bridge ─► program ─► vif
//! ```
//!
//! **Commands alone.** A host that loads no programs, such as one reached over SSH, gets the same
//! trees. VLAN devices, bridges and filters replace the programs there ([`compile_commands`]).
//!
//! A plan contains no system calls: one plan can be applied here, sent to another host, printed, or
//! applied to a model in a test.
#![no_std]

extern crate alloc;

mod bucket;
mod commands;
mod compile;
mod facts;
mod faults;
mod held;
mod inbound;
mod object;
mod plan;
mod setup;
mod shares;
mod terms;
mod text;
mod trees;

pub use bucket::BucketTerms;
pub use commands::{CommandsOnly, compile_commands};
pub use compile::{CompiledPolicy, compile};
pub use facts::{BridgePortFacts, DeviceFault, HookKind, HostFacts, QdiscSupport};
pub use held::{KernelProblem, REFUSED_KEYS, UnheldKey};
pub use object::{
    BridgeObject, BucketObject, BucketUnit, ClassObject, ClsactObject, ExitObject, FilterObject,
    Hook, InboundObject, JoinedObject, KernelObject, LeafObject, MemberObject, ObjectKey,
    ProgramObject, RootObject, SealObject, UplinkObject, VlanObject,
};
pub use plan::{KernelPlan, PlanAction, PlanStep};
pub use setup::{KernelSetup, OWNERS_MAX};
pub use terms::{ClassTerms, LeafKind, QdiscTree, RealTimeTerms};
pub use text::{FORWARDED_GROUPS, HANDLE, INBOUND_CLASS, OTHERS_CLASS};
