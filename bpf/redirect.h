/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The redirected path: frames of a vif and direction that needs no queue (no minimum to hold
 * against others, no shaping, no smoothing) are policed here and leave for their target device at
 * once.
 *
 * Frames must not overtake each other. A path therefore *engages* only once all frames that its
 * gate let into user space have left it, and disengages when one enters user space again.
 *
 * Each function returns an XDP action or, where user space must see the frame, one of
 *   -1     an unknown or a group address, an address of another slice, a receiver that is queued;
 *   LEAVE  the same, and the path must disengage: it or its receiver has frames in user space.
 */
#ifndef WEIR_REDIRECT_H
#define WEIR_REDIRECT_H

#include "maps.h"

/* Time is counted in 1/256 ns, modulo 2^64. It wraps every 2.3 years, which differences survive. */
#define TIME_SHIFT 8
#define COST_SHIFT 16

/* 18 minutes, twice the deepest bucket. A time further ahead is one from before a wrap. */
#define DEPTH_MAX (1ull << 48)

/* Beside the actions of XDP, none of which is negative. */
#define LEAVE -2

/* The headers of a slice have 7 bytes at most: 4 of a tag, and 3 (header) or 1 (bare byte) of a
 * parallel internet's number. HEADERS_PIH is the bit that only 3 has. */
#define HEADERS_MASK 7
#define HEADERS_PIH 2

/* Attempts at a bucket. If another processor was faster at each of them, the frame is refused. */
#define BUCKET_TRIES 8

/*
 * Counts frames. A processor with a row of its own needs no atomic, since no program
 * interrupts another: all run in its softirq.
 */
static __always_inline void count_all(struct tally *tally, const struct tally *size)
{
	if (settings.row_is_own) {
		tally->packets += size->packets;
		tally->bytes += size->bytes;
		return;
	}
	__sync_fetch_and_add(&tally->packets, size->packets);
	__sync_fetch_and_add(&tally->bytes, size->bytes);
}

/* Counts one frame. */
static __always_inline void count(struct tally *tally, __u64 bytes)
{
	struct tally size = {1, bytes};

	count_all(tally, &size);
}

static __always_inline struct path_counters *counters_of(__u32 gate)
{
	__u32 index = gate;

	if (settings.rows > 1)
		index += (bpf_get_smp_processor_id() & (settings.rows - 1)) * settings.gates;
	return bpf_map_lookup_elem(&path_counts, &index);
}

/*
 * Takes `time` from the bucket. Returns 1, or 0 if the bucket holds less, or -1 if another
 * processor was faster. Processors race by compare-and-swap, so that no two spend the same credit.
 * With `owes`, a full bucket lets a super-frame through that costs more than it holds, and then
 * fills from below zero.
 */
static __always_inline int try_take(struct bucket *bucket, __u64 time, __u64 now, int owes)
{
	__u64 depth = *(volatile __u64 *)&bucket->depth;
	__u64 needed = owes && time > depth ? depth : time;
	__u64 seen = *(volatile __u64 *)&bucket->full_at;
	__u64 lacking = seen - now;

	/* A debt of DEPTH_MAX would count as none. */
	if (time > DEPTH_MAX / 2)
		return 0;
	if ((__s64)lacking < 0 || lacking > DEPTH_MAX)
		lacking = 0;
	if (lacking + needed > depth)
		return 0;
	if (__sync_val_compare_and_swap(&bucket->full_at, seen, now + lacking + time) == seen)
		return 1;
	return -1;
}

/*
 * Does try_take after another processor was faster. A global function, which the verifier walks
 * once: inlined for each bucket of each path, the attempts alone took it a second.
 */
__noinline int take_again(__u32 index, __u64 time, __u64 now, int owes)
{
	struct bucket *bucket = bpf_map_lookup_elem(&buckets, &index);

	if (!bucket)
		return 0;
	for (int i = 1; i < BUCKET_TRIES; i++) {
		int taken = try_take(bucket, time, now, owes);

		if (taken >= 0)
			return taken;
	}
	return 0;
}

static __always_inline struct bucket *path_bucket(const struct path *path, __u32 position)
{
	__u32 index = path->bucket[position];

	if (!index)
		return 0;
	index--;
	return bpf_map_lookup_elem(&buckets, &index);
}

/*
 * Returns the time that frames cost: by packets at even positions, by bytes at odd ones. The time
 * is rounded up, so that the rate is never exceeded.
 */
static __always_inline __u64 bucket_time(const struct bucket *bucket, __u32 position,
					 const struct tally *cost)
{
	__u64 units = position & 1 ? cost->bytes : cost->packets;

	return (units * bucket->cost + (1 << COST_SHIFT) - 1) >> COST_SHIFT;
}

/*
 * Gives back what frames were charged at the buckets before the one that refuses them, and counts
 * them as its drops. A global function, as take_again.
 */
__noinline int refuse(__u32 gate, __u32 refused, __u64 packets, __u64 bytes)
{
	struct path *path = bpf_map_lookup_elem(&paths, &gate);
	struct path_counters *counters = counters_of(gate);
	struct tally size = {packets, bytes}, cost = size;

	if (!path || !counters)
		return 0;
	cost.bytes += packets * path->overhead;
	/*
	 * Only the loop bounds `refused`. With another bound clang would drop the loop's, and
	 * verifiers before Linux 6.8 would not see that the loop ends.
	 */
	for (__u32 i = 0; i < PATH_BUCKETS; i++) {
		struct bucket *bucket;

		if (i == refused) {
			count_all(&counters->policed[i], &size);
			return 0;
		}
		bucket = path_bucket(path, i);
		if (bucket)
			__sync_fetch_and_add(&bucket->full_at, -bucket_time(bucket, i, &cost));
	}
	return 0;
}

/*
 * Charges every bucket of the path, or none, and counts a drop at the first that refuses. A
 * super-frame costs as much as the frames that it is cut into.
 */
static __always_inline int police_all(const struct path *path, __u32 gate, const struct tally *size,
				      __u64 now)
{
	struct tally cost = {size->packets, size->bytes + size->packets * path->overhead};
	int owes = size->packets > 1;

	for (__u32 i = 0; i < PATH_BUCKETS; i++) {
		struct bucket *bucket = path_bucket(path, i);
		__u64 time;
		int taken;

		if (!bucket)
			continue;
		time = bucket_time(bucket, i, &cost);
		taken = try_take(bucket, time, now, owes);
		if (taken < 0)
			taken = take_again(path->bucket[i] - 1, time, now, owes);
		if (!taken)
			return refuse(gate, i, size->packets, size->bytes);
	}
	return 1;
}

/* Does police_all for one frame. */
static __always_inline int police(const struct path *path, __u32 gate, __u64 length, __u64 now)
{
	struct tally size = {1, length};

	return police_all(path, gate, &size, now);
}

/* Returns whether the path is engaged, and engages it if none of its frames is in user space. */
static __always_inline int engaged(struct path *path, const struct gate *gate)
{
	if (!(*(volatile __u32 *)&path->flags & PATH_REDIRECT))
		return 0;
	if (*(volatile __u32 *)&path->engaged)
		return 1;
	if (*(volatile __u64 *)&gate->accepted_packets != *(volatile __u64 *)&gate->drained)
		return 0;
	*(volatile __u32 *)&path->engaged = 1;
	return 1;
}

/*
 * Disengages the path of a frame that has entered user space, so that no later frame overtakes it.
 * Another processor may engage the path until the gate counts the frame, so call this only after
 * the gate has let the frame in.
 */
static __always_inline void leave(__u32 index)
{
	struct path *path = bpf_map_lookup_elem(&paths, &index);

	if (path && *(volatile __u32 *)&path->engaged)
		*(volatile __u32 *)&path->engaged = 0;
}

/* Compares six bytes as three 16-bit words: both sides are aligned to two. */
static __always_inline int same_address(const __u8 *a, const __u8 *b)
{
	const __u16 *x = (const void *)a, *y = (const void *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

static __always_inline int source_allowed(const struct path *path, const __u8 *source)
{
	if (!path->macs)
		return 1;
	for (__u32 i = 0; i < PATH_MACS; i++) {
		if (i < path->macs && same_address(path->mac[i], source))
			return 1;
	}
	return 0;
}

/* Returns whether the type is that of a header that frames carry only on a port. */
static __always_inline int has_header(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD) ||
	       type == bpf_htons(ETH_P_PIH);
}

/* Makes room for a header of `length` bytes behind the addresses and writes its EtherType. Returns
 * what follows the EtherType, or NULL. */
static __always_inline void *push_header(struct xdp_md *ctx, const int length, __u16 type)
{
	__u8 addresses[12];
	__be16 *protocol;
	void *data;

	data = (void *)(long)ctx->data;
	if (data + sizeof(addresses) > (void *)(long)ctx->data_end)
		return NULL;
	__builtin_memcpy(addresses, data, sizeof(addresses));
	if (bpf_xdp_adjust_head(ctx, -length))
		return NULL;
	data = (void *)(long)ctx->data;
	if (data + sizeof(struct ethhdr) + length > (void *)(long)ctx->data_end)
		return NULL;
	__builtin_memcpy(data, addresses, sizeof(addresses));
	protocol = data + sizeof(addresses);
	*protocol = bpf_htons(type);
	return protocol + 1;
}

static __always_inline int push_tag(struct xdp_md *ctx, __u16 vlan)
{
	__be16 *tag = push_header(ctx, sizeof(struct vlan_header), ETH_P_8021Q);

	if (!tag)
		return -1;
	*tag = bpf_htons(vlan);
	return 0;
}

static __always_inline int push_pih(struct xdp_md *ctx, __u8 number)
{
	struct pih_header *pih = push_header(ctx, sizeof(*pih), ETH_P_PIH);

	if (!pih)
		return -1;
	pih->number = number;
	return 0;
}

/* Puts a bare number behind the Ethernet header. */
static __always_inline int push_number(struct xdp_md *ctx, __u8 number)
{
	struct {
		__u8 ethernet[sizeof(struct ethhdr)];
		__u8 number;
	} head = {.number = number};
	void *data = (void *)(long)ctx->data;

	if (data + sizeof(head.ethernet) > (void *)(long)ctx->data_end)
		return -1;
	__builtin_memcpy(head.ethernet, data, sizeof(head.ethernet));
	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(head.number)))
		return -1;
	data = (void *)(long)ctx->data;
	if (data + sizeof(head) > (void *)(long)ctx->data_end)
		return -1;
	__builtin_memcpy(data, &head, sizeof(head));
	return 0;
}

/* Takes `length` bytes out from behind the first `kept` ones: the addresses, or all of an Ethernet
 * header. */
static __always_inline int pop_header(struct xdp_md *ctx, const int length, const int kept)
{
	__u8 before[sizeof(struct ethhdr)];
	void *data;

	data = (void *)(long)ctx->data;
	if (data + sizeof(struct ethhdr) + length > (void *)(long)ctx->data_end)
		return -1;
	__builtin_memcpy(before, data, kept);
	if (bpf_xdp_adjust_head(ctx, length))
		return -1;
	data = (void *)(long)ctx->data;
	if (data + kept > (void *)(long)ctx->data_end)
		return -1;
	__builtin_memcpy(data, before, kept);
	return 0;
}

/* Puts the headers of the path's slice on a frame that leaves by the port. */
static __always_inline int push_headers(struct xdp_md *ctx, const struct path *path)
{
	if (path->pih == PIH_HEADER && push_pih(ctx, (__u8)path->bridge))
		return -1;
	if (path->pih == PIH_BYTE && push_number(ctx, (__u8)path->bridge))
		return -1;
	return path->vlan ? push_tag(ctx, path->vlan) : 0;
}

static __always_inline int pop_headers(struct xdp_md *ctx, int headers)
{
	int tagged = headers & sizeof(struct vlan_header);

	if (tagged && pop_header(ctx, sizeof(struct vlan_header), 2 * ETH_ALEN))
		return -1;
	if (headers == tagged)
		return 0;
	return headers & HEADERS_PIH ? pop_header(ctx, sizeof(struct pih_header), 2 * ETH_ALEN)
				     : pop_header(ctx, sizeof(__u8), sizeof(struct ethhdr));
}

static __always_inline long send_to(struct station *station, struct path_counters *counters,
				    __u64 length, __u64 now_ns)
{
	count(&counters->redirected, length);
	station->used = now_ns;
	return bpf_redirect_map(&targets, station->target, XDP_DROP);
}

/* Redirects a frame of a vif: to another vif of the bridge, or out by the port. */
static __always_inline long redirect_from_vif(struct xdp_md *ctx, const struct device *device,
					      __u32 index, struct gate *gate)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct path_counters *counters, *other_counters;
	struct ethhdr *ethernet = data;
	struct path *path, *other;
	struct station_key key = {};
	struct station *station;
	struct gate *other_gate;
	__u64 length = end - data;
	__u64 now_ns, now;

	path = bpf_map_lookup_elem(&paths, &index);
	counters = counters_of(index);
	if (!path || !counters || (void *)(ethernet + 1) > end)
		return -1;
	if (!engaged(path, gate))
		return LEAVE;
	/* A vif's frames must not carry headers of a port; user space counts those that do. */
	if (has_header(ethernet->h_proto))
		return -1;
	if (!source_allowed(path, ethernet->h_source)) {
		count(&counters->spoofed, length);
		return XDP_DROP;
	}
	now_ns = bpf_ktime_get_ns();
	now = now_ns << TIME_SHIFT;
	if (!police(path, index, length, now))
		return XDP_DROP;
	if (ethernet->h_dest[0] & 1)
		return -1;
	key.device = path->device;
	key.bridge = path->bridge;
	__builtin_memcpy(key.mac, ethernet->h_dest, ETH_ALEN);
	station = bpf_map_lookup_elem(&stations, &key);
	if (!station || station->target == NO_TARGET || station->slice != path->slice)
		return -1;
	/* To itself: user space counts why it goes nowhere. */
	if (station->target == device->index)
		return -1;
	if (station->kind == STATION_REMOTE) {
		if (push_headers(ctx, path))
			return -1;
		return send_to(station, counters, length, now_ns);
	}
	other = bpf_map_lookup_elem(&paths, &station->gate);
	other_counters = counters_of(station->gate);
	other_gate = bpf_map_lookup_elem(&gates, &station->gate);
	if (!other || !other_counters || !other_gate)
		return -1;
	if (!engaged(other, other_gate)) {
		/*
		 * This frame goes through user space, and the receiver may engage before it has
		 * arrived there. So the sender has to drain, too, before it redirects again.
		 */
		return *(volatile __u32 *)&other->flags & PATH_REDIRECT ? LEAVE : -1;
	}
	if (!police(other, station->gate, length, now)) {
		count(&counters->refused, length);
		return XDP_DROP;
	}
	count(&other_counters->redirected, length);
	count(&other_counters->local, length);
	count(&counters->local, length);
	return send_to(station, counters, length, now_ns);
}

/* Returns whether the tag is the slice's: the bridge of a parallel internet is found without it. */
static __always_inline int same_tag(struct xdp_md *ctx, const struct path *path, int headers)
{
	void *data = (void *)(long)ctx->data;
	__be16 *protocol = data + 2 * ETH_ALEN;
	__u16 vlan = 0;

	if (data + sizeof(struct ethhdr) + sizeof(struct vlan_header) >
	    (void *)(long)ctx->data_end)
		return 0;
	if (headers & sizeof(struct vlan_header))
		vlan = bpf_ntohs(protocol[1]) & VLAN_ID_MASK;
	return vlan == path->vlan;
}

/*
 * Returns true if user space has to see a frame of a port: it has other headers than the slice's,
 * its source has to be learned, or its source is a vif of the bridge (a loop, or a forgery).
 */
static __always_inline int suspect(struct xdp_md *ctx, const struct path *path, int headers)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	struct station_key key = {};
	struct station *station;
	__be16 *protocol;

	if (data + sizeof(*ethernet) + sizeof(struct vlan_header) + sizeof(struct pih_header) > end)
		return 1;
	if (!same_tag(ctx, path, headers))
		return 1;
	/* A bare number is behind the frame's own type. */
	protocol = data + 2 * ETH_ALEN +
		   (headers & (headers & HEADERS_PIH ? HEADERS_MASK : HEADERS_MASK - 1));
	if (has_header(*protocol))
		return 1;
	if (ethernet->h_source[0] & 1)
		return 1;
	key.device = path->device;
	key.bridge = path->bridge;
	__builtin_memcpy(key.mac, ethernet->h_source, ETH_ALEN);
	station = bpf_map_lookup_elem(&stations, &key);
	return !station || station->kind == STATION_VIF;
}

/* Redirects a frame of a port to its receiver. `headers`: the bytes of the slice's headers. */
static __always_inline long redirect_to_vif(struct xdp_md *ctx, struct station *station,
					    struct gate *gate, __u64 length, int headers)
{
	struct path_counters *counters;
	struct path *path;
	__u64 now_ns;

	if (station->target == NO_TARGET)
		return -1;
	path = bpf_map_lookup_elem(&paths, &station->gate);
	counters = counters_of(station->gate);
	if (!path || !counters)
		return -1;
	if (!engaged(path, gate))
		return LEAVE;
	if (suspect(ctx, path, headers))
		return -1;
	/* The headers exist on the port only, and are charged to nobody. */
	length -= headers;
	now_ns = bpf_ktime_get_ns();
	if (!police(path, station->gate, length, now_ns << TIME_SHIFT))
		return XDP_DROP;
	if (pop_headers(ctx, headers))
		return -1;
	return send_to(station, counters, length, now_ns);
}

#endif
