// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A ring buffer in a file. It keeps the newest payloads in a fixed number of bytes, which are all
//! allocated when the file is made.
//!
//! ```text
//!   header   magic, version, count of blocks, checksum        4096 bytes
//!   block    sequence, checksum of it; then payloads          65536 bytes each
//!   payload  length, checksum of sequence and bytes; bytes; … a length of zero ends the block
//! ```
//!
//! All numbers are little-endian, checksums are CRC-32 (IEEE). Blocks have sequence numbers; block
//! n lies at place n modulo the count of blocks. When a block is full, the oldest block is cleared
//! and reused. An end that a crash left half-written is cleared when the file is opened, and
//! counted as torn. Bytes from an earlier use of a block cannot pass for a payload of this use,
//! since the sequence is part of each checksum.
//!
//! An embedded database would do more than is needed here: there is one writer, one order and no
//! key, written payloads never change, and the size of the file is the bound.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;

/// The ring, open for writing.
#[derive(Debug)]
pub struct RingFile {
    file: File,
    blocks: u64,
    /// The sequence of the block that is written to.
    sequence: u64,
    /// The position of the next payload in that block.
    end: usize,
    torn: u64,
    not_synced: bool,
}

/// A reader of the ring, which may be used while another thread writes.
#[derive(Debug)]
pub struct RingReader {
    file: File,
    blocks: u64,
    sequence: u64,
}

impl RingFile {
    /// Opens the file at `path`, or makes it, with at most `bytes` bytes but at least two blocks. A
    /// file of another size is copied into a file of this size.
    ///
    /// # Errors
    /// The file cannot be made, read or written, or has another version.
    pub fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        let blocks = (bytes.saturating_sub(HEADER as u64) / BLOCK as u64).max(2);
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(no_follow());
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Self::make(path, blocks);
            }
            opened => opened?,
        };
        let has = read_header(&file)?;
        let ring = Self::resume(file, has)?;
        if has == blocks {
            return Ok(ring);
        }
        let beside = beside(path);
        let mut other = Self::make(&beside, blocks)?;
        other.torn = ring.torn;
        let mut copied = Ok(());
        ring.read(|payload| {
            if copied.is_ok() {
                copied = other.append(&[payload]);
            }
        })?;
        copied?;
        other.sync()?;
        fs::rename(&beside, path)?;
        sync_folder(path)?;
        Ok(other)
    }

    /// Makes a file of that many blocks. It is written under another name and then renamed, so that
    /// a crash leaves no partial file at `path`.
    fn make(path: &Path, blocks: u64) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let beside = beside(path);
        let file = create_anew(&beside)?;
        let size = HEADER as u64 + blocks * BLOCK as u64;
        match fallocate(&file, FallocateFlags::empty(), 0, size) {
            // A file system without `fallocate` allocates bytes as they are written.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(size)?,
            allocated => allocated?,
        }
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&blocks.to_le_bytes());
        header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
        file.write_all_at(&header, 0)?;
        let mut ring = Self { file, blocks, sequence: 0, end: BLOCK, torn: 0, not_synced: true };
        ring.next_block()?;
        ring.sync()?;
        fs::rename(&beside, path)?;
        sync_folder(path)?;
        Ok(ring)
    }

    /// Finds the position at which an earlier process stopped writing.
    fn resume(file: File, blocks: u64) -> io::Result<Self> {
        let mut ring = Self { file, blocks, sequence: 0, end: BLOCK, torn: 0, not_synced: false };
        let mut head = [0; BLOCK_HEAD];
        for index in 0..blocks {
            ring.file.read_exact_at(&mut head, place(index))?;
            if let Some(sequence) = sequence_of(&head) {
                ring.sequence = ring.sequence.max(sequence);
            }
        }
        if ring.sequence == 0 {
            ring.next_block()?;
            return Ok(ring);
        }
        let index = ring.sequence % blocks;
        let mut block = vec![0; BLOCK];
        ring.file.read_exact_at(&mut block, place(index))?;
        let (end, whole) = walk(&block, ring.sequence, |_| {});
        ring.end = end;
        if !whole {
            ring.torn = 1;
            let zeros = vec![0; BLOCK - end];
            ring.file.write_all_at(&zeros, place(index) + end as u64)?;
        }
        Ok(ring)
    }

    /// Appends payloads. In a full file they replace the oldest.
    ///
    /// # Errors
    /// The file cannot be written, or a payload is longer than [`PAYLOAD_MAX`].
    pub fn append(&mut self, payloads: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let mut batch = Vec::new();
        for payload in payloads.iter().map(AsRef::as_ref) {
            if payload.is_empty() || payload.len() > PAYLOAD_MAX {
                let text = format!("{} bytes, 1 to {PAYLOAD_MAX} fit", payload.len());
                return Err(io::Error::other(text));
            }
            if self.end + batch.len() + PAYLOAD_HEAD + payload.len() > BLOCK {
                self.write(&batch)?;
                batch.clear();
                self.next_block()?;
            }
            // The length is at most PAYLOAD_MAX.
            let length = u32::try_from(payload.len()).unwrap_or(0);
            batch.extend_from_slice(&length.to_le_bytes());
            batch.extend_from_slice(&checksum(self.sequence, payload).to_le_bytes());
            batch.extend_from_slice(payload);
        }
        self.write(&batch)
    }

    fn write(&mut self, batch: &[u8]) -> io::Result<()> {
        self.file.write_all_at(batch, place(self.sequence % self.blocks) + self.end as u64)?;
        self.end += batch.len();
        self.not_synced = true;
        Ok(())
    }

    /// Clears the oldest block and continues in it.
    fn next_block(&mut self) -> io::Result<()> {
        let sequence = self.sequence + 1;
        let mut block = vec![0; BLOCK];
        let head = sequence.to_le_bytes();
        block[..8].copy_from_slice(&head);
        block[8..12].copy_from_slice(&crc32fast::hash(&head).to_le_bytes());
        self.file.write_all_at(&block, place(sequence % self.blocks))?;
        (self.sequence, self.end) = (sequence, BLOCK_HEAD);
        Ok(())
    }

    /// Syncs all appended payloads to the disk, so that they survive a power cut.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.not_synced) {
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// Calls the function with every payload, oldest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, each: impl FnMut(&[u8])) -> io::Result<()> {
        self.reader()?.read(each).map(drop)
    }

    /// Makes a reader of the payloads that the file has now.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn reader(&self) -> io::Result<RingReader> {
        let (file, blocks, sequence) = (self.file.try_clone()?, self.blocks, self.sequence);
        Ok(RingReader { file, blocks, sequence })
    }

    /// Returns the number of torn ends that were found when the file was opened.
    #[must_use]
    pub const fn torn(&self) -> u64 {
        self.torn
    }

    /// Returns the bytes of the file, which do not change.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        HEADER as u64 + self.blocks * BLOCK as u64
    }
}

impl RingReader {
    /// Calls the function with every payload, oldest first, and returns the number of damaged
    /// blocks. A block that was reused meanwhile is not damaged.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, mut each: impl FnMut(&[u8])) -> io::Result<u64> {
        let mut block = vec![0; BLOCK];
        let mut damaged = 0;
        let oldest = (self.sequence + 1).saturating_sub(self.blocks).max(1);
        for sequence in oldest..=self.sequence {
            let at = place(sequence % self.blocks);
            self.file.read_exact_at(&mut block, at)?;
            let whole = block.first_chunk().and_then(sequence_of) == Some(sequence)
                && walk(&block, sequence, &mut each).1;
            // The rest of a damaged block cannot be read. The newest block is being written, so a
            // partial end there is no damage.
            if !whole && sequence < self.sequence {
                let mut head = [0; BLOCK_HEAD];
                self.file.read_exact_at(&mut head, at)?;
                let reused = sequence_of(&head).is_some_and(|newer| newer > sequence);
                damaged += u64::from(!reused);
            }
        }
        Ok(damaged)
    }
}

/// Calls the function with the payloads of a block. Returns where they end, and whether the rest of
/// the block is clear.
fn walk(block: &[u8], sequence: u64, mut each: impl FnMut(&[u8])) -> (usize, bool) {
    let mut at = BLOCK_HEAD;
    loop {
        let rest = block.get(at..).unwrap_or_default();
        let Some((head, bytes)) = rest.split_first_chunk::<PAYLOAD_HEAD>() else {
            return (at, rest.iter().all(|byte| *byte == 0));
        };
        let [a, b, c, d, sum @ ..] = *head;
        let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length == 0 {
            return (at, rest.iter().all(|byte| *byte == 0));
        }
        let payload = bytes.get(..length);
        match payload.filter(|bytes| checksum(sequence, bytes) == u32::from_le_bytes(sum)) {
            Some(payload) => each(payload),
            None => return (at, false),
        }
        at += PAYLOAD_HEAD + length;
    }
}

/// Reads the count of blocks from the header.
fn read_header(file: &File) -> io::Result<u64> {
    let mut header = [0; MAGIC.len() + 16];
    file.read_exact_at(&mut header, 0)?;
    let (known, sum) = header.split_at(MAGIC.len() + 12);
    let (magic, numbers) = known.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(io::Error::other("this is no store of service records"));
    }
    let version = numbers.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    if version != VERSION {
        return Err(io::Error::other(format!("version {version}; this Weir reads {VERSION}")));
    }
    let blocks = numbers.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let length = blocks.checked_mul(BLOCK as u64).and_then(|all| all.checked_add(HEADER as u64));
    let length_is = file.metadata()?.len();
    let whole = length.is_some_and(|length| length_is >= length);
    if sum != crc32fast::hash(known).to_le_bytes() || blocks < 2 || !whole {
        return Err(io::Error::other("its header is damaged; remove it to begin a new one"));
    }
    Ok(blocks)
}

/// Returns the sequence of a block with this header; `None` if the header is blank or torn.
fn sequence_of(head: &[u8; BLOCK_HEAD]) -> Option<u64> {
    let sequence: &[u8; 8] = head.first_chunk()?;
    let sum = crc32fast::hash(sequence).to_le_bytes();
    let sequence = u64::from_le_bytes(*sequence);
    (head[8..12] == sum && sequence > 0).then_some(sequence)
}

fn checksum(sequence: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&sequence.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// Returns the position in the file of the block at that place.
const fn place(index: u64) -> u64 {
    HEADER as u64 + index * BLOCK as u64
}

/// Writes a folder to the disk, so that a changed name in it survives a power cut.
fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Returns a path beside `path` that no other file of the store uses.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Returns the flag by which `open` follows no symbolic link. Whoever placed such a link would
/// decide which file root writes to.
fn no_follow() -> i32 {
    OFlags::NOFOLLOW.bits().cast_signed()
}

/// Makes a file that only root can read. It must not exist yet, so that no link decides which file
/// is written.
fn create_anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

const MAGIC: &[u8; 12] = b"weir-service";
const VERSION: u32 = 1;

/// The bytes of the header: one page.
const HEADER: usize = 4096;
/// The bytes of a block: two minutes of a node with eight subjects. Reusing a block loses them at
/// once.
const BLOCK: usize = 64 << 10;
const BLOCK_HEAD: usize = 16;
const PAYLOAD_HEAD: usize = 8;

/// The most bytes of a payload.
pub const PAYLOAD_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("weir-ring-{name}-{}", std::process::id()));
        let _absent = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn numbers(ring: &RingFile) -> Vec<u32> {
        let mut all = Vec::new();
        ring.read(|payload| all.push(u32::from_le_bytes(*payload.first_chunk().unwrap()))).unwrap();
        all
    }

    fn payload(number: u32) -> Vec<u8> {
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.resize(100 + number as usize % 50, 7);
        bytes
    }

    /// Appends ten times as much as fits. The size stays, and the newest payloads are kept, in
    /// order, also after reopening.
    #[test]
    fn the_newest_stay_and_the_file_never_grows() {
        let folder = folder("bound");
        let path = folder.join("ring");
        let bytes = (HEADER + 4 * BLOCK) as u64;
        let mut ring = RingFile::open(&path, bytes).unwrap();
        let size = || fs::metadata(&path).unwrap().len();
        assert_eq!((ring.bytes(), size()), (bytes, bytes));
        let blocks = |path: &Path| {
            use std::os::unix::fs::MetadataExt;
            fs::metadata(path).unwrap().blocks()
        };
        let at_first = blocks(&path);
        for number in 0..20_000 {
            ring.append(&[payload(number)]).unwrap();
            if number % 3_000 == 0 {
                ring = RingFile::open(&path, bytes).unwrap();
                assert_eq!(ring.torn(), 0);
            }
        }
        assert_eq!((size(), blocks(&path)), (bytes, at_first), "no byte more on disk");
        let kept = numbers(&ring);
        let first = kept[0];
        assert_eq!(kept, (first..20_000).collect::<Vec<_>>());
        // At least three blocks are full of payloads of 132 bytes on average.
        assert!(kept.len() * 150 > 3 * BLOCK, "{}", kept.len());
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Tries every length of a torn end: payloads before it are whole, and later ones are found.
    #[test]
    fn a_torn_end_is_cleared_and_counted() {
        let folder = folder("torn");
        let path = folder.join("ring");
        let bytes = (HEADER + 2 * BLOCK) as u64;
        let mut ring = RingFile::open(&path, bytes).unwrap();
        ring.append(&[payload(1), payload(2)]).unwrap();
        let (end, at) = (ring.end, place(ring.sequence % ring.blocks));
        ring.append(&[payload(3)]).unwrap();
        let (whole, file) = (ring.end, ring.file.try_clone().unwrap());
        for cut in end..whole {
            // The rest has not reached the disk.
            file.write_all_at(&vec![0; whole - cut], at + cut as u64).unwrap();
            let mut again = RingFile::open(&path, bytes).unwrap();
            assert_eq!(numbers(&again), [1, 2], "cut at {cut}");
            assert_eq!(again.torn(), u64::from(cut > end), "cut at {cut}");
            again.append(&[payload(3)]).unwrap();
            assert_eq!(numbers(&again), [1, 2, 3]);
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    /// One bit of an older block is wrong: the rest of the block is lost, and counted.
    #[test]
    fn damage_is_counted_and_costs_its_block_alone() {
        let folder = folder("damage");
        let path = folder.join("ring");
        let mut ring = RingFile::open(&path, (HEADER + 4 * BLOCK) as u64).unwrap();
        (0..1_200).for_each(|number| ring.append(&[payload(number)]).unwrap());
        let before = numbers(&ring);
        assert_eq!(ring.reader().unwrap().read(|_| {}).unwrap(), 0);
        let at = place((ring.sequence - 1) % ring.blocks) + BLOCK as u64 / 2;
        ring.file.write_all_at(&[0xff; 8], at).unwrap();
        assert_eq!(ring.reader().unwrap().read(|_| {}).unwrap(), 1);
        let lost = before.len() - numbers(&ring).len();
        assert!((200..280).contains(&lost), "{lost}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn another_size_keeps_what_fits() {
        let folder = folder("size");
        let path = folder.join("ring");
        let size = |blocks: usize| (HEADER + blocks * BLOCK) as u64;
        let mut ring = RingFile::open(&path, size(4)).unwrap();
        (0..1_500).for_each(|number| ring.append(&[payload(number)]).unwrap());
        let before = numbers(&ring);
        let larger = RingFile::open(&path, size(8)).unwrap();
        assert_eq!((numbers(&larger), larger.bytes()), (before, size(8)));
        let smaller = RingFile::open(&path, size(2)).unwrap();
        let kept = numbers(&smaller);
        assert_eq!(kept, (kept[0]..1_500).collect::<Vec<_>>());
        assert_eq!(fs::metadata(&path).unwrap().len(), size(2));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn another_version_a_link_and_damage_are_refused() {
        let folder = folder("refused");
        let path = folder.join("ring");
        let bytes = (HEADER + 2 * BLOCK) as u64;
        let ring = RingFile::open(&path, bytes).unwrap();
        ring.file.write_all_at(&2_u32.to_le_bytes(), MAGIC.len() as u64).unwrap();
        let refused = || RingFile::open(&path, bytes).unwrap_err().to_string();
        assert_eq!(refused(), "version 2; this Weir reads 1");
        ring.file.write_all_at(&1_u32.to_le_bytes(), MAGIC.len() as u64).unwrap();
        ring.file.write_all_at(&9_u64.to_le_bytes(), MAGIC.len() as u64 + 4).unwrap();
        assert!(refused().starts_with("its header is damaged"), "{}", refused());
        let link = folder.join("link");
        std::os::unix::fs::symlink(folder.join("victim"), &link).unwrap();
        assert!(RingFile::open(&link, bytes).is_err() && !folder.join("victim").exists());
        let mut ring = RingFile::open(&folder.join("other"), bytes).unwrap();
        assert!(ring.append(&[vec![0; PAYLOAD_MAX + 1]]).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
