// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Units as the bare integers that stores and documents keep: bits a second, nanoseconds.

use weir_units::{BitRate, Instant, Nanos};

macro_rules! as_integer {
    ($module:ident, $unit:ty, $make:path, $take:path) => {
        pub(crate) mod $module {
            use super::*;

            // serde hands over a reference.
            #[allow(clippy::trivially_copy_pass_by_ref)]
            pub(crate) fn serialize<S: serde::Serializer>(
                value: &$unit,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                to.serialize_u64($take(*value))
            }

            pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
                from: D,
            ) -> Result<$unit, D::Error> {
                <u64 as serde::Deserialize>::deserialize(from).map($make)
            }
        }
    };
}

as_integer!(bps, BitRate, BitRate::from_bps, BitRate::as_bps);
as_integer!(nanos, Nanos, Nanos::new, Nanos::as_nanos);
as_integer!(instant, Instant, Instant::from_nanos, Instant::as_nanos);

pub(crate) mod optional_nanos {
    use super::*;

    #[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref)]
    pub(crate) fn serialize<S: serde::Serializer>(
        value: &Option<Nanos>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&value.map(Nanos::as_nanos), to)
    }

    pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Nanos>, D::Error> {
        let count: Option<u64> = serde::Deserialize::deserialize(from)?;
        Ok(count.map(Nanos::new))
    }
}

pub(crate) mod optional_instant {
    use super::*;

    #[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref)]
    pub(crate) fn serialize<S: serde::Serializer>(
        value: &Option<Instant>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&value.map(Instant::as_nanos), to)
    }

    pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Instant>, D::Error> {
        let nanos: Option<u64> = serde::Deserialize::deserialize(from)?;
        Ok(nanos.map(Instant::from_nanos))
    }
}
