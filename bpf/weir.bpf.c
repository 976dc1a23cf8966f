// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The part of the switch that runs on a device before a frame is copied: it finds the gate of the
 * frame, and either hands the frame to the worker's socket or drops and counts it.
 *
 * The gate of a frame from a vif is that of the device. The gate of a frame from a port is that of
 * the vif that has the destination address in that VLAN, or in the slice that a five-tuple tells;
 * unknown and multicast frames share the flood gate of the port. The frames of a redirected vif and
 * direction never enter user space (redirect.h). While no worker has its sockets here, frames pass
 * on to weir_stand_in behind the kernel's receive path (stand_in_stack.h); where that is not
 * attached, and for parallel internets, this program forwards what it can (stand_in.h). No frame
 * ever reaches the protocols of the kernel's own stack: the host is a vif like any other.
 */
#include <linux/pkt_cls.h>

#include "five_tuples.h"
#include "maps.h"
#include "redirect.h"
#include "stand_in.h"
#include "stand_in_stack.h"

enum fault {
	MALFORMED,
	OVERSIZE,
	NO_SOCKET,
};

static __always_inline int count_fault(const struct device *device, enum fault fault)
{
	struct faults *counted = bpf_map_lookup_elem(&faults, &device->index);

	if (counted)
		__sync_fetch_and_add(fault == MALFORMED	 ? &counted->malformed
				     : fault == OVERSIZE ? &counted->oversize
							 : &counted->no_socket,
				     1);
	return XDP_DROP;
}

/* Looks a device up by the low bits of its ifindex, or by hash if another device has the same
 * bits. */
static __always_inline const struct device *find_device(__u32 ifindex)
{
	__u32 slot = ifindex & (NEAR_DEVICES - 1);
	struct near_device *near = bpf_map_lookup_elem(&near_devices, &slot);

	if (near && near->ifindex == ifindex)
		return &near->device;
	return bpf_map_lookup_elem(&devices, &ifindex);
}

/*
 * Takes one frame's credit from the gate. Returns 0 if there is none left. Several processors may
 * ask at once: the credit is counted first and given back if it was too much, so that no frame
 * enters without credit.
 */
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
	return 0;
}

/* Gives back the credit of a frame that was let in but found no socket. */
static __always_inline void give_back(struct gate *gate, __u64 length)
{
	__sync_fetch_and_add(&gate->accepted_packets, -1);
	__sync_fetch_and_add(&gate->accepted_bytes, -length);
}

static __always_inline void count_drop(struct gate *gate, __u64 length)
{
	__sync_fetch_and_add(&gate->dropped_packets, 1);
	__sync_fetch_and_add(&gate->dropped_bytes, length);
}

/*
 * Does bridge_by_five_tuple for a frame from a port. A global function, which the verifier walks
 * once: inlined, each way through a packet's headers would multiply with all that follows.
 */
__noinline int device_bridge_by_five_tuple(struct xdp_md *ctx, __u32 is_tagged, __u32 protocol)
{
	void *start = (void *)(long)ctx->data + sizeof(struct ethhdr);
	void *end = (void *)(long)ctx->data_end;

	if (is_tagged)
		start += sizeof(struct vlan_header);
	if (start > end)
		return UNDECIDED;
	return bridge_by_five_tuple(start, end, end - start, protocol);
}

/*
 * Finds the vif that a frame from a port is for. NULL: the address is unknown, a group's, or behind
 * the port itself. `headers`: the bytes of the slice's headers on the port; -1 if the tag is cut
 * short. User space counts frames whose parallel internet has no vif, or whose header is cut short.
 */
static __always_inline struct station *find_station(struct xdp_md *ctx,
						    const struct device *device, void *data,
						    void *end, int *headers)
{
	struct ethhdr *ethernet = data;
	struct station_key key = {.device = device->index};
	__be16 protocol = ethernet->h_proto;
	struct pih_header *pih = (void *)(ethernet + 1);
	struct station *station;
	int by_tuple;

	*headers = 0;
	if (ethernet->h_proto == bpf_htons(ETH_P_8021Q)) {
		struct vlan_header *vlan = (void *)(ethernet + 1);

		*headers = -1;
		if ((void *)(vlan + 1) > end)
			return 0;
		*headers = sizeof(*vlan);
		key.bridge = bpf_ntohs(vlan->tci) & VLAN_ID_MASK;
		protocol = vlan->protocol;
		pih = (void *)(vlan + 1);
	}
	if (ethernet->h_dest[0] & 1)
		return 0;
	__builtin_memcpy(key.mac, ethernet->h_dest, ETH_ALEN);
	if (protocol == bpf_htons(ETH_P_PIH) && (void *)(pih + 1) <= end) {
		__u16 plain = key.bridge;

		key.bridge = PIH_BRIDGES | pih->number;
		station = bpf_map_lookup_elem(&stations, &key);
		if (station) {
			*headers += sizeof(*pih);
			return station->kind == STATION_VIF ? station : 0;
		}
		key.bridge = plain;
	}
	by_tuple = key.bridge || protocol == bpf_htons(ETH_P_PIH)
		       ? 0
		       : device_bridge_by_five_tuple(ctx, *headers, protocol);
	if (by_tuple > 0)
		key.bridge = by_tuple;
	station = by_tuple < 0 ? 0 : bpf_map_lookup_elem(&stations, &key);
	/* A port whose frames carry bare numbers has no other stations. */
	if (!station && protocol != bpf_htons(ETH_P_PIH) && (void *)(&pih->number + 1) <= end) {
		key.bridge = PIH_BYTE_BRIDGES | pih->number;
		station = bpf_map_lookup_elem(&stations, &key);
		*headers += station ? sizeof(pih->number) : 0;
	}
	return station && station->kind == STATION_VIF ? station : 0;
}

/*
 * Writes the gate that let a frame in into the word before it, from which the worker counts what
 * each gate has in flight. The word replaces metadata that another program may have put there.
 */
static __always_inline void mark_gate(struct xdp_md *ctx, __u32 gate)
{
	int foreign = (void *)(long)ctx->data - (void *)(long)ctx->data_meta;
	__u32 *word;

	if (bpf_xdp_adjust_meta(ctx, foreign - (int)sizeof(*word)))
		return;
	word = (void *)(long)ctx->data_meta;
	if ((void *)(word + 1) <= (void *)(long)ctx->data)
		*word = GATE_MARK | (gate & 0xffff);
}

/* Removes the mark of a frame that is forwarded in the kernel: its receiver would read it. */
static __always_inline void unmark(struct xdp_md *ctx)
{
	if ((void *)(long)ctx->data_meta < (void *)(long)ctx->data)
		bpf_xdp_adjust_meta(ctx, sizeof(__u32));
}

SEC("xdp")
int weir_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 ifindex = ctx->ingress_ifindex;
	__u64 length = end - data;
	const struct device *device;
	struct station *station = 0;
	struct gate *gate;
	__u32 queue, index;
	int headers = 0;
	long action = -1;

	device = find_device(ifindex);
	if (!device)
		return XDP_DROP;
	if (data + sizeof(struct ethhdr) > end)
		return count_fault(device, MALFORMED);
	if (length > device->frame_max)
		return count_fault(device, OVERSIZE);
	queue = ctx->rx_queue_index;
	if (queue >= device->queues)
		return count_fault(device, NO_SOCKET);
	index = device->gate;
	if (device->kind == DEVICE_PORT) {
		station = find_station(ctx, device, data, end, &headers);
		if (headers < 0)
			return count_fault(device, MALFORMED);
		if (station)
			index = station->gate;
	}
	gate = bpf_map_lookup_elem(&gates, &index);
	if (!gate)
		return count_fault(device, NO_SOCKET);
	if (device->kind == DEVICE_VIF)
		action = redirect_from_vif(ctx, device, index, gate);
	else if (station)
		action = redirect_to_vif(ctx, station, gate, length, headers);
	if (action >= 0)
		return action;
	if (enter(gate, length)) {
		if (device->kind == DEVICE_PORT)
			mark_gate(ctx, index);
		if (bpf_redirect_map(&sockets, device->socket_base + queue, 0) == XDP_REDIRECT) {
			if (action == LEAVE)
				leave(index);
			return XDP_REDIRECT;
		}
		give_back(gate, length);
		if (device->kind == DEVICE_PORT)
			unmark(ctx);
	} else if (has_worker(device->socket_base + queue)) {
		count_drop(gate, length);
		return XDP_DROP;
	}
	if (passes_on(device, index, headers))
		return XDP_PASS;
	action = stand_in(ctx, device->kind == DEVICE_VIF, index, station, headers);
	return action >= 0 ? action : count_fault(device, NO_SOCKET);
}

/* Forwards what weir_xdp has passed on, and drops and counts the rest. */
SEC("classifier")
int weir_stand_in(struct __sk_buff *skb)
{
	struct ethhdr ethernet __attribute__((aligned(8)));
	const struct device *device = find_device(skb->ifindex);
	struct tally size;
	long action = -1;

	if (!device)
		return TC_ACT_SHOT;
	if (bpf_skb_load_bytes(skb, 0, &ethernet, sizeof(ethernet))) {
		count_fault(device, MALFORMED);
		return TC_ACT_SHOT;
	}
	if (crosses_none(&ethernet)) {
		count_fault(device, NO_SOCKET);
		return TC_ACT_SHOT;
	}
	measure(skb, &size);
	action = device->kind == DEVICE_VIF ? forward_from_vif(skb, device, &ethernet, &size)
					    : forward_from_port(skb, device, &ethernet, &size);
	if (action >= 0)
		return action;
	count_fault(device, NO_SOCKET);
	return TC_ACT_SHOT;
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
