/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The stand-in of XDP for a worker that has no sockets here, since the node restarts or was killed,
 * where frames cannot pass on (stand_in_stack.h). The program then polices and forwards the frames
 * whose target follows from addresses alone, and drops all others. Frames of a vif for another vif
 * of its slice go there; all its other frames go out by its port. Frames of a port go to the vif
 * that has the address; those to a group or to an unknown address are dropped. Nothing is queued,
 * so no minimum is held.
 *
 * Each function returns an XDP action, or -1 where the frame has no target.
 */
#ifndef WEIR_STAND_IN_H
#define WEIR_STAND_IN_H

#include "redirect.h"

/* Returns whether a frame crosses no bridge: to a reserved group (IEEE 802.1Q, 8.6.3), from a group
 * or from nobody. */
static __always_inline int crosses_none(const struct ethhdr *ethernet)
{
	const __u16 *to = (const void *)ethernet->h_dest, *from = (const void *)ethernet->h_source;

	if (to[0] == bpf_htons(0x0180) && to[1] == bpf_htons(0xc200) &&
	    (to[2] & bpf_htons(0xfff0)) == 0)
		return 1;
	return (ethernet->h_source[0] & 1) || !(from[0] | from[1] | from[2]);
}

/*
 * Returns whether the redirected path has charged a frame of the vif already, before it found no
 * target. Without a worker no path engages or disengages.
 */
static __always_inline int is_charged(const struct path *path)
{
	return *(volatile __u32 *)&path->flags & PATH_REDIRECT &&
	       *(volatile __u32 *)&path->engaged;
}

/* Returns whether a worker has this socket. The kernel removes a socket from the table when it is
 * closed, however its process ends. */
static __always_inline int has_worker(__u32 socket)
{
	return bpf_map_lookup_elem(&sockets, &socket) != 0;
}

static __always_inline struct path *stand_in_path(__u32 index)
{
	struct path *path = bpf_map_lookup_elem(&paths, &index);

	return path && *(volatile __u32 *)&path->flags & PATH_STAND_IN ? path : 0;
}

/*
 * Charges frames to all buckets of a gate's path, or counts them as policed and returns 0. The
 * verifier walks a global function once, not once a caller: inlined into the stand-ins, the buckets
 * alone would have it walk most of the million instructions that it allows.
 */
__noinline int police_gate(__u32 gate, __u64 packets, __u64 bytes)
{
	struct path *path = stand_in_path(gate);
	struct tally size = {packets, bytes};

	return path && police_all(path, gate, &size, bpf_ktime_get_ns() << TIME_SHIFT);
}

static __always_inline long pass_to(struct path_counters *counters, __u32 device, __u64 length)
{
	count(&counters->redirected, length);
	return bpf_redirect_map(&targets, device, XDP_DROP);
}

static __always_inline long stand_in_for_vif(struct xdp_md *ctx, __u32 index)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct path_counters *counters, *other_counters;
	struct path *path = stand_in_path(index), *other;
	struct ethhdr *ethernet = data;
	struct station_key key = {};
	struct station *station = 0;
	__u64 length = end - data;

	counters = counters_of(index);
	if (!path || !counters || (void *)(ethernet + 1) > end || crosses_none(ethernet))
		return -1;
	if (has_header(ethernet->h_proto))
		return -1;
	if (!source_allowed(path, ethernet->h_source)) {
		count(&counters->spoofed, length);
		return XDP_DROP;
	}
	if (!is_charged(path) && !police_gate(index, 1, length))
		return XDP_DROP;
	if (!(ethernet->h_dest[0] & 1)) {
		key.device = path->device;
		key.bridge = path->bridge;
		__builtin_memcpy(key.mac, ethernet->h_dest, ETH_ALEN);
		station = bpf_map_lookup_elem(&stations, &key);
	}
	if (!station || station->kind != STATION_VIF) {
		if (push_headers(ctx, path))
			return -1;
		return pass_to(counters, path->device, length);
	}
	/* Frames of one slice never reach another inside the node. */
	if (station->slice != path->slice || station->stand_in == NO_TARGET)
		return -1;
	other = stand_in_path(station->gate);
	other_counters = counters_of(station->gate);
	if (!other || !other_counters)
		return -1;
	if (!police_gate(station->gate, 1, length)) {
		count(&counters->refused, length);
		return XDP_DROP;
	}
	count(&other_counters->redirected, length);
	count(&other_counters->local, length);
	count(&counters->local, length);
	return pass_to(counters, station->stand_in, length);
}

/* `station`: the vif that has the address on that bridge. `headers`: as in redirect_to_vif. */
static __always_inline long stand_in_for_port(struct xdp_md *ctx, struct station *station,
					      int headers)
{
	__u64 length = (void *)(long)ctx->data_end - (void *)(long)ctx->data;
	struct path_counters *counters;
	struct path *path;

	if (!station || station->stand_in == NO_TARGET)
		return -1;
	path = stand_in_path(station->gate);
	counters = counters_of(station->gate);
	if (!path || !counters)
		return -1;
	/* The bridge of a parallel internet was found without its tag. */
	if (path->pih && !same_tag(ctx, path, headers))
		return -1;
	length -= headers;
	if (!police_gate(station->gate, 1, length))
		return XDP_DROP;
	if (pop_headers(ctx, headers))
		return -1;
	return pass_to(counters, station->stand_in, length);
}

/*
 * Not inlined: nearly all frames are redirected while a worker is here, and must not pay in
 * registers for code that they never run.
 */
static __noinline long stand_in(struct xdp_md *ctx, int of_vif, __u32 index,
				struct station *station, int headers)
{
	return of_vif ? stand_in_for_vif(ctx, index) : stand_in_for_port(ctx, station, headers);
}

#endif
