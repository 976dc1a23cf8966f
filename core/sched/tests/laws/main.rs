// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The laws of scheduling: one battery, all schedulers.
//!
//! Each law is a function of a [`Subject`] and fails by panic. `each_scheduler!` makes a test of
//! every law for every scheduler; a law that a scheduler does not promise (see `subject.rs`) passes
//! without a run there, and `promises_are_as_documented` pins which those are. The canary hands the
//! same laws schedulers that are broken on purpose: each fault must be caught.

#![expect(clippy::unwrap_used, reason = "tests; the lint spares only functions marked so")]
#![expect(clippy::panic, reason = "laws fail by panic")]

mod audit;
mod canary;
mod first_gate;
mod flows;
mod fluid;
#[path = "../support/gps.rs"]
mod gps;
mod in_phases;
mod limits;
mod link;
mod random;
mod rounds;
mod shares;
mod storm;
mod subject;
mod timetable;

use subject::Subject;

/// A test for each law of one scheduler.
macro_rules! each_law {
    ($scheduler:ident: $($module:ident :: $law:ident,)*) => {
        $( #[test] fn $law() { $module::$law(&subject::$scheduler()); } )*
    };
}

/// A test for each law and scheduler.
macro_rules! each_scheduler {
    ($($scheduler:ident)*) => { $( mod $scheduler {
        use crate::{fluid, limits, shares, storm, subject};
        each_law! { $scheduler:
            storm::conservation, storm::time_that_goes_back_counts_as_the_latest,
            storm::a_change_to_the_same_changes_nothing, storm::time_may_stand_still,
            storm::a_paused_class_keeps_its_packets,
            shares::served_in_the_promised_order, shares::fair_in_every_window,
            shares::behind_its_rate_by_no_more_than_the_bound, shares::minimums_hold,
            shares::the_order_of_classes_does_not_matter,
            shares::a_new_weight_holds_from_the_next_round, limits::waits_are_exact,
            limits::no_window_exceeds_the_limit, limits::the_limit_is_reached,
            limits::work_is_conserved, limits::a_turn_idles_for_one_packet_at_most,
            limits::a_paced_link_is_never_faster_nor_idle, fluid::near_the_fluid_at_any_time,
        }
    } )* };
}

each_scheduler! { fifo strict wrr drr wfq hfsc }

/// Goal: no law passes because it was not run. Method: what each scheduler promises, spelled out.
#[test]
fn promises_are_as_documented() {
    let shown = |subject: Subject| {
        let promises = &subject.promises;
        let yes = |promised: bool, word: &'static str| if promised { word } else { "" };
        format!(
            "{}: {:?}{}{}{}",
            subject.name,
            promises.order,
            yes(promises.min_rate, " min_rate"),
            yes(promises.max_rate, " rate"),
            yes(promises.conserves_work, " conserves-work"),
        )
    };
    assert_eq!(shown(subject::fifo()), "fifo: Arrival conserves-work");
    assert_eq!(shown(subject::strict()), "strict: Level rate conserves-work");
    assert_eq!(shown(subject::wrr()), "wrr: Rounds min_rate rate");
    assert_eq!(shown(subject::drr()), "drr: Deficit rate conserves-work");
    assert_eq!(shown(subject::wfq()), "wfq: WorstCaseFair rate conserves-work");
    assert_eq!(shown(subject::hfsc()), "hfsc: StartTimeFair min_rate rate conserves-work");
}
