// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's data plane, as a plan: a policy and the facts of a host in, the steps that make the
//! host enforce the policy out.
//!
//! **Problem.** Most hosts have a bridge that stays. Its kernel can schedule, police and count, but
//! in its own words: queueing disciplines, classes, tables of programs.
//!
//! **Idea.** A policy is compiled to *objects* ([`KernelObject`]), each with an identity and
//! values. All objects together are a [`KernelSetup`]. The way from one setup to another is a
//! [`KernelPlan`]: objects to add, to change, to remove, each step with its way back. A start is
//! the plan from nothing, a live change the plan from the setup before, an undo a plan reversed.
//!
//! **The way of a frame.** A program at the vif's device ([`Hook::Send`]) drops what is spoofed or
//! beyond a limit, and writes the vif's class into the frame (`skb->priority`). The bridge forwards
//! it as ever. At the port's device the class finds its place in a tree of HTB or HFSC without any
//! filter. A second program at the vif ([`Hook::Receive`]) drops what another slice sent, and what
//! is beyond the receiver's limits; a small tree behind it holds the receiver's rate.
//!
//! ```text
//! vif's device ─► program: spoofing, limits, class ─► bridge ─┬─► tree at the port's device
//!                                                             └─► program of another vif ─► vif
//! port's device ─► program: addresses, class ─► tree at an ifb ─► bridge ─► program ─► vif
//! ```
//!
//! **Commands alone.** A host that loads no programs, such as one reached over SSH, gets the same
//! trees; VLAN devices, bridges and filters are in the place of the programs
//! ([`compile_commands`]).
//!
//! A plan knows no system call: the same one is applied here, or sent elsewhere, or printed, or
//! applied to a model in a test.
#![no_std]

extern crate alloc;

mod bucket;
mod commands;
mod compile;
mod facts;
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
pub use facts::{BridgePortFacts, HookKind, HostFacts, QdiscSupport};
pub use held::{KernelProblem, UnheldKey};
pub use object::{
    BridgeObject, BucketObject, BucketUnit, ClassObject, ClsactObject, ExitObject, FilterObject,
    Hook, InboundObject, JoinedObject, KernelObject, LeafObject, MemberObject, ObjectKey,
    ProgramObject, RootObject, SealObject, UplinkObject, VlanObject,
};
pub use plan::{KernelPlan, PlanAction, PlanStep};
pub use setup::{KernelSetup, OWNERS_MAX};
pub use terms::{ClassTerms, LeafKind, QdiscTree, RealTimeTerms};
pub use text::{FORWARDED_GROUPS, HANDLE, INBOUND_CLASS, OTHERS_CLASS};
