/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The programs of the kernel's own data plane. The host's bridge forwards; these mark, police and
 * count on its devices (TCX). A super-frame stays whole and counts as the frames that it is cut
 * into: as many packets, each with its headers.
 *
 *   weir_from_vif   ingress of a vif's device: tags, groups, spoofing, limits of what it sends;
 *                   then its class into skb->priority, which finds the class at the port without a
 *                   filter, and into skb->mark, which a host that routes leaves alone
 *   weir_to_vif     egress of a vif's device: frames of other slices or of a slice that is not
 *                   known, limits of what it receives
 *   weir_from_port  ingress of a port's device: addresses of vifs that come from beyond it, and
 *                   frames for a vif that is beyond a limit of what it receives; then, where a vif
 *                   of the port has a receive.min_rate, redirects the frame to the tree of an ifb,
 *                   in its vif's class; behind the tree the kernel receives it at this device
 *                   again, without this program
 *   weir_to_port    egress of a port's device, before the tree: counts what each class of the port
 *                   is offered, and drops what the bridge floods although it is for a vif
 *
 * Frames that are not dropped go on to other programs at the hook. The exception is a frame
 * that leaves past the bridge (`exits`): programs after Weir's at that ingress do not see it.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "measure.h"

/* The sizes here and in weir-kernel are the same. */
#define OWNERS 1024
#define MACS 8
#define LEVELS 3
#define UNITS 4
/* The handle of every tree; the class of a frame is this and the number of its owner. */
#define HANDLE 0x7e10u
/* Added to the number of a vif: its class in the tree for frames from a port. */
#define INBOUND 0x4000u

/* Time is in 1/256 ns, modulo 2^64. */
#define TIME_SHIFT 8
#define COST_SHIFT 16
/* The most units that a frame is charged: those of a BIG TCP super-frame. */
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
	/* The ifindex of its bridge: an address belongs to one vif of a bridge. */
	__u32 bridge;
	/* The most addresses that are learned from it, if `macs` is 0. */
	__u32 macs_max;
	__u16 mac[MACS][ETH_ALEN / 2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, struct member);
} members SEC(".maps");

/* A port; the key is the ifindex of its device. */
struct uplink {
	__u32 bridge;
	/* The ifindex of the device whose tree its frames wait in; 0: they go on at once. */
	__u32 through;
	/* Frames from beyond it with the address of a vif. */
	__u64 moved_packets;
	__u64 moved_bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, struct uplink);
} uplinks SEC(".maps");

/* A device whose frames may leave past the bridge, and that takes such frames; by its ifindex. */
struct exit {
	/* The ifindex of the port, for a vif; that of its bridge, for a port. */
	__u32 to;
	/* The longest frame that the device takes, without FCS. */
	__u32 frame_max;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, struct exit);
} exits SEC(".maps");

/* The slice of each owner; 0 for none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, __u32);
} slices SEC(".maps");

/*
 * The ifindex of each vif's bridge, by owner; 0 for none. A bridge has one port, which has the
 * vif's queue.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, __u32);
} bridges SEC(".maps");

#include "bridge_counts.h"
#include "bridge_limits.h"
#include "bridge_addresses.h"

/*
 * Checks the header of a frame from a vif, in the order of the switch. Takes a priority tag off.
 * `head` is its destination, source and type; `due` is set as `learn` does.
 */
static __always_inline enum reason check_header(struct __sk_buff *skb, const struct member *member,
						const __u16 *head, int *due)
{
	struct address_key key = { .bridge = member->bridge };

	if (skb->vlan_present || is_tag(head[6])) {
		__be16 outer = skb->vlan_present ? skb->vlan_proto : head[6];

		if (outer == bpf_htons(ETH_P_8021AD) || (skb->vlan_present && is_tag(head[6])))
			return NESTED_TAG;
		if (!skb->vlan_present || skb->vlan_tci & 0x0fff)
			return UNEXPECTED_TAG;
		/* A priority tag is no VLAN (802.1Q, 6.9.1). */
		bpf_skb_vlan_pop(skb);
	}
	if (head[3] & bpf_htons(0x0100) || !(head[3] | head[4] | head[5]))
		return BAD_SOURCE;
	if (head[0] == bpf_htons(0x0180) && head[1] == bpf_htons(0xc200) &&
	    !(head[2] & bpf_htons(0xfff0)))
		return RESERVED_GROUP;
	__builtin_memcpy(key.mac, &head[3], ETH_ALEN);
	if (member->macs)
		return is_given(member, key.mac) ? PASS : SPOOFED_MAC;
	return learn(member, &key, skb->ifindex, due);
}

/*
 * Returns the class of a frame from a vif, or of one that waited for its turn; 0 for others. A host
 * that routes rewrites the priority only. Other bits of the mark may be set by others: kube-proxy
 * adds some.
 */
static __always_inline __u32 class_of(struct __sk_buff *skb)
{
	if (skb->priority >> 16 == HANDLE)
		return skb->priority;
	return skb->mark >> 16 == HANDLE ? HANDLE << 16 | (skb->mark & (OWNERS - 1)) : 0;
}

/*
 * Returns the class of a frame that leaves the bridge. Where others rewrote priority and mark, the
 * device by which the frame came to the bridge tells its vif.
 */
static __always_inline __u32 class_at_egress(struct __sk_buff *skb)
{
	__u32 class = class_of(skb), ifindex = skb->ingress_ifindex;
	struct member *sender;

	if (class || !ifindex)
		return class;
	sender = bpf_map_lookup_elem(&members, &ifindex);
	return sender ? HANDLE << 16 | sender->owner : 0;
}

/*
 * Returns true if a vif may receive a frame of this class; else counts the drop. A number that
 * belongs to no slice may be somebody else's mark: such a frame is dropped.
 */
static __always_inline int may_receive(const struct member *member, __u32 class,
				       struct counts *counted, const struct tally *size)
{
	__u32 sender = class & 0xffff, owner = member->owner;
	struct tally *unknown;
	__u32 *slice;

	/* From beyond a port, or from the host itself. */
	if (!class || sender & INBOUND)
		return 1;
	slice = bpf_map_lookup_elem(&slices, &sender);
	if (slice && *slice == member->slice)
		return 1;
	if (slice && *slice) {
		count(&counted->dropped[FOREIGN_SLICE], size);
		return 0;
	}
	unknown = bpf_map_lookup_elem(&unknown_slice, &owner);
	if (unknown)
		count(unknown, size);
	return 0;
}

/* Returns true if a device takes a frame that passes by the bridge. Longer frames are left to the
 * bridge, which drops them. */
static __always_inline int takes(const struct __sk_buff *skb, __u32 device)
{
	struct exit *exit = bpf_map_lookup_elem(&exits, &device);

	return exit && (skb->gso_size || skb->len <= exit->frame_max);
}

/*
 * Returns the ifindex of the device by which a frame from a vif leaves past the bridge, or 0 if it
 * crosses the bridge. The destination was seen beyond the port a moment ago, so that it is neither
 * on another device nor a group. One frame of each source in SEEN_NS crosses the bridge, so that
 * the bridge remembers where the source is.
 */
static __always_inline __u32 exit_of(struct __sk_buff *skb, const struct member *member,
				     const __u16 *head, int due)
{
	__u32 ifindex = skb->ifindex;
	struct exit *exit = bpf_map_lookup_elem(&exits, &ifindex);
	struct address_key key = { .bridge = member->bridge };
	__u64 now, *seen;

	if (!exit || due)
		return 0;
	now = bpf_ktime_get_ns();
	__builtin_memcpy(key.mac, head, ETH_ALEN);
	seen = bpf_map_lookup_elem(&beyond, &key);
	if (!seen || now - *seen >= SETTLE_NS)
		return 0;
	if (member->macs) {
		struct address *given;

		__builtin_memcpy(key.mac, &head[3], ETH_ALEN);
		given = bpf_map_lookup_elem(&addresses, &key);
		if (!given || note_seen(given, given->device, now))
			return 0;
	}
	return takes(skb, exit->to) ? exit->to : 0;
}

SEC("tc")
int weir_from_vif(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct member *member = bpf_map_lookup_elem(&members, &ifindex);
	struct counts *counted = member ? counts_of(member->owner, WAY_SEND) : 0;
	/* Destination, source, type. */
	__u16 head[ETH_HLEN / 2] = {};
	struct tally size;
	enum reason reason;
	__u32 class, exit;
	int due = 0;

	/* A device that was released keeps its program for a moment (deferred by the kernel). */
	if (!member || !counted)
		return NEXT;
	measure(skb, &size);
	/* The kernel hands over no frame that is shorter. */
	bpf_skb_load_bytes(skb, 0, head, sizeof(head));
	reason = check_header(skb, member, head, &due);
	if (reason < REASONS) {
		count(&counted->dropped[reason], &size);
		return DROP;
	}
	if (!police(member, WAY_SEND, &size, counted))
		return DROP;
	class = HANDLE << 16 | member->owner;
	skb->priority = class;
	/* A mark of somebody else stays. */
	if (!skb->mark)
		skb->mark = class;
	count(&counted->passed, &size);
	exit = exit_of(skb, member, head, due);
	return exit ? bpf_redirect(exit, 0) : NEXT;
}

/* Returns the vif that a frame is for, and its address in `found`; 0 if it is for none. */
static __always_inline struct member *vif_of(const struct address_key *to,
					     const struct address **found)
{
	const struct address *address = bpf_map_lookup_elem(&addresses, to);
	struct member *member;
	__u32 device;

	if (!address || !address->device)
		return 0;
	device = address->device;
	member = bpf_map_lookup_elem(&members, &device);
	/* The address may be that of a vif that was here before. */
	if (!member || member->owner != address->owner)
		return 0;
	*found = address;
	return member;
}

/*
 * Returns the vif of an address that the policy gives; 0 if there is none. While that vif is
 * silent, the bridge does not know the address and floods the frame. The vif gets a copy at its own
 * device, and no other device may get one.
 */
static __always_inline struct member *given_to(const struct address_key *to)
{
	const struct address *address = 0;
	struct member *member = vif_of(to, &address);

	return member && address && address->given ? member : 0;
}

/* Returns true, and counts the drop, if a frame is for another vif. */
static __always_inline int is_anothers(struct __sk_buff *skb, const struct member *member,
				       const struct tally *size)
{
	struct address_key to = { .bridge = member->bridge };
	__u32 owner = member->owner;
	struct member *other;
	struct tally *copies;

	/* Most frames are for the vif itself, or for a group. */
	if (bpf_skb_load_bytes(skb, 0, to.mac, sizeof(to.mac)) ||
	    to.mac[0] & bpf_htons(0x0100) || is_given(member, to.mac))
		return 0;
	other = given_to(&to);
	if (!other || other->owner == owner)
		return 0;
	copies = bpf_map_lookup_elem(&flooded, &owner);
	if (copies)
		count(copies, size);
	return 1;
}

SEC("tc")
int weir_to_vif(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct member *member = bpf_map_lookup_elem(&members, &ifindex);
	struct counts *counted = member ? counts_of(member->owner, WAY_RECEIVE) : 0;
	struct tally size;

	/* A device that was released keeps its program for a moment (deferred by the kernel). */
	if (!member || !counted)
		return NEXT;
	measure(skb, &size);
	if (!may_receive(member, class_at_egress(skb), counted, &size))
		return DROP;
	if (is_anothers(skb, member, &size))
		return DROP;
	if (!police(member, WAY_RECEIVE, &size, counted))
		return DROP;
	count(&counted->passed, &size);
	return NEXT;
}

/*
 * Returns true, and counts the drop, if a frame from a port is for a vif whose receive limit is
 * used up. The vif's own program would drop it behind the bridge; dropping it here saves the bridge
 * the work. Frames that pass are charged at the vif's device only, so a bucket is empty only if
 * frames reached it.
 */
static __always_inline int is_beyond_limit(struct __sk_buff *skb, const struct member *member,
					   __u64 now)
{
	__u32 empty = empty_one(member, WAY_RECEIVE, now << TIME_SHIFT);
	struct counts *counted;
	struct tally size;

	if (empty >= 2 * LEVELS)
		return 0;
	counted = counts_of(member->owner, WAY_RECEIVE);
	if (!counted)
		return 0;
	measure(skb, &size);
	count(&counted->policed[empty], &size);
	return 1;
}

/* Judges a frame from a port for the vif of an address, from a source that the bridge knows. */
static __always_inline int towards_vif(struct __sk_buff *skb, const struct address_key *to,
				       __u64 now)
{
	const struct address *address = 0;
	struct member *member = vif_of(to, &address);
	__u32 ifindex = skb->ifindex;

	if (!member || !address)
		return NEXT;
	if (is_beyond_limit(skb, member, now))
		return DROP;
	/* A learned address that is silent may be somewhere else by now: the bridge decides. */
	if (!address->given && now - address->seen >= SETTLE_NS)
		return NEXT;
	if (!bpf_map_lookup_elem(&exits, &ifindex) || !takes(skb, address->device))
		return NEXT;
	return bpf_redirect(address->device, 0);
}

/*
 * Lets a frame from a port wait for its vif's turn in the tree of an ifb. A frame for no vif or for
 * a group waits in the class of the rest. Afterwards the frame comes back behind this hook and
 * crosses the bridge. Its class is no vif's sending class, so that the frame is never taken for one
 * that a vif sent.
 */
static __always_inline int wait_turn(struct __sk_buff *skb, __u32 through,
				     const struct address_key *to, int is_plain, __u64 now)
{
	const struct address *address = 0;
	struct member *member = vif_of(to, &address);

	if (member) {
		__u32 owner = member->owner;
		struct tally *offered = bpf_map_lookup_elem(&inbound, &owner), size;

		if (is_plain && is_beyond_limit(skb, member, now))
			return DROP;
		skb->priority = HANDLE << 16 | INBOUND | owner;
		measure(skb, &size);
		if (offered)
			count(offered, &size);
	}
	return bpf_redirect(through, 0);
}

/*
 * Returns true, and counts the frame, if a source address beyond a port is a vif's, which may not
 * be there. Otherwise notes when the address was seen.
 */
static __always_inline int is_moved(struct __sk_buff *skb, struct uplink *uplink,
				    const struct address_key *from, __u64 *seen, __u64 now)
{
	struct address *address = bpf_map_lookup_elem(&addresses, from);

	/* An address kept for a vif without a device may be another host's until the device
	 * comes. */
	if (address && address->owner != RESERVED) {
		if (address->given || now - address->seen < SETTLE_NS) {
			struct tally size;

			measure(skb, &size);
			__sync_fetch_and_add(&uplink->moved_packets, size.packets);
			__sync_fetch_and_add(&uplink->moved_bytes, size.bytes);
			return 1;
		}
		forget(&addresses, from, address);
	}
	if (seen)
		*seen = now;
	else
		bpf_map_update_elem(&beyond, from, &now, BPF_ANY);
	return 0;
}

SEC("tc")
int weir_from_port(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct uplink *uplink = bpf_map_lookup_elem(&uplinks, &ifindex);
	/* Destination, source. */
	__u16 head[ETH_ALEN] = {};
	struct address_key from = {}, to = {};
	__u64 now, *seen;
	int is_plain, is_new;

	if (!uplink || bpf_skb_load_bytes(skb, 0, head, sizeof(head)))
		return NEXT;
	from.bridge = to.bridge = uplink->bridge;
	__builtin_memcpy(to.mac, head, ETH_ALEN);
	__builtin_memcpy(from.mac, &head[3], ETH_ALEN);
	now = bpf_ktime_get_ns();
	seen = bpf_map_lookup_elem(&beyond, &from);
	/*
	 * An address that was seen a moment ago is no vif's: no vif learns it before SETTLE_NS, and
	 * giving it to a vif removes it here. A frame from any other address crosses the bridge,
	 * if it may, so that the bridge remembers where the address is.
	 */
	is_new = !seen || now - *seen >= SEEN_NS;
	if (is_new && is_moved(skb, uplink, &from, seen, now))
		return DROP;
	/* A tag may name another vif's VLAN, a class another slice: both are judged at the vif. */
	is_plain = !is_new && !skb->vlan_present && !class_of(skb);
	if (uplink->through)
		return wait_turn(skb, uplink->through, &to, is_plain, now);
	return is_plain ? towards_vif(skb, &to, now) : NEXT;
}

/*
 * Returns true if this port has the vif's queue. A frame that the host routed to another port waits
 * there in the class of the rest.
 */
static __always_inline int is_at(const struct uplink *uplink, __u32 owner)
{
	__u32 *bridge = bpf_map_lookup_elem(&bridges, &owner);

	return bridge && *bridge == uplink->bridge;
}

SEC("tc")
int weir_to_port(struct __sk_buff *skb)
{
	__u32 class = class_at_egress(skb), ifindex = skb->ifindex;
	struct uplink *uplink = bpf_map_lookup_elem(&uplinks, &ifindex);
	struct address_key to = {};
	struct port_counts *own;
	struct counts *counted;
	struct tally size;

	/* A device that was released keeps its program for a moment (deferred by the kernel). */
	if (!uplink)
		return NEXT;
	measure(skb, &size);
	/* The tree behind this hook counts the same bytes, extension headers included. */
	size.bytes = skb->wire_len;
	to.bridge = uplink->bridge;
	if (!bpf_skb_load_bytes(skb, 0, to.mac, sizeof(to.mac)) && given_to(&to)) {
		own = port_counts_of(ifindex);
		if (own)
			count(&own->flooded, &size);
		return DROP;
	}
	if (!class || !is_at(uplink, class & 0xffff)) {
		own = port_counts_of(ifindex);
		if (own)
			count(&own->others, &size);
		return NEXT;
	}
	skb->priority = class;
	counted = counts_of(class & 0xffff, WAY_PORT);
	if (counted)
		count(&counted->passed, &size);
	return NEXT;
}

char LICENSE[] SEC("license") = "MIT";
