/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The counters of the kernel's own data plane, by vif and by port.
 */
#ifndef WEIR_BRIDGE_COUNTS_H
#define WEIR_BRIDGE_COUNTS_H

enum way {
	WAY_SEND,
	WAY_RECEIVE,
	WAY_PORT,
	WAYS,
};

/* The reason of a drop, limits aside; PASS for none. The names are in weir-kernel. */
enum reason {
	SPOOFED_MAC,
	FOREIGN_SLICE,
	UNEXPECTED_TAG,
	NESTED_TAG,
	BAD_SOURCE,
	RESERVED_GROUP,
	MOVED,
	MACS_FULL,
	REASONS,
	PASS = REASONS,
};

/* The frames of one owner in one way. */
struct counts {
	struct tally passed;
	struct tally dropped[REASONS];
	/* Packets and bits of vif, router, slice. */
	struct tally policed[2 * LEVELS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OWNERS *WAYS);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

/* A count of frames for each vif, by its number. */
struct tally_by_owner {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, struct tally);
};

/* The frames for each vif that came from a port to the tree of an ifb. */
struct tally_by_owner inbound SEC(".maps");
/* The frames for each vif whose class belongs to no known slice: they are dropped. */
struct tally_by_owner unknown_slice SEC(".maps");
/* Copies that came to each vif although they are for another one: they are dropped. */
struct tally_by_owner flooded SEC(".maps");

/* What each port counts beside the frames of its vifs; the key is the ifindex of its device. */
struct port_counts {
	/* Copies that the bridge flooded to the port although they were for a vif: they are dropped. */
	struct tally flooded;
	/* Frames that no vif of the port sent, as they came to the tree. */
	struct tally others;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, struct port_counts);
} port_counts SEC(".maps");

static __always_inline struct counts *counts_of(__u32 owner, enum way way)
{
	__u32 index = owner * WAYS + way;

	return bpf_map_lookup_elem(&counts, &index);
}

/* Returns the counters of a port, which are created with its first frame. */
static __always_inline struct port_counts *port_counts_of(__u32 port)
{
	struct port_counts *found = bpf_map_lookup_elem(&port_counts, &port), zero = {};

	if (found)
		return found;
	bpf_map_update_elem(&port_counts, &port, &zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&port_counts, &port);
}

static __always_inline void count(struct tally *tally, const struct tally *size)
{
	tally->packets += size->packets;
	tally->bytes += size->bytes;
}

#endif
