// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The part of the switch that runs before a frame costs anything: classify, ask the gate, and
 * either hand the frame to the worker's socket or drop it where it stands, counted.
 *
 * A vif's frames are its own, by device. A port's frames belong to the vif that has the
 * destination address in that VLAN; unknown and multicast ones share the port's flood gate.
 * No frame is ever passed to the kernel's own stack: the host is a vif like any other.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir.h"

#define VLAN_ID_MASK 0x0fff

struct vlan_header {
	__be16 tci;
	__be16 protocol;
};

/* Sizes of these maps are set before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct device);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct station_key);
	__type(value, __u32);
} stations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct gate);
} gates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct faults);
} faults SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

static __always_inline int count_fault(__u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
	return XDP_DROP;
}

/* Whether one more frame may enter. Several processors may ask at once: none enters unpaid. */
static __always_inline int enter(struct gate *gate, __u64 length)
{
	__u64 granted = *(volatile __u64 *)&gate->granted;

	if (*(volatile __u64 *)&gate->accepted_packets < granted) {
		if (__sync_fetch_and_add(&gate->accepted_packets, 1) < granted) {
			__sync_fetch_and_add(&gate->accepted_bytes, length);
			return 1;
		}
		__sync_fetch_and_add(&gate->accepted_packets, -1);
	}
	__sync_fetch_and_add(&gate->dropped_packets, 1);
	__sync_fetch_and_add(&gate->dropped_bytes, length);
	return 0;
}

/* The gate of a frame that came in through a port, or -1 if the frame is cut short. */
static __always_inline long station_gate(const struct device *device, void *data, void *end)
{
	struct ethhdr *ethernet = data;
	struct station_key key = {.device = device->index};
	__u32 *gate;

	if (ethernet->h_proto == bpf_htons(ETH_P_8021Q)) {
		struct vlan_header *vlan = (void *)(ethernet + 1);

		if ((void *)(vlan + 1) > end)
			return -1;
		key.vlan = bpf_ntohs(vlan->tci) & VLAN_ID_MASK;
	}
	if (ethernet->h_dest[0] & 1)
		return device->gate;
	__builtin_memcpy(key.mac, ethernet->h_dest, ETH_ALEN);
	gate = bpf_map_lookup_elem(&stations, &key);
	return gate ? *gate : device->gate;
}

/* Tells the worker which gate let the frame in, so that it knows what each has in flight. */
static __always_inline void mark_gate(struct xdp_md *ctx, __u32 gate)
{
	__u32 *word;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*word)))
		return;
	word = (void *)(long)ctx->data_meta;
	if ((void *)(word + 1) <= (void *)(long)ctx->data)
		*word = GATE_MARK | (gate & 0xffff);
}

SEC("xdp")
int weir_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 ifindex = ctx->ingress_ifindex;
	__u64 length = end - data;
	struct device *device;
	struct faults *fault;
	struct gate *gate;
	__u32 queue, index;

	device = bpf_map_lookup_elem(&devices, &ifindex);
	if (!device)
		return XDP_DROP;
	fault = bpf_map_lookup_elem(&faults, &device->index);
	if (!fault)
		return XDP_DROP;
	if (data + sizeof(struct ethhdr) > end)
		return count_fault(&fault->malformed);
	if (length > device->frame_max)
		return count_fault(&fault->oversize);
	queue = ctx->rx_queue_index;
	if (queue >= device->queues)
		return count_fault(&fault->no_socket);
	index = device->gate;
	if (device->kind == DEVICE_PORT) {
		long found = station_gate(device, data, end);

		if (found < 0)
			return count_fault(&fault->malformed);
		index = found;
	}
	gate = bpf_map_lookup_elem(&gates, &index);
	if (!gate)
		return count_fault(&fault->no_socket);
	if (!enter(gate, length))
		return XDP_DROP;
	if (device->kind == DEVICE_PORT)
		mark_gate(ctx, index);
	return bpf_redirect_map(&sockets, device->socket_base + queue, XDP_DROP);
}

/*
 * For a device read through a packet socket: the socket has its copy before this runs, and the
 * kernel's own stack must not answer too.
 */
SEC("classifier")
int weir_discard(struct __sk_buff *skb)
{
	(void)skb;
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "MIT";
