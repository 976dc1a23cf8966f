/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The limits of the kernel's own data plane: token buckets in packets and in bits, kept as the time
 * at which each is full again (generic cell rate algorithm). A frame passes buckets that are not
 * empty and is then charged in full.
 *
 * A bucket is as deep as the queues behind it, so that it drops only what the queues would drop. A
 * flood would keep the queues full, so the bucket is shallow while the flood lasts: the rate is the
 * same, what passes does not wait, and no queue sets a timer for each packet.
 */
#ifndef WEIR_BRIDGE_LIMITS_H
#define WEIR_BRIDGE_LIMITS_H

/* Values of a bucket, see weir-kernel-plan; a cost of 0: no limit. */
struct limit {
	__u64 cost;
	__u64 depth;
	__u64 flood_depth;
};

/*
 * A flood begins once this many more buffers were dropped than passed. One such drop is forgotten
 * each 131 us, 7600 a second, so that a sender that exceeds its limit by less is no flood. A
 * super-frame is one buffer, as it is for the queues.
 */
#define FLOOD_BUFFERS 512
/* 2^17 ns, in the unit of the buckets' times. */
#define LEAK_SHIFT (17 + TIME_SHIFT)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWNERS *UNITS);
	__type(key, __u32);
	__type(value, struct limit);
} limits SEC(".maps");

/* When each bucket is full again; written by the programs alone. */
struct fill {
	__u64 full_at;
	/* The time up to which excess drops are forgotten. */
	__u64 leaked_at;
	/* Drops in excess of passes, 2 * FLOOD_BUFFERS at most; processors that race lose some. */
	__u32 excess_drops;
	__u32 reserved[11];
} __attribute__((aligned(64)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWNERS *UNITS);
	__type(key, __u32);
	__type(value, struct fill);
} fills SEC(".maps");

/*
 * Returns the time of a number of units, computed in two parts, since the product does not fit: a
 * unit of the slowest rate costs 2^41 beside its fraction.
 */
static __always_inline __u64 time_of(const struct limit *limit, __u64 units)
{
	__u64 fraction = limit->cost & ((1 << COST_SHIFT) - 1);

	if (units > UNITS_MAX)
		units = UNITS_MAX;
	return units * (limit->cost >> COST_SHIFT) +
	       ((units * fraction + (1 << COST_SHIFT) - 1) >> COST_SHIFT);
}

/*
 * Returns the time that a bucket lacks until it is full: at most its depth and the charges of a few
 * processors. A time further ahead is from before the clock wrapped, which it does every 834 days.
 */
static __always_inline __u64 lacking_of(const struct limit *limit, __u64 full_at, __u64 now)
{
	__u64 lacking = full_at - now;

	return lacking > limit->depth + 4 * time_of(limit, UNITS_MAX) ? 0 : lacking;
}

/* Charges a bucket, into debt if need be. Processors race by compare-and-swap. */
static __always_inline void charge(const struct limit *limit, struct fill *fill, __u64 time,
				   __u64 now)
{
	__u32 excess = *(volatile __u32 *)&fill->excess_drops;

	if (excess)
		*(volatile __u32 *)&fill->excess_drops = excess - 1;
	for (int i = 0; i < TRIES; i++) {
		__u64 seen = *(volatile __u64 *)&fill->full_at;
		__u64 next = now + lacking_of(limit, seen, now) + time;

		if (__sync_val_compare_and_swap(&fill->full_at, seen, next) == seen)
			return;
	}
	/* Others were faster each time, so that the bucket is not full: the sum is right. */
	__sync_fetch_and_add(&fill->full_at, time);
}

/* Returns the time since drops were last forgotten: 0 if another processor did so later than
 * `now`. */
static __always_inline __u64 since_leak(const struct fill *fill, __u64 now)
{
	__s64 since = now - *(volatile __u64 *)&fill->leaked_at;

	return since > 0 ? since : 0;
}

/* Returns the drops in excess of passes that are not forgotten. */
static __always_inline __u32 excess_of(const struct fill *fill, __u64 now)
{
	__u32 excess = *(volatile __u32 *)&fill->excess_drops;
	__u64 leaked = since_leak(fill, now) >> LEAK_SHIFT;

	return excess > leaked ? excess - leaked : 0;
}

/* Returns whether a bucket is empty, and if so counts the drop. */
static __always_inline int is_empty(const struct limit *limit, struct fill *fill, __u64 now)
{
	__u32 excess = excess_of(fill, now);
	__u64 depth = excess < FLOOD_BUFFERS ? limit->depth : limit->flood_depth;

	if (lacking_of(limit, *(volatile __u64 *)&fill->full_at, now) < depth)
		return 0;
	*(volatile __u64 *)&fill->leaked_at += since_leak(fill, now) & ~((1ull << LEAK_SHIFT) - 1);
	*(volatile __u32 *)&fill->excess_drops = excess < 2 * FLOOD_BUFFERS ? excess + 1 : excess;
	return 1;
}

static __always_inline __u32 bucket_of(const struct member *member, __u32 position, enum way way)
{
	return member->limit[position >> 1] * UNITS + way * 2 + (position & 1);
}

/* Returns the position of the first empty bucket; 2 * LEVELS if none is empty. */
static __always_inline __u32 empty_one(const struct member *member, enum way way, __u64 now)
{
	__u32 position;

	for (position = 0; position < 2 * LEVELS; position++) {
		__u32 index = bucket_of(member, position, way);
		struct limit *limit = bpf_map_lookup_elem(&limits, &index);
		struct fill *fill;

		if (!member->limit[position >> 1] || !limit || !limit->cost)
			continue;
		fill = bpf_map_lookup_elem(&fills, &index);
		if (fill && is_empty(limit, fill, now))
			break;
	}
	return position;
}

/*
 * Lets a frame pass if no bucket is empty, and charges all of them; else charges none and counts
 * the drop at the first that is.
 */
static __always_inline int police(const struct member *member, enum way way,
				  const struct tally *size, struct counts *counted)
{
	__u64 now = bpf_ktime_get_ns() << TIME_SHIFT;
	__u32 empty = empty_one(member, way, now);

	if (empty < 2 * LEVELS) {
		count(&counted->policed[empty], size);
		return 0;
	}
	for (__u32 position = 0; position < 2 * LEVELS; position++) {
		__u32 index = bucket_of(member, position, way);
		struct limit *limit = bpf_map_lookup_elem(&limits, &index);
		__u64 units = position & 1 ? size->bytes : size->packets;
		struct fill *fill;

		if (!member->limit[position >> 1] || !limit || !limit->cost)
			continue;
		fill = bpf_map_lookup_elem(&fills, &index);
		if (fill)
			charge(limit, fill, time_of(limit, units), now);
	}
	return 1;
}

#endif
