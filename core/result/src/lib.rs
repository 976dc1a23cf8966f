// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one result format: raw samples, and verdicts that anybody can recompute from them.
//!
//! **Problem.** A result that says "held" cannot be checked by a reader, and a summary that is
//! computed while measuring hides what it left out.
//!
//! **Idea.** A [`ResultFile`] holds named [`Series`] of raw samples, and [`Case`]s. A case has a
//! value, a bound, and a verdict. The value follows from series by a named [`Rule`] and in no other
//! way: [`ResultFile::judge`] is the only constructor of a case, and reading a file recomputes all
//! of them.
//!
//! The crate is pure: no clock, no files. The caller says where and when it ran ([`Origin`]) and
//! writes the text of [`ResultFile::to_json`] to a file. `docs/results.md` defines every rule.
//!
//! ```
//! use weir_result::{Bound, Claim, Origin, ResultFile, Rule, Series};
//!
//! let origin = Origin { command: "weir-lab demo".into(), ..Origin::default() };
//! let mut result = ResultFile::new(origin);
//! result.add_series("gold", Series::sampled("bit/s", 1.0, vec![21e6, 30e6, 31e6]))?;
//! let bound = Bound::at_least(29.7e6);
//! let worst = Claim::new("demo.gold", "gold, worst second", Rule::Min, bound);
//! let case = result.judge(worst.of(&["gold"]).skip(1))?;
//! assert_eq!((case.value(), case.holds()), (30e6, true));
//! assert_eq!(result.exit_status(), 0);
//! # Ok::<(), weir_result::ResultError>(())
//! ```

mod case;
mod cells;
mod delays;
mod display;
mod error;
mod file;
mod reference;
mod rule;
mod sequence;
mod series;
mod stats;

pub use case::{Bound, Case, Claim, Comparison};
pub use cells::{CELLS_MAX, Cells};
pub use delays::{Delays, Histogram, nonempty_steps};
pub use display::{quantity, spread, wrapped};
pub use error::{ResultError, RuleError};
pub use file::{Format, Machine, Origin, ResultFile};
pub use reference::{rules_reference, schema};
pub use rule::Rule;
pub use sequence::{Order, Sequence};
pub use series::{ATTEMPT, MACHINE, Series};
