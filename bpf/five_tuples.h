/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Slices told by five-tuples, where frames of a port have no header that says whose they are. The
 * switch tells them by the same rules. What is left to it here: extension headers other than that
 * of fragments, packets that do not fit their frame, ARP and neighbour discovery.
 */
#ifndef WEIR_FIVE_TUPLES_H
#define WEIR_FIVE_TUPLES_H

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include "maps.h"

/* A frame about which only the switch decides. */
#define UNDECIDED (-1)

/* ARP or neighbour discovery: for all slices without a header. */
#define FOR_ALL (-2)

/* The lowest and the highest ICMPv6 type of neighbour discovery (RFC 4861). */
#define ROUTER_SOLICITATION 133
#define NEIGHBOUR_REDIRECT 137

/* The values of a packet that five-tuples compare. */
struct packet {
	/* IPv4 in the first word. */
	__be32 source[4];
	__be32 destination[4];
	/* 0 if it has no ports. */
	__be16 source_port;
	__be16 destination_port;
	__u32 family;
	__u32 protocol;
};

/* Returns the list in force and whether numbers of bridges change, as FIVE_TUPLES_CHANGE says. */
static __always_inline __u32 five_tuples_state(void)
{
	__u32 zero = 0, *state = bpf_map_lookup_elem(&five_tuples_active, &zero);

	return state ? *(volatile __u32 *)state : 0;
}

/* Returns the five-tuples in force. */
static __always_inline struct five_tuples *five_tuples_in_force(void)
{
	__u32 index = five_tuples_state() & 1;
	struct five_tuples *tuples = bpf_map_lookup_elem(&five_tuples, &index);

	return tuples && tuples->count ? tuples : 0;
}

static __always_inline int has_ports(__u32 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP ||
	       protocol == IPPROTO_UDPLITE;
}

static __always_inline int read_ipv4(void *start, void *end, __u32 room, struct packet *packet)
{
	struct iphdr *ip = start;
	__u32 total, header;
	__be16 *ports;

	if ((void *)(ip + 1) > end || ip->version != 4)
		return UNDECIDED;
	total = bpf_ntohs(ip->tot_len);
	header = ip->ihl * 4;
	if (header < sizeof(*ip) || total < header || total > room)
		return UNDECIDED;
	packet->family = 4;
	packet->source[0] = ip->saddr;
	packet->destination[0] = ip->daddr;
	packet->protocol = ip->protocol;
	/* A fragment but the first has no ports. */
	if (!has_ports(packet->protocol) || total < header + 4 ||
	    ip->frag_off & bpf_htons(0x1fff))
		return 0;
	ports = start + (header & 0x3c);
	if ((void *)(ports + 2) > end)
		return UNDECIDED;
	packet->source_port = ports[0];
	packet->destination_port = ports[1];
	return 0;
}

/* The header of a fragment (RFC 8200, 4.5). */
struct fragment {
	__u8 protocol;
	__u8 reserved;
	__be16 position;
	__be32 identification;
};

static __always_inline int is_extension(__u32 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
	       protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_DSTOPTS ||
	       protocol == IPPROTO_AH;
}

static __always_inline int read_ipv6(void *start, void *end, __u32 room, struct packet *packet)
{
	struct ipv6hdr *ip = start;
	void *next = ip + 1;
	__u32 length, protocol;
	__be16 *ports;
	int later = 0;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return UNDECIDED;
	length = bpf_ntohs(ip->payload_len);
	if (sizeof(*ip) + length > room)
		return UNDECIDED;
	protocol = ip->nexthdr;
	if (protocol == IPPROTO_FRAGMENT) {
		struct fragment *fragment = next;

		if (length < sizeof(*fragment) || (void *)(fragment + 1) > end)
			return UNDECIDED;
		protocol = fragment->protocol;
		later = fragment->position & bpf_htons(0xfff8);
		length -= sizeof(*fragment);
		next = fragment + 1;
	}
	/* A fragment but the first has what its header names, whatever that is. */
	if (!later && is_extension(protocol))
		return UNDECIDED;
	if (!later && protocol == IPPROTO_ICMPV6 && ip->hop_limit == 255) {
		__u8 *kind = next;

		if (!length || (void *)(kind + 1) > end)
			return UNDECIDED;
		if (*kind >= ROUTER_SOLICITATION && *kind <= NEIGHBOUR_REDIRECT)
			return FOR_ALL;
	}
	packet->family = 6;
	__builtin_memcpy(packet->source, &ip->saddr, sizeof(packet->source));
	__builtin_memcpy(packet->destination, &ip->daddr, sizeof(packet->destination));
	packet->protocol = protocol;
	if (!has_ports(protocol) || length < 4 || later)
		return 0;
	ports = next;
	if ((void *)(ports + 2) > end)
		return UNDECIDED;
	packet->source_port = ports[0];
	packet->destination_port = ports[1];
	return 0;
}

/* Returns the bits in which an address differs from a prefix. */
static __always_inline __u32 differs(const __be32 *address, const __be32 *prefix,
				     const __be32 *mask)
{
	return ((address[0] ^ prefix[0]) & mask[0]) | ((address[1] ^ prefix[1]) & mask[1]) |
	       ((address[2] ^ prefix[2]) & mask[2]) | ((address[3] ^ prefix[3]) & mask[3]);
}

/* Returns the bridge of the first five-tuple that matches, or 0. A global function, which the
 * verifier walks once. */
__noinline int first_match(const struct packet *packet)
{
	struct five_tuples *tuples = five_tuples_in_force();

	if (!packet || !tuples)
		return 0;
	for (__u32 i = 0; i < FIVE_TUPLES; i++) {
		struct five_tuple *tuple = &tuples->list[i];
		__u32 differs_in;

		if (i >= tuples->count)
			break;
		/* No branch for each part: the verifier would walk every combination. */
		differs_in = differs(packet->source, tuple->source, tuple->source_mask) |
			     differs(packet->destination, tuple->destination,
				     tuple->destination_mask) |
			     ((packet->source_port ^ tuple->source_port) &
			      tuple->source_port_mask) |
			     ((packet->destination_port ^ tuple->destination_port) &
			      tuple->destination_port_mask) |
			     ((packet->protocol ^ tuple->protocol) & tuple->protocol_mask) |
			     ((packet->family ^ tuple->family) & tuple->family_mask);
		if (!differs_in)
			return tuple->bridge;
	}
	return 0;
}

/*
 * Returns the bridge of a frame without a header: that of the slice whose five-tuple it matches, 0
 * if it matches none, UNDECIDED or FOR_ALL. `start` is what follows the Ethernet header, `room` its
 * bytes, of which those up to `end` can be read.
 */
static __always_inline int bridge_by_five_tuple(void *start, void *end, __u32 room,
						__be16 protocol)
{
	struct packet packet = {};
	int read;

	if (five_tuples_state() & FIVE_TUPLES_CHANGE)
		return UNDECIDED;
	if (!five_tuples_in_force())
		return 0;
	if (protocol == bpf_htons(ETH_P_ARP))
		return FOR_ALL;
	if (protocol == bpf_htons(ETH_P_IP))
		read = read_ipv4(start, end, room, &packet);
	else if (protocol == bpf_htons(ETH_P_IPV6))
		read = read_ipv6(start, end, room, &packet);
	else
		return 0;
	return read ? read : first_match(&packet);
}

#endif
