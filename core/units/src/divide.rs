// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Multiply-add-divide in 128 bits, for all conversions between rate, time and amount.

/// Divides `a · b + c` by `by`. Returns the quotient, at most [`u64::MAX`], and the remainder. If
/// `by` is zero, returns `(u64::MAX, 0)`.
///
/// For packet sizes `a · b + c` fits into 64 bits, where division is several times as fast as in
/// 128.
#[inline]
#[must_use]
pub const fn mul_add_div(a: u64, b: u64, c: u64, by: u64) -> (u64, u64) {
    if let Some(product) = a.checked_mul(b)
        && let Some(sum) = product.checked_add(c)
        && by > 0
    {
        return (sum / by, sum % by);
    }
    wide(a, b, c, by)
}

#[cold]
const fn wide(a: u64, b: u64, c: u64, by: u64) -> (u64, u64) {
    if by == 0 {
        return (u64::MAX, 0);
    }
    // (2⁶⁴ − 1)² + 2⁶⁴ − 1 is below 2¹²⁸.
    let sum = a as u128 * b as u128 + c as u128;
    // One division: a second would take as long as all else here.
    let quotient = sum / by as u128;
    (saturate(quotient), saturate(sum - quotient * by as u128))
}

const fn saturate(value: u128) -> u64 {
    if value > u64::MAX as u128 {
        u64::MAX
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "compared with the maximum above")]
        let narrow = value as u64;
        narrow
    }
}

#[cfg(test)]
mod tests {
    use super::mul_add_div;

    #[test]
    fn both_widths_agree_where_they_meet() {
        assert_eq!(mul_add_div(7, 3, 1, 5), (4, 2));
        let half = 1 << 32;
        assert_eq!(mul_add_div(half, half - 1, 0, 10), (1_844_674_406_941_458_432, 0));
        assert_eq!(mul_add_div(half, half, 9, 10), (1_844_674_407_370_955_162, 5));
        assert_eq!(mul_add_div(u64::MAX, u64::MAX, u64::MAX, u64::MAX), (u64::MAX, 0));
        assert_eq!(mul_add_div(u64::MAX, 3, 0, 2), (u64::MAX, 1), "the quotient saturates");
        assert_eq!(mul_add_div(0, 0, 0, 0), (u64::MAX, 0));
    }
}
