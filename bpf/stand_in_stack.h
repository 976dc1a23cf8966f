/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The stand-in for a worker that has no sockets here, since the node restarts or was killed. It
 * runs at the ingress hook of a device, behind XDP, and the kernel transmits what it forwards: so
 * any device takes the frames, unfinished checksums are finished where they must be, super-frames
 * are cut, and the device's own queueing discipline has them.
 *
 * Frames of a vif for another vif of its slice go there, those to a group to all of them and out by
 * the port, all others out by the port alone. Frames of a port go to the vif that has the address,
 * those to a group to all vifs of the bridge. Each path's limits hold, by the segments of a
 * super-frame. Nothing is queued here, so no minimum is held.
 *
 * Each function that forwards returns a verdict of tc, or -1 where the frame has no target.
 */
#ifndef WEIR_STAND_IN_STACK_H
#define WEIR_STAND_IN_STACK_H

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>

#include "five_tuples.h"
#include "measure.h"
#include "stand_in.h"

/* The most vifs of a bridge that a frame to a group reaches: those in the first places. */
#define MEMBERS_MAX 256

/* The rate and the burst of the copies of frames to groups that a device may cause. */
#define COPIES_A_SECOND 4096
#define COPIES_AT_ONCE 1024

/*
 * Returns whether weir_xdp leaves a frame to this program. It cannot remove the number of a
 * parallel internet, so such frames stay with XDP. `headers`: those of a frame from a port.
 */
static __always_inline int passes_on(const struct device *device, __u32 index, int headers)
{
	struct path *path;

	if (!device->passes || headers & ~(int)sizeof(struct vlan_header))
		return 0;
	path = device->kind == DEVICE_VIF ? stand_in_path(index) : 0;
	return !path || !path->pih;
}

/* Returns the ifindex of a device, 0 for none. */
static __always_inline __u32 ifindex_of(__u32 device)
{
	__u32 *ifindex = bpf_map_lookup_elem(&ifindexes, &device);

	return ifindex ? *ifindex : 0;
}

/*
 * Takes a copy from the bucket of the sending device, since copies cost time that all share.
 * Returns false if the bucket has none left.
 */
static __always_inline int may_copy(__u32 device)
{
	__u64 *full_at = bpf_map_lookup_elem(&copies, &device);
	__u64 now = bpf_ktime_get_ns(), time = 1000000000ull / COPIES_A_SECOND, seen, lacking;

	if (!full_at)
		return 0;
	seen = *(volatile __u64 *)full_at;
	lacking = seen > now ? seen - now : 0;
	if (lacking + time > COPIES_AT_ONCE * time)
		return 0;
	/* Another processor was faster: then this copy is not made. */
	return __sync_val_compare_and_swap(full_at, seen, now + lacking + time) == seen;
}

/* A frame to a group, and the member of its bridge whose turn it is. */
struct copy {
	struct member_key key;
	/* The device that it came from. */
	__u32 from;
	/* Whether it is a vif's; then only members of its slice have it. */
	__u32 local;
	__u32 slice;
	struct tally size;
};

/*
 * Gives the member a copy of the frame, unless it is the sender or, for a vif's frame, of another
 * slice. Returns 1 if it did, 0 if not, -1 if no further member gets one. The verifier walks a
 * global function once, not once a member.
 */
__noinline int copy_to_member(struct __sk_buff *skb, const struct copy *copy)
{
	struct path_counters *counters;
	struct member_key key;
	struct member *member;
	struct path *path;
	__u32 ifindex;

	if (!copy)
		return -1;
	/* Verifiers before Linux 6.2 take no key from an argument's memory. */
	key = copy->key;
	member = bpf_map_lookup_elem(&members, &key);
	if (!member)
		return -1;
	if (member->device == copy->from || (copy->local && member->slice != copy->slice))
		return 0;
	if (!may_copy(copy->from))
		return -1;
	path = stand_in_path(member->gate);
	counters = counters_of(member->gate);
	ifindex = ifindex_of(member->device);
	if (!path || !counters || !ifindex || path->pih)
		return 0;
	if (!police_gate(member->gate, copy->size.packets, copy->size.bytes))
		return 0;
	if (bpf_clone_redirect(skb, ifindex, 0))
		return 0;
	count_all(&counters->redirected, &copy->size);
	if (copy->local)
		count_all(&counters->local, &copy->size);
	return 1;
}

/* Copies a frame for the vifs of a bridge. Returns how many have one. */
static __always_inline __u32 copy_to_members(struct __sk_buff *skb, struct copy *copy)
{
	__u32 copied = 0;

	for (__u32 place = 0; place < MEMBERS_MAX; place++) {
		int given;

		copy->key.place = place;
		given = copy_to_member(skb, copy);
		if (given < 0)
			break;
		copied += given;
	}
	return copied;
}

static __always_inline long forward_from_vif(struct __sk_buff *skb, const struct device *device,
					     const struct ethhdr *ethernet,
					     const struct tally *size)
{
	struct path *path = stand_in_path(device->gate), *other;
	struct path_counters *counters = counters_of(device->gate), *other_counters;
	struct station *station = 0;
	__u32 ifindex;

	if (!path || !counters || path->pih)
		return -1;
	/* A vif's frames must not carry headers of a port. */
	if (skb->vlan_present || has_header(ethernet->h_proto))
		return -1;
	if (!source_allowed(path, ethernet->h_source)) {
		count_all(&counters->spoofed, size);
		return TC_ACT_SHOT;
	}
	if (!is_charged(path) && !police_gate(device->gate, size->packets, size->bytes))
		return TC_ACT_SHOT;
	if (ethernet->h_dest[0] & 1) {
		struct copy copy = {
			.key = {path->device, path->bridge, 0},
			.from = device->index,
			.local = 1,
			.slice = path->slice,
			.size = *size,
		};

		copy_to_members(skb, &copy);
	} else {
		struct station_key key = {.device = path->device, .bridge = path->bridge};

		__builtin_memcpy(key.mac, ethernet->h_dest, ETH_ALEN);
		station = bpf_map_lookup_elem(&stations, &key);
	}
	if (!station || station->kind != STATION_VIF) {
		ifindex = ifindex_of(path->device);
		if (!ifindex)
			return -1;
		if (path->vlan && bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), path->vlan))
			return -1;
		count_all(&counters->redirected, size);
		return bpf_redirect(ifindex, 0);
	}
	/* Frames of one slice never reach another inside the node; nor does one go back. */
	if (station->slice != path->slice || station->stand_in == NO_TARGET ||
	    station->stand_in == device->index)
		return -1;
	other = stand_in_path(station->gate);
	other_counters = counters_of(station->gate);
	ifindex = ifindex_of(station->stand_in);
	if (!other || !other_counters || !ifindex)
		return -1;
	if (!police_gate(station->gate, size->packets, size->bytes)) {
		count_all(&counters->refused, size);
		return TC_ACT_SHOT;
	}
	count_all(&other_counters->redirected, size);
	count_all(&other_counters->local, size);
	count_all(&counters->redirected, size);
	count_all(&counters->local, size);
	return bpf_redirect(ifindex, 0);
}

/* Does bridge_by_five_tuple for a frame whose headers may lie elsewhere. A global function, as
 * copy_to_member. */
__noinline int stack_bridge_by_five_tuple(struct __sk_buff *skb, __u32 protocol)
{
	/* With options of IPv4, or the header of a fragment, and ports. */
	__u32 head = sizeof(struct ethhdr) + 60 + 4;

	if (!five_tuples_state() && !five_tuples_in_force())
		return 0;
	/* A shorter frame has all there is. */
	bpf_skb_pull_data(skb, skb->len < head ? skb->len : head);
	return bridge_by_five_tuple((void *)(long)skb->data + sizeof(struct ethhdr),
				    (void *)(long)skb->data_end,
				    skb->len - sizeof(struct ethhdr), protocol);
}

static __always_inline long forward_from_port(struct __sk_buff *skb, const struct device *device,
					      const struct ethhdr *ethernet,
					      const struct tally *size)
{
	struct station_key key = {.device = device->index};
	struct path_counters *counters;
	struct station *station;
	struct path *path;
	__u32 ifindex;

	if (skb->vlan_present) {
		if (skb->vlan_proto != bpf_htons(ETH_P_8021Q))
			return -1;
		key.bridge = skb->vlan_tci & VLAN_ID_MASK;
	}
	if (has_header(ethernet->h_proto))
		return -1;
	if (!key.bridge) {
		int told = stack_bridge_by_five_tuple(skb, ethernet->h_proto);

		if (told == UNDECIDED)
			return -1;
		key.bridge = told == FOR_ALL ? UNTAGGED_BRIDGES : told;
	}
	/* The address of a vif from beyond the port: a loop, or a forgery. */
	__builtin_memcpy(key.mac, ethernet->h_source, ETH_ALEN);
	station = bpf_map_lookup_elem(&stations, &key);
	if (station && station->kind == STATION_VIF)
		return -1;
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return -1;
	if (ethernet->h_dest[0] & 1) {
		struct copy copy = {
			.key = {key.device, key.bridge, 0},
			.from = device->index,
			.size = *size,
		};

		return copy_to_members(skb, &copy) ? TC_ACT_SHOT : -1;
	}
	__builtin_memcpy(key.mac, ethernet->h_dest, ETH_ALEN);
	station = bpf_map_lookup_elem(&stations, &key);
	if (!station || station->kind != STATION_VIF || station->stand_in == NO_TARGET)
		return -1;
	path = stand_in_path(station->gate);
	counters = counters_of(station->gate);
	ifindex = ifindex_of(station->stand_in);
	if (!path || !counters || !ifindex || path->pih)
		return -1;
	if (!police_gate(station->gate, size->packets, size->bytes))
		return TC_ACT_SHOT;
	count_all(&counters->redirected, size);
	return bpf_redirect(ifindex, 0);
}

#endif
