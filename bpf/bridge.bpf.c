/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The programs of the kernel's own data plane. The host's bridge forwards; these mark, police and
 * count on its devices (TCX). A super-frame stays whole and counts as the frames that it is cut
 * into: as many packets, each with its headers.
 *
 *   weir_from_vif   ingress of a vif's device: spoofing, limits of what it sends, then its class
 *                   into skb->priority, which finds the class at the port without a filter
 *   weir_to_vif     egress of a vif's device: frames of other slices, limits of what it receives
 *   weir_to_port    egress of a port's device, before the tree: counts what each class is offered
 *
 * Each passes on: programs of others at the same device run after them.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The sizes here and in weir-kernel are the same. */
#define OWNERS 1024
#define MACS 8
#define LEVELS 3
#define UNITS 4
/* The handle of every tree; the class of a frame is this and the number of its owner. */
#define HANDLE 0x7e10u

/* Time is in 1/256 ns, modulo 2^64. */
#define TIME_SHIFT 8
#define COST_SHIFT 16
/* 52 days: a time further ahead is one from before the clock wrapped. */
#define AHEAD_MAX (1ull << 60)
/* A BIG TCP super-frame, beyond which a frame is not charged: the product stays below 2^64. */
#define UNITS_MAX 0x1ffff
#define TRIES 8

/* TCX_NEXT and TCX_DROP, which older headers lack. */
#define NEXT -1
#define DROP 2

/* A vif; the key is the ifindex of its device. */
struct member {
	__u16 owner;
	__u16 slice;
	/* The number of addresses in `mac`; 0: any source address is allowed. */
	__u16 macs;
	/* Owners whose limits apply: vif, router, slice; 0 for none. */
	__u16 limit[LEVELS];
	__u16 mac[MACS][ETH_ALEN / 2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, struct member);
} members SEC(".maps");

/* The slice of each owner; 0 for none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, __u32);
} slices SEC(".maps");

/* Values of a bucket, see weir-kernel-plan; a cost of 0: no limit. */
struct limit {
	__u64 cost;
	__u64 depth;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWNERS *UNITS);
	__type(key, __u32);
	__type(value, struct limit);
} limits SEC(".maps");

/* When each bucket is full again; written by the programs alone. */
struct fill {
	__u64 full_at;
	__u64 reserved[7];
} __attribute__((aligned(64)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWNERS *UNITS);
	__type(key, __u32);
	__type(value, struct fill);
} fills SEC(".maps");

struct tally {
	__u64 packets;
	__u64 bytes;
};

enum way {
	WAY_SEND,
	WAY_RECEIVE,
	WAY_PORT,
	WAYS,
};

/* The frames of one owner in one way. */
struct counts {
	struct tally passed;
	struct tally spoofed;
	struct tally foreign;
	/* Packets and bits of vif, router, slice. */
	struct tally policed[2 * LEVELS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OWNERS *WAYS);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

static __always_inline struct counts *counts_of(__u32 owner, enum way way)
{
	__u32 index = owner * WAYS + way;

	return bpf_map_lookup_elem(&counts, &index);
}

static __always_inline void count(struct tally *tally, const struct tally *size)
{
	tally->packets += size->packets;
	tally->bytes += size->bytes;
}

/* The length of the headers that each segment of a super-frame has. */
static __always_inline __u32 segment_headers(struct __sk_buff *skb)
{
	__u32 at = ETH_HLEN;
	__u8 transport, word = 0;
	__be16 type = 0;

	bpf_skb_load_bytes(skb, ETH_HLEN - 2, &type, sizeof(type));
	if (type == bpf_htons(ETH_P_8021Q)) {
		bpf_skb_load_bytes(skb, at + 2, &type, sizeof(type));
		at += 4;
	}
	if (type == bpf_htons(ETH_P_IP)) {
		bpf_skb_load_bytes(skb, at, &word, sizeof(word));
		bpf_skb_load_bytes(skb, at + 9, &transport, sizeof(transport));
		at += (word & 0x0f) * 4;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		bpf_skb_load_bytes(skb, at + 6, &transport, sizeof(transport));
		at += 40;
	} else {
		return at;
	}
	if (transport == IPPROTO_UDP)
		return at + 8;
	word = 0x50;
	bpf_skb_load_bytes(skb, at + 12, &word, sizeof(word));
	return at + (word >> 4) * 4;
}

/* Measures a frame as it will be on the wire, in packets and in bytes of layer 2 without FCS. */
static __always_inline void measure(struct __sk_buff *skb, struct tally *size)
{
	__u32 headers, payload, segments;

	size->packets = 1;
	size->bytes = skb->len;
	if (!skb->gso_size)
		return;
	headers = segment_headers(skb);
	payload = skb->len > headers ? skb->len - headers : 0;
	segments = (payload + skb->gso_size - 1) / skb->gso_size;
	/* A guest may leave the number out, or lie about it; the size is what frames are cut by. */
	if (segments < skb->gso_segs)
		segments = skb->gso_segs;
	if (segments < 2)
		return;
	size->packets = segments;
	size->bytes += (__u64)(segments - 1) * headers;
}

static __always_inline __u64 ahead(const struct fill *fill, __u64 now)
{
	__u64 lacking = *(volatile __u64 *)&fill->full_at - now;

	return (__s64)lacking < 0 || lacking > AHEAD_MAX ? 0 : lacking;
}

/* Charges a bucket, into debt if need be. Processors race by compare-and-swap. */
static __always_inline void charge(struct fill *fill, __u64 time, __u64 now)
{
	for (int i = 0; i < TRIES; i++) {
		__u64 seen = *(volatile __u64 *)&fill->full_at;
		__u64 lacking = seen - now;

		if ((__s64)lacking < 0 || lacking > AHEAD_MAX)
			lacking = 0;
		if (__sync_val_compare_and_swap(&fill->full_at, seen, now + lacking + time) == seen)
			return;
	}
	/* Others were faster each time, so that the bucket is not full: the sum is right. */
	__sync_fetch_and_add(&fill->full_at, time);
}

static __always_inline __u32 bucket_of(const struct member *member, __u32 position, enum way way)
{
	return member->limit[position >> 1] * UNITS + way * 2 + (position & 1);
}

/*
 * Lets a frame pass if no bucket is empty, and charges all of them; else charges none and counts
 * the drop at the first that is.
 */
static __always_inline int police(const struct member *member, enum way way,
				  const struct tally *size, struct counts *counted)
{
	__u64 now = bpf_ktime_get_ns() << TIME_SHIFT;

	for (__u32 position = 0; position < 2 * LEVELS; position++) {
		__u32 index = bucket_of(member, position, way);
		struct limit *limit = bpf_map_lookup_elem(&limits, &index);
		struct fill *fill;

		if (!member->limit[position >> 1] || !limit || !limit->cost)
			continue;
		fill = bpf_map_lookup_elem(&fills, &index);
		if (fill && ahead(fill, now) >= limit->depth) {
			count(&counted->policed[position], size);
			return 0;
		}
	}
	for (__u32 position = 0; position < 2 * LEVELS; position++) {
		__u32 index = bucket_of(member, position, way);
		struct limit *limit = bpf_map_lookup_elem(&limits, &index);
		__u64 units = position & 1 ? size->bytes : size->packets;
		struct fill *fill;

		if (!member->limit[position >> 1] || !limit || !limit->cost)
			continue;
		fill = bpf_map_lookup_elem(&fills, &index);
		if (units > UNITS_MAX)
			units = UNITS_MAX;
		if (fill)
			charge(fill, (units * limit->cost + (1 << COST_SHIFT) - 1) >> COST_SHIFT,
			       now);
	}
	return 1;
}

static __always_inline int source_allowed(struct __sk_buff *skb, const struct member *member)
{
	__u16 source[ETH_ALEN / 2];

	if (!member->macs)
		return 1;
	if (bpf_skb_load_bytes(skb, ETH_ALEN, source, sizeof(source)))
		return 0;
	for (__u32 i = 0; i < MACS; i++) {
		if (i >= member->macs)
			break;
		if (member->mac[i][0] == source[0] && member->mac[i][1] == source[1] &&
		    member->mac[i][2] == source[2])
			return 1;
	}
	return 0;
}

SEC("tc")
int weir_from_vif(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct member *member = bpf_map_lookup_elem(&members, &ifindex);
	struct counts *counted = member ? counts_of(member->owner, WAY_SEND) : 0;
	struct tally size;

	if (!member || !counted)
		return NEXT;
	measure(skb, &size);
	if (!source_allowed(skb, member)) {
		count(&counted->spoofed, &size);
		return DROP;
	}
	if (!police(member, WAY_SEND, &size, counted))
		return DROP;
	skb->priority = HANDLE << 16 | member->owner;
	count(&counted->passed, &size);
	return NEXT;
}

SEC("tc")
int weir_to_vif(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct member *member = bpf_map_lookup_elem(&members, &ifindex);
	struct counts *counted = member ? counts_of(member->owner, WAY_RECEIVE) : 0;
	struct tally size;

	if (!member || !counted)
		return NEXT;
	measure(skb, &size);
	if (skb->priority >> 16 == HANDLE) {
		__u32 sender = skb->priority & 0xffff;
		__u32 *slice = bpf_map_lookup_elem(&slices, &sender);

		if (slice && *slice && *slice != member->slice) {
			count(&counted->foreign, &size);
			return DROP;
		}
	}
	if (!police(member, WAY_RECEIVE, &size, counted))
		return DROP;
	count(&counted->passed, &size);
	return NEXT;
}

SEC("tc")
int weir_to_port(struct __sk_buff *skb)
{
	struct counts *counted;
	struct tally size;

	if (skb->priority >> 16 != HANDLE)
		return NEXT;
	counted = counts_of(skb->priority & 0xffff, WAY_PORT);
	if (!counted)
		return NEXT;
	measure(skb, &size);
	count(&counted->passed, &size);
	return NEXT;
}

char LICENSE[] SEC("license") = "MIT";
