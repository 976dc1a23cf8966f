/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The tables of the data-plane program. Their sizes are set before it is loaded. */
#ifndef WEIR_MAPS_H
#define WEIR_MAPS_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "weir.h"

#define VLAN_ID_MASK 0x0fff

struct vlan_header {
	__be16 tci;
	__be16 protocol;
};

/* IEEE 802 local experimental type 1: a parallel internet's number, then the frame's own type. On
 * links of PIH_BYTE the number alone follows the frame's own type. */
#define ETH_P_PIH 0x88b5

struct pih_header {
	__u8 number;
	__be16 protocol;
} __attribute__((packed));

/* The devices, by ifindex. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct device);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NEAR_DEVICES);
	__type(key, __u32);
	__type(value, struct near_device);
} near_devices SEC(".maps");

/* Set before the program is loaded, so that branches which they rule out cost nothing. */
const volatile struct {
	__u64 gates;
	/* Rows of `path_counts`, a power of two; a processor counts in the row of its low bits. */
	__u64 rows;
	/* Whether no two processors share a row. */
	__u64 row_is_own;
} settings = {1, 1, 0};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct station_key);
	__type(value, struct station);
} stations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct member_key);
	__type(value, struct member);
} members SEC(".maps");

/* One list is in force while the other is written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct five_tuples);
} five_tuples SEC(".maps");

/* The list in force, and FIVE_TUPLES_CHANGE. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} five_tuples_active SEC(".maps");

#define SHARED_ARRAY(name, entry)                                                                  \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
		__uint(max_entries, 1);                                                            \
		__uint(map_flags, BPF_F_MMAPABLE);                                                 \
		__type(key, __u32);                                                                \
		__type(value, struct entry);                                                       \
	} name SEC(".maps")

SHARED_ARRAY(gates, gate);
SHARED_ARRAY(paths, path);
SHARED_ARRAY(path_counts, path_counters);
SHARED_ARRAY(buckets, bucket);
SHARED_ARRAY(faults, faults);

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* The ifindex of each device by index, 0 for none: `targets` is for XDP alone. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} ifindexes SEC(".maps");

/* By index of the sending device: when the bucket of the copies that the stand-in makes is full. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} copies SEC(".maps");

/* Devices to redirect to, by index. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

#endif
