// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A linear program that grows by columns: the revised simplex method with an explicit inverse.
//!
//! min c·x, A·x ≥ b or ≤ b in each row, x ≥ 0, b ≥ 0. A row "at least" may fall short at a penalty,
//! so that a first basis is always there: the shortfalls and the slacks. After columns are added
//! [`LinearProgram::solve`] goes on from where it was, which is what column generation lives on.
//! Read: Chvátal, *Linear Programming*, chapters 7 and 26.
//!
//! It is for a few hundred rows. Right-hand sides are raised by some 10⁻⁷ of themselves, each by
//! another amount, so that no two ratios are equal and the method cannot cycle. Nobody has to trust
//! the floats: what follows from the prices is proven in integers afterwards (`proof.rs`).

/// A row and its right-hand side.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinearRow {
    /// Σ ≥ `bound`, or short of it at `penalty` for each unit.
    AtLeast { bound: f64, penalty: f64 },
    /// Σ ≤ `bound`.
    AtMost { bound: f64 },
}

/// A linear program and a basis of it.
#[derive(Debug)]
pub(crate) struct LinearProgram {
    rows: usize,
    bounds: Vec<f64>,
    columns: Vec<LinearColumn>,
    /// The column that is basic in each row.
    basis: Vec<usize>,
    is_basic: Vec<bool>,
    /// The inverse of the basis, row by row.
    inverse: Vec<f64>,
    /// The values of the basic columns.
    values: Vec<f64>,
    pivots: usize,
}

#[derive(Debug)]
struct LinearColumn {
    cost: f64,
    entries: Vec<(usize, f64)>,
}

impl LinearProgram {
    /// Returns a program without columns of its own: all rows fall short, or are slack.
    pub(crate) fn new(rows: &[LinearRow]) -> Self {
        let count = rows.len();
        let column = |cost, row, entry| LinearColumn { cost, entries: vec![(row, entry)] };
        let mut columns = Vec::with_capacity(2 * count);
        let mut bounds = Vec::with_capacity(count);
        for (index, row) in rows.iter().enumerate() {
            let (bound, cost) = match *row {
                LinearRow::AtLeast { bound, penalty } => (bound, penalty),
                LinearRow::AtMost { bound } => (bound, 0.0),
            };
            columns.push(column(cost, index, 1.0));
            bounds.push(bound + bound.max(PERTURBED_MIN) * perturbation(index));
        }
        for (index, row) in rows.iter().enumerate() {
            if matches!(row, LinearRow::AtLeast { .. }) {
                columns.push(column(0.0, index, -1.0));
            }
        }
        let is_basic = (0..columns.len()).map(|column| column < count).collect();
        let mut program = Self {
            rows: count,
            values: bounds.clone(),
            bounds,
            columns,
            basis: (0..count).collect(),
            is_basic,
            inverse: vec![0.0; count * count],
            pivots: 0,
        };
        program.reset();
        program
    }

    /// Adds a column with its cost and its entries by row; returns its number.
    pub(crate) fn add_column(&mut self, cost: f64, entries: Vec<(usize, f64)>) -> usize {
        self.columns.push(LinearColumn { cost, entries });
        self.is_basic.push(false);
        self.columns.len() - 1
    }

    /// Improves the basis by at most `pivots` steps; returns whether it is optimal.
    pub(crate) fn solve(&mut self, pivots: usize) -> bool {
        for _ in 0..pivots {
            let Some(entering) = self.entering() else { return true };
            let direction = self.direction(entering);
            let Some(leaving) = self.leaving(&direction) else { return false };
            self.pivot(entering, leaving, &direction);
        }
        self.entering().is_none()
    }

    /// Returns the price of each row: not negative for "at least", not positive for "at most".
    pub(crate) fn prices(&self) -> Vec<f64> {
        let mut prices = vec![0.0; self.rows];
        for (row, column) in self.basis.iter().enumerate() {
            let cost = self.columns[*column].cost;
            if cost != 0.0 {
                let inverse = &self.inverse[row * self.rows..][..self.rows];
                prices.iter_mut().zip(inverse).for_each(|(price, entry)| *price += cost * entry);
            }
        }
        prices
    }

    /// Returns the columns with a value, each with it; first the shortfall or slack of each row, by
    /// its number.
    pub(crate) fn values(&self) -> impl Iterator<Item = (usize, f64)> {
        self.basis.iter().copied().zip(self.values.iter().map(|value| value.max(0.0)))
    }

    /// Returns the values that the basic columns take once each row's bound is higher by its
    /// `change`, with the same basis: some may be negative.
    pub(crate) fn shifted(&self, change: &[f64]) -> Vec<(usize, f64)> {
        let rows = self.inverse.chunks_exact(self.rows.max(1)).zip(&self.values);
        let values = rows.map(|(row, value)| value + dot(row, change));
        self.basis.iter().copied().zip(values).collect()
    }

    /// Returns the value of the program.
    pub(crate) fn objective(&self) -> f64 {
        self.values().map(|(column, value)| self.columns[column].cost * value).sum()
    }

    /// Returns the column whose cost is furthest below what its rows pay; `None` at an optimum.
    fn entering(&self) -> Option<usize> {
        let prices = self.prices();
        let (mut best, mut least) = (None, -REDUCED_COST);
        for (index, column) in self.columns.iter().enumerate() {
            if self.is_basic[index] {
                continue;
            }
            let paid: f64 = column.entries.iter().map(|(row, entry)| prices[*row] * entry).sum();
            let reduced = column.cost - paid;
            if reduced < least {
                (best, least) = (Some(index), reduced);
            }
        }
        best
    }

    /// Returns the change of the basic values for each unit of a column.
    fn direction(&self, column: usize) -> Vec<f64> {
        let entries = &self.columns[column].entries;
        let rows = self.inverse.chunks_exact(self.rows.max(1));
        rows.map(|row| entries.iter().map(|(index, entry)| row[*index] * entry).sum()).collect()
    }

    /// Returns the row whose value falls to zero first.
    fn leaving(&self, direction: &[f64]) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for (row, step) in direction.iter().enumerate().filter(|(_, step)| **step > PIVOT_MIN) {
            let ratio = self.values[row].max(0.0) / step;
            if best.is_none_or(|(other, least)| {
                ratio < least || (ratio == least && *step > direction[other])
            }) {
                best = Some((row, ratio));
            }
        }
        best.map(|(row, _)| row)
    }

    fn pivot(&mut self, entering: usize, leaving: usize, direction: &[f64]) {
        self.is_basic[self.basis[leaving]] = false;
        self.is_basic[entering] = true;
        self.basis[leaving] = entering;
        self.pivots += 1;
        if self.pivots.is_multiple_of(PIVOTS_UNTIL_INVERTED) {
            self.invert();
            return;
        }
        let scale = 1.0 / direction[leaving];
        let start = leaving * self.rows;
        let pivot_row: Vec<f64> =
            self.inverse[start..][..self.rows].iter().map(|entry| entry * scale).collect();
        let value = self.values[leaving] * scale;
        for (row, step) in direction.iter().enumerate() {
            let line = &mut self.inverse[row * self.rows..][..self.rows];
            if row == leaving {
                line.copy_from_slice(&pivot_row);
                self.values[row] = value;
            } else if *step != 0.0 {
                line.iter_mut().zip(&pivot_row).for_each(|(entry, of)| *entry -= step * of);
                self.values[row] -= step * value;
            }
        }
    }

    /// Computes the inverse anew, so that rounding does not add up; starts from the first basis
    /// again where that cannot be.
    fn invert(&mut self) {
        let size = self.rows;
        let mut matrix = vec![0.0; size * size];
        for (at, column) in self.basis.iter().enumerate() {
            for (row, entry) in &self.columns[*column].entries {
                matrix[row * size + at] = *entry;
            }
        }
        match inverse_of(matrix, size) {
            Some(inverse) => self.inverse = inverse,
            None => return self.reset(),
        }
        let rows = self.inverse.chunks_exact(size.max(1));
        self.values = rows.map(|row| dot(row, &self.bounds)).collect();
        if self.values.iter().any(|value| *value < -INFEASIBLE) {
            self.reset();
        }
    }

    fn reset(&mut self) {
        self.basis = (0..self.rows).collect();
        self.is_basic.iter_mut().enumerate().for_each(|(at, basic)| *basic = at < self.rows);
        self.inverse.fill(0.0);
        (0..self.rows).for_each(|row| self.inverse[row * self.rows + row] = 1.0);
        self.values.clone_from(&self.bounds);
    }
}

/// Returns the inverse by Gauss and Jordan with the largest pivot of each column; `None` where the
/// matrix is singular.
fn inverse_of(mut matrix: Vec<f64>, size: usize) -> Option<Vec<f64>> {
    let mut inverse = vec![0.0; size * size];
    (0..size).for_each(|row| inverse[row * size + row] = 1.0);
    for at in 0..size {
        let by_size = |a: &usize, b: &usize| {
            matrix[a * size + at].abs().total_cmp(&matrix[b * size + at].abs())
        };
        let pivot = (at..size).max_by(by_size)?;
        if matrix[pivot * size + at].abs() < PIVOT_MIN {
            return None;
        }
        for column in 0..size {
            matrix.swap(pivot * size + column, at * size + column);
            inverse.swap(pivot * size + column, at * size + column);
        }
        let scale = 1.0 / matrix[at * size + at];
        for lines in [&mut matrix, &mut inverse] {
            lines[at * size..][..size].iter_mut().for_each(|entry| *entry *= scale);
        }
        let (left, right) = (row_of(&matrix, at, size), row_of(&inverse, at, size));
        for row in (0..size).filter(|row| *row != at) {
            let factor = matrix[row * size + at];
            if factor != 0.0 {
                for (lines, pivot_row) in [(&mut matrix, &left), (&mut inverse, &right)] {
                    let line = &mut lines[row * size..][..size];
                    line.iter_mut().zip(pivot_row).for_each(|(to, of)| *to -= factor * of);
                }
            }
        }
    }
    Some(inverse)
}

fn row_of(matrix: &[f64], row: usize, size: usize) -> Vec<f64> {
    matrix[row * size..][..size].to_vec()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns a number between 10⁻⁷ and 2 · 10⁻⁷, another for each row: multiples of the golden
/// section, less their whole parts.
fn perturbation(row: usize) -> f64 {
    let turns = (1..=row + 1).fold(0.0_f64, |sum, _| (sum + 0.618_033_988_749_895).fract());
    1e-7 * (1.0 + turns)
}

/// Right-hand sides below this are perturbed as if they were as large.
const PERTURBED_MIN: f64 = 1e-3;
/// A column enters where it is cheaper by more than this; costs are of the order of one.
const REDUCED_COST: f64 = 1e-9;
/// A pivot is larger than this.
const PIVOT_MIN: f64 = 1e-9;
/// A basic value below zero by more than this comes from a broken inverse.
const INFEASIBLE: f64 = 1e-5;
/// Errors of the inverse grow slowly; computing it takes as long as a hundred pivots.
const PIVOTS_UNTIL_INVERTED: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    /// The diet of Chvátal's chapter 1, reduced: min 3x + 2y, x + y ≥ 4, x + 3y ≥ 6, x ≤ 3.
    #[test]
    fn an_optimum_by_hand_is_found_with_its_prices() {
        let at_least = |bound| LinearRow::AtLeast { bound, penalty: 100.0 };
        let mut program =
            LinearProgram::new(&[at_least(4.0), at_least(6.0), LinearRow::AtMost { bound: 3.0 }]);
        program.add_column(3.0, vec![(0, 1.0), (1, 1.0), (2, 1.0)]);
        let y = program.add_column(2.0, vec![(0, 1.0), (1, 3.0)]);
        assert!(program.solve(100));
        assert!((program.objective() - 8.0).abs() < 1e-4);
        assert!(program.values().any(|(column, value)| column == y && (value - 4.0).abs() < 1e-4));
        let prices = program.prices();
        assert!((prices[0] - 2.0).abs() < 1e-6 && prices[1].abs() < 1e-6, "{prices:?}");
    }

    /// A column that comes later improves what was optimal before.
    #[test]
    fn columns_may_come_later() {
        let mut program = LinearProgram::new(&[LinearRow::AtLeast { bound: 6.0, penalty: 9.0 }]);
        assert!(program.solve(10));
        assert!((program.objective() - 54.0).abs() < 1e-4);
        program.add_column(4.0, vec![(0, 1.0)]);
        assert!(program.solve(10));
        assert!((program.objective() - 24.0).abs() < 1e-4);
        program.add_column(4.0, vec![(0, 3.0)]);
        assert!(program.solve(10));
        assert!((program.objective() - 8.0).abs() < 1e-4);
    }

    /// Weak duality on random programs: the prices are feasible and worth what the values cost.
    #[test]
    fn prices_and_values_meet_on_random_programs() {
        let mut state = 7_u64;
        let mut draw = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            crate::resource::float((state >> 33) % most)
        };
        for _ in 0..50 {
            let mut rows = vec![];
            for _ in 0..30 {
                rows.push(LinearRow::AtLeast { bound: draw(50), penalty: 1000.0 });
                rows.push(LinearRow::AtMost { bound: 40.0 + draw(100) });
            }
            let mut program = LinearProgram::new(&rows);
            for _ in 0..300 {
                let entries = (0..6).map(|at| (at * 10 + usize::from(draw(2) > 0.0) * 3, draw(5)));
                let entries = entries.filter(|(_, entry)| *entry > 0.0).collect();
                program.add_column(1.0 + draw(9), entries);
            }
            assert!(program.solve(10_000));
            let prices = program.prices();
            let dual = dot(&prices, &program.bounds);
            assert!((dual - program.objective()).abs() < 1e-6 * dual.abs().max(1.0));
            for column in &program.columns {
                let paid: f64 = column.entries.iter().map(|(row, e)| prices[*row] * e).sum();
                assert!(paid <= column.cost + 1e-6);
            }
        }
    }
}
