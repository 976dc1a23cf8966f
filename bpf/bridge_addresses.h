/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The addresses of the kernel's own data plane: each belongs to one sender of a bridge. Those of a
 * vif are given by the policy, or learned.
 */
#ifndef WEIR_BRIDGE_ADDRESSES_H
#define WEIR_BRIDGE_ADDRESSES_H

/* An address of a vif that is silent for so long is forgotten (IEEE 802.1Q, 8.8.3). */
#define AGE_NS 300000000000ull
/*
 * An address moves from a vif to a port after this silence, as the switch has it: that guest may be
 * on another host by now. From a port to a vif, only the vif's first address moves so soon, since
 * the guest may have come from another host, and an address of VRRP. Any other address moves to a
 * vif after AGE_NS: a guest could otherwise claim the gateway's.
 */
#define SETTLE_NS 2000000000ull
/* The time at which an address was last seen is written at most this often. */
#define SEEN_NS 500000000ull
/* Old addresses are removed at most this often, and only when a new one finds no room. */
#define SWEEP_NS 1000000000ull
/* Learned addresses of all vifs at most; the rest of the table is for given ones. */
#define LEARNED_MAX 16384
#define ADDRESSES 32768
#define BEYOND 16384
/* The owner of addresses that the policy gives to vifs whose devices are not here. */
#define RESERVED 1

struct address_key {
	__u32 bridge;
	__u16 mac[ETH_ALEN / 2];
	__u16 zero;
};

/* An address of a vif: given by the policy, or learned. */
struct address {
	__u16 owner;
	__u16 given;
	/* The ifindex of its device; 0 where an earlier version entered the address. */
	__u32 device;
	/* The time at which it last sent; nanoseconds. */
	__u64 seen;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ADDRESSES);
	__type(key, struct address_key);
	__type(value, struct address);
} addresses SEC(".maps");

/* The count of learned addresses by owner; at 0, of all. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, __u32);
} learned SEC(".maps");

/*
 * The time at which each address beyond a port was last seen: an LRU table of its own, so that a
 * flood of such addresses displaces only others of its kind, never a vif's.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, BEYOND);
	__type(key, struct address_key);
	__type(value, __u64);
} beyond SEC(".maps");

/* The time of the last sweep. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} swept SEC(".maps");

static __always_inline int is_given(const struct member *member, const __u16 *source)
{
	for (__u32 i = 0; i < MACS; i++) {
		if (i >= member->macs)
			break;
		if (member->mac[i][0] == source[0] && member->mac[i][1] == source[1] &&
		    member->mac[i][2] == source[2])
			return 1;
	}
	return 0;
}

static __always_inline void add_learned(__u32 owner, __s32 more)
{
	__u32 all = 0;
	__u32 *count = bpf_map_lookup_elem(&learned, &owner);

	if (count)
		__sync_fetch_and_add(count, more);
	count = bpf_map_lookup_elem(&learned, &all);
	if (count)
		__sync_fetch_and_add(count, more);
}

static __always_inline int has_room(__u32 owner, __u32 most)
{
	__u32 zero = 0;
	__u32 *own = bpf_map_lookup_elem(&learned, &owner);
	__u32 *all = bpf_map_lookup_elem(&learned, &zero);

	/* Two processors that decrement at once may wrap a vif's count: one above LEARNED_MAX
	 * stands for 0. */
	return own && all && (*own < most || *own > LEARNED_MAX) && *all < LEARNED_MAX;
}

/* Returns true for an address of VRRP (RFC 9568, 7.3), which moves when a router takes over. */
static __always_inline int is_virtual(const __u16 *address)
{
	__u16 last = address[2] & bpf_htons(0xff00);

	return !address[0] && address[1] == bpf_htons(0x5e00) &&
	       (last == bpf_htons(0x0100) || last == bpf_htons(0x0200));
}

/* Returns true if a vif has learned no address yet. */
static __always_inline int has_none(__u32 owner)
{
	__u32 *own = bpf_map_lookup_elem(&learned, &owner);

	return own && !*own;
}

/* Forgets a learned address, unless another processor has done so meanwhile. */
static __always_inline void forget(void *map, const struct address_key *key,
				   const struct address *address)
{
	__u32 owner = address->owner;

	if (!bpf_map_delete_elem(map, key))
		add_learned(owner, -1);
}

/* Forgets an address if it is old. */
static long forget_old(void *map, struct address_key *key, struct address *address, __u64 *now)
{
	if (!address->given && *now - address->seen >= AGE_NS)
		forget(map, key, address);
	return 0;
}

static __always_inline void sweep(__u64 now)
{
	__u32 zero = 0;
	__u64 *last = bpf_map_lookup_elem(&swept, &zero);
	__u64 before;

	if (!last)
		return;
	before = *(volatile __u64 *)last;
	if (now - before < SWEEP_NS || __sync_val_compare_and_swap(last, before, now) != before)
		return;
	bpf_for_each_map_elem(&addresses, forget_old, &now, 0);
}

/*
 * Notes that an address of a vif was seen now, at most once in SEEN_NS. Returns true if it had not
 * been noted for so long: that frame crosses the bridge in any case.
 */
static __always_inline int note_seen(struct address *address, __u32 device, __u64 now)
{
	if (now - address->seen < SEEN_NS)
		return 0;
	address->seen = now;
	address->device = device;
	return 1;
}

/* Learns an address of a vif, unless it is somebody else's or one too many. Sets `due` if the frame
 * must cross the bridge, as `note_seen` says. */
static __always_inline enum reason learn(const struct member *member,
					 const struct address_key *key, __u32 device, int *due)
{
	struct address *known = bpf_map_lookup_elem(&addresses, key);
	struct address fresh = { .owner = member->owner, .device = device };
	__u64 now = bpf_ktime_get_ns();
	__u64 *seen, settle;

	if (known && known->owner == member->owner) {
		*due = note_seen(known, device, now);
		return PASS;
	}
	if (known) {
		if (known->given || now - known->seen < AGE_NS)
			return MOVED;
		forget(&addresses, key, known);
	}
	seen = bpf_map_lookup_elem(&beyond, key);
	settle = has_none(member->owner) || is_virtual(key->mac) ? SETTLE_NS : AGE_NS;
	if (seen && now - *seen < settle)
		return MOVED;
	if (!has_room(member->owner, member->macs_max)) {
		sweep(now);
		if (!has_room(member->owner, member->macs_max))
			return MACS_FULL;
	}
	fresh.seen = now;
	*due = 1;
	if (bpf_map_update_elem(&addresses, key, &fresh, BPF_NOEXIST))
		return MOVED;
	add_learned(member->owner, 1);
	return PASS;
}

#endif
