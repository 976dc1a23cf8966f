// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the C library's memory for this process.

/// Has all threads allocate from one heap, and large blocks go back to the kernel when they are
/// freed. By itself glibc gives each thread that allocates a heap of its own, up to eight for each
/// processor (mallopt(3), `M_ARENA_MAX`): threads that come and go, as those that wait for
/// requests, leave a little in each, and the process grows for hours. And it keeps ever larger
/// blocks in the heap (`M_MMAP_THRESHOLD`, dynamic): a node's resident memory then comes and goes
/// by 2 MB of 68 with the answers that it gives.
///
/// For a process whose hot path does not allocate, neither lock nor mappings cost anything. Call it
/// before other threads start. Elsewhere than with glibc it does nothing.
pub fn keep_little() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, LARGE_BYTES),
        (libc::M_TRIM_THRESHOLD, LARGE_BYTES),
    ] {
        // SAFETY: mallopt takes two numbers and touches no memory of ours; that it refuses would
        // leave things as they are.
        let _taken = unsafe { libc::mallopt(parameter, value) };
    }
}

/// The least size of a block that gets a mapping of its own, as a long answer of the interface
/// does.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 64 * 1024;

#[cfg(test)]
#[cfg(target_env = "gnu")]
mod tests {
    use super::*;

    /// Answers of different lengths: the memory that the first frees makes glibc keep the others in
    /// its heap, under a little that stays.
    #[test]
    fn what_is_large_and_freed_goes_back() {
        keep_little();
        drop(vec![1_u8; BLOCK]);
        let before = resident_pages();
        let (blocks, _stay): (Vec<_>, Vec<_>) =
            (0..64_u8).map(|number| (vec![number; BLOCK], vec![number; 1024])).unzip();
        let held = resident_pages().saturating_sub(before);
        drop(blocks);
        let kept = resident_pages().saturating_sub(before);
        assert!(kept < held / 4, "{kept} of {held} pages");
    }

    const BLOCK: usize = 4 << 20;

    fn resident_pages() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse().unwrap()
    }
}
