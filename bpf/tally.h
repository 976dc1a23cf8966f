/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#ifndef WEIR_TALLY_H
#define WEIR_TALLY_H

#include <linux/types.h>

/* Frames: how many, and their bytes of layer 2 without FCS. */
struct tally {
	__u64 packets;
	__u64 bytes;
};

#endif
