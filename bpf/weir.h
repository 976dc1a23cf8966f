/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The tables that the data-plane program and user space share. Each struct has its twin in
 * weir-ports. Tables outlive the program that made them, so a change here needs another LAYOUT in
 * weir-ports.
 */
#ifndef WEIR_H
#define WEIR_H

#include "tally.h"

enum device_kind {
	DEVICE_VIF = 0,
	DEVICE_PORT = 1,
};

/* One device that the program is attached to; the key is its ifindex. */
struct device {
	__u32 kind;
	/* vif: the gate of its send direction; port: the gate of unknown and multicast frames. */
	__u32 gate;
	/* Index of the socket of receive queue 0; the other queues follow. */
	__u32 socket_base;
	/* Receive queues that have a socket. */
	__u32 queues;
	/* Index into `faults`, and the bridge that a station belongs to. */
	__u32 index;
	/* Longest frame that a chunk of the pool holds. */
	__u32 frame_max;
	/* Whether weir_stand_in is at its ingress hook, to which frames pass without a worker. */
	__u32 passes;
};

/* Size of the table of near devices, which is looked up first; a power of two. */
#define NEAR_DEVICES 1024

/* A device at the index that the low bits of its ifindex give; an ifindex of 0: none. */
struct near_device {
	__u32 ifindex;
	struct device device;
};

enum station_kind {
	/* A vif's own address. */
	STATION_VIF = 0,
	/* An address behind the port: frames from vifs go there, frames from the port do not. */
	STATION_REMOTE = 1,
};

/* No device: frames for the station go through user space. */
#define NO_TARGET 0xffffffffu

/* Where frames for an address go. */
struct station {
	__u32 kind;
	/* STATION_VIF: the gate of its receive direction. */
	__u32 gate;
	/* The device's index, or NO_TARGET. */
	__u32 target;
	__u32 slice;
	/* The target while no worker has its sockets here. */
	__u32 stand_in;
	__u32 reserved;
	/* When a frame was last redirected here, in ns of CLOCK_MONOTONIC; written by the program. */
	__u64 used;
};

/* A vif that frames to a group reach while no worker is here: the place counts from 0. */
struct member_key {
	__u16 device;
	__u16 bridge;
	__u32 place;
};

struct member {
	/* The gate of its receive direction. */
	__u32 gate;
	/* The device's index. */
	__u32 device;
	__u32 slice;
	__u32 reserved;
};

/* Bridges of parallel internets: this and the number, in a header or as a bare byte. */
#define PIH_BRIDGES 0x1000
#define PIH_BYTE_BRIDGES 0x1100

/* Five-tuples of all slices together. */
#define FIVE_TUPLES 64

/* A bit of the word beside the lists. While it is set, numbers of bridges are being given to other
 * slices, and only the switch knows whose a frame is. The lowest bit of the word is the list in
 * force. */
#define FIVE_TUPLES_CHANGE 2

/*
 * A rule for the packets of a slice: a packet matches if each of its values equals the rule's under
 * the mask. Masks are all zeros, for any value, or ones; an address may have a prefix. Addresses
 * and ports are in network order.
 */
struct five_tuple {
	/* IPv4 in the first word. */
	__u32 source[4];
	__u32 source_mask[4];
	__u32 destination[4];
	__u32 destination_mask[4];
	__u16 source_port;
	__u16 source_port_mask;
	__u16 destination_port;
	__u16 destination_port_mask;
	__u8 protocol;
	__u8 protocol_mask;
	/* 4 or 6. */
	__u8 family;
	__u8 family_mask;
	/* The slice's bridge, the same on all ports. */
	__u16 bridge;
	__u16 reserved;
};

/* The first that matches counts. */
struct five_tuples {
	__u32 count;
	__u32 reserved;
	struct five_tuple list[FIVE_TUPLES];
};

/* The bridge of the vifs of all slices without a header, where five-tuples tell some of these
 * slices: for ARP and neighbour discovery. `Port::UNTAGGED` of the policy. */
#define UNTAGGED_BRIDGES 0xffff

/* The address of a receiver on a bridge of a port. The bridge is that of a parallel internet, of a
 * slice that is told by five-tuples, or of a VLAN, else 0; or UNTAGGED_BRIDGES. */
struct station_key {
	__u16 device;
	__u16 bridge;
	__u8 mac[6];
	__u16 zero;
};

/*
 * The credit of one vif and direction: frames pass while accepted < granted.
 * User space writes the first line only, the program the second only.
 */
struct gate {
	__u64 granted;
	/* Frames that have left the switch, dropped or sent: equal to accepted_packets when none is
	 * in user space. */
	__u64 drained;
	__u64 reserved[6];
	__u64 accepted_packets;
	__u64 accepted_bytes;
	__u64 dropped_packets;
	__u64 dropped_bytes;
	__u64 reserved_too[4];
} __attribute__((aligned(64)));

/* Frames of one device that no gate answers for. */
struct faults {
	__u64 malformed;
	__u64 oversize;
	__u64 no_socket;
	__u64 reserved[5];
} __attribute__((aligned(64)));

enum path_flag {
	/* Redirect, as soon as none of its frames is in user space. */
	PATH_REDIRECT = 1,
	/* Police and pass on while no worker has its sockets here. */
	PATH_STAND_IN = 2,
};

/* The form in which the slice's frames carry their number on the port. */
enum pih_form {
	PIH_NONE = 0,
	PIH_HEADER = 1,
	PIH_BYTE = 2,
};

/* Source addresses that a path can check. */
#define PATH_MACS 4

/* Packets and bits of vif, router and slice, in this order. */
#define PATH_BUCKETS 6

/* A vif and direction on the redirected path; same index as its gate. */
struct path {
	__u32 flags;
	/* Set by the program while it redirects; user space clears it with the flags. */
	__u32 engaged;
	/* The port's device index, and the slice's bridge there. */
	__u16 device;
	__u16 bridge;
	__u32 slice;
	/* Bytes that a frame counts beyond its length. */
	__s32 overhead;
	/* The number of addresses in `mac`; 0: any source address is allowed. */
	__u32 macs;
	__u8 mac[PATH_MACS][6];
	/* Index + 1 of each bucket, 0 for no limit. */
	__u32 bucket[PATH_BUCKETS];
	/* The VLAN of the tag that the slice's frames carry on the port, 0 for none. */
	__u16 vlan;
	/* enum pih_form: the number of a parallel internet behind it, which `bridge` has. */
	__u16 pih;
	__u32 reserved[13];
} __attribute__((aligned(64)));

/* The counters of a path: same index, in the row of the processor. */
struct path_counters {
	struct tally redirected;
	struct tally spoofed;
	/* The part of `redirected` between two vifs of the bridge; counted at both. */
	struct tally local;
	/* Frames of a sender that a bucket of the receiving vif refused. */
	struct tally refused;
	/* Drops at each bucket, by position. */
	struct tally policed[PATH_BUCKETS];
} __attribute__((aligned(64)));

/*
 * A token bucket, kept as the time at which it is full again (generic cell rate algorithm). Times
 * are in 1/256 ns, which keeps the error of 64 bytes at 10 Gb/s below 80 parts in a million.
 */
struct bucket {
	/* Time of one unit (packet or byte), times 65 536, rounded up. */
	__u64 cost;
	/* Time of a full bucket. */
	__u64 depth;
	__u64 full_at;
	__u64 reserved[5];
} __attribute__((aligned(64)));

/* The upper half of the word before a frame from a port; the lower 16 bits are its gate. */
#define GATE_MARK 0x57e10000u

#endif
