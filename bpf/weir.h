/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the data-plane program and user space share. Each struct has its twin in weir-ports. */
#ifndef WEIR_H
#define WEIR_H

#include <linux/types.h>

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
};

/* A receiver on a port's bridge. `vlan` is 0 for frames without a tag. */
struct station_key {
	__u16 device;
	__u16 vlan;
	__u8 mac[6];
	__u16 zero;
};

/*
 * The credit of one vif and direction: frames pass while accepted < granted.
 * User space writes the first line only, the program the second only.
 */
struct gate {
	__u64 granted;
	__u64 reserved[7];
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

/* The word before a frame from a port: this mark above the 16 bits of its gate. */
#define GATE_MARK 0x57e10000u

#endif
