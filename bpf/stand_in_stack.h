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

#include "measure.h"
#include "stand_in.h"

/* Vifs of a bridge that a frame to a group reaches at most: those in the first places. */
#define MEMBERS_MAX 256

static __always_inline int has_header(__be16 type)
{
	return is_tag(type) || type == bpf_htons(ETH_P_PIH);
}

/*
 * Returns whether weir_xdp leaves a frame to this program, which cannot take the number of a
 * parallel internet out. `headers`: those of a frame from a port.
 */
static __always_inline int passes_on(const struct device *device, __u32 index, int headers)
{
	struct path *path;

	if (!device->passes || headers & ~(int)sizeof(struct vlan_header))
		return 0;
	path = device->kind == DEVICE_VIF ? stand_in_path(index) : 0;
	return !path || !path->pih;
}

static __always_inline long transmit(__u32 device)
{
	__u32 *ifindex = bpf_map_lookup_elem(&ifindexes, &device);

	return ifindex && *ifindex ? bpf_redirect(*ifindex, 0) : TC_ACT_SHOT;
}

/* Gives a vif a copy of a frame. The verifier walks a global function once, not once a member. */
__noinline int copy_to_vif(struct __sk_buff *skb, __u32 gate, __u32 device, __u64 packets,
			   __u64 bytes)
{
	struct path *path = stand_in_path(gate);
	struct path_counters *counters = counters_of(gate);
	__u32 *ifindex = bpf_map_lookup_elem(&ifindexes, &device);
	struct tally size = {packets, bytes};

	if (!path || !counters || !ifindex || !*ifindex || path->pih)
		return 0;
	if (!police_all(path, counters, &size, bpf_ktime_get_ns() << TIME_SHIFT))
		return 0;
	count_all(&counters->redirected, &size);
	bpf_clone_redirect(skb, *ifindex, 0);
	return 0;
}

/* Copies a frame for the vifs of a bridge: all but the sender's, or those of the sender's slice. */
static __always_inline void copy_to_members(struct __sk_buff *skb, struct member_key key,
					    const struct device *from, const struct path *sender,
					    const struct tally *size)
{
	for (__u32 place = 0; place < MEMBERS_MAX; place++) {
		struct member *member;

		key.place = place;
		member = bpf_map_lookup_elem(&members, &key);
		if (!member)
			break;
		if (member->device == from->index || (sender && member->slice != sender->slice))
			continue;
		copy_to_vif(skb, member->gate, member->device, size->packets, size->bytes);
	}
}

static __always_inline long forward_from_vif(struct __sk_buff *skb, const struct device *device,
					     const struct ethhdr *ethernet,
					     const struct tally *size)
{
	struct path *path = stand_in_path(device->gate), *other;
	struct path_counters *counters = counters_of(device->gate), *other_counters;
	__u64 now = bpf_ktime_get_ns() << TIME_SHIFT;
	struct station *station = 0;

	if (!path || !counters || path->pih)
		return -1;
	/* A vif's frames must not carry headers of a port. */
	if (skb->vlan_present || has_header(ethernet->h_proto))
		return -1;
	if (!source_allowed(path, ethernet->h_source)) {
		count_all(&counters->spoofed, size);
		return TC_ACT_SHOT;
	}
	if (!police_all(path, counters, size, now))
		return TC_ACT_SHOT;
	if (ethernet->h_dest[0] & 1) {
		struct member_key key = {path->device, path->bridge, 0};

		copy_to_members(skb, key, device, path, size);
	} else {
		struct station_key key = {.device = path->device, .bridge = path->bridge};

		__builtin_memcpy(key.mac, ethernet->h_dest, ETH_ALEN);
		station = bpf_map_lookup_elem(&stations, &key);
	}
	if (!station || station->kind != STATION_VIF) {
		if (path->vlan && bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), path->vlan))
			return -1;
		count_all(&counters->redirected, size);
		return transmit(path->device);
	}
	/* Frames of one slice never reach another inside the node; nor does one go back. */
	if (station->slice != path->slice || station->stand_in == NO_TARGET ||
	    station->stand_in == device->index)
		return -1;
	other = stand_in_path(station->gate);
	other_counters = counters_of(station->gate);
	if (!other || !other_counters)
		return -1;
	if (!police_all(other, other_counters, size, now)) {
		count_all(&counters->refused, size);
		return TC_ACT_SHOT;
	}
	count_all(&other_counters->redirected, size);
	count_all(&other_counters->local, size);
	count_all(&counters->redirected, size);
	count_all(&counters->local, size);
	return transmit(station->stand_in);
}

static __always_inline long forward_from_port(struct __sk_buff *skb, const struct device *device,
					      const struct ethhdr *ethernet,
					      const struct tally *size)
{
	struct station_key key = {.device = device->index};
	struct path_counters *counters;
	struct station *station;
	struct path *path;

	if (skb->vlan_present) {
		if (skb->vlan_proto != bpf_htons(ETH_P_8021Q))
			return -1;
		key.bridge = skb->vlan_tci & VLAN_ID_MASK;
	}
	if (has_header(ethernet->h_proto))
		return -1;
	/* The address of a vif from beyond the port: a loop, or a forgery. */
	__builtin_memcpy(key.mac, ethernet->h_source, ETH_ALEN);
	station = bpf_map_lookup_elem(&stations, &key);
	if (station && station->kind == STATION_VIF)
		return -1;
	if (skb->vlan_present && bpf_skb_vlan_pop(skb))
		return -1;
	if (ethernet->h_dest[0] & 1) {
		struct member_key group = {key.device, key.bridge, 0};

		copy_to_members(skb, group, device, 0, size);
		return TC_ACT_SHOT;
	}
	__builtin_memcpy(key.mac, ethernet->h_dest, ETH_ALEN);
	station = bpf_map_lookup_elem(&stations, &key);
	if (!station || station->kind != STATION_VIF || station->stand_in == NO_TARGET)
		return -1;
	path = stand_in_path(station->gate);
	counters = counters_of(station->gate);
	if (!path || !counters || path->pih)
		return -1;
	if (!police_all(path, counters, size, bpf_ktime_get_ns() << TIME_SHIFT))
		return TC_ACT_SHOT;
	count_all(&counters->redirected, size);
	return transmit(station->stand_in);
}

#endif
