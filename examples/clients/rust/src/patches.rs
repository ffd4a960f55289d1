//! Patches, put together from the frames of one picture and checked as they arrive.

use std::mem;

use anyhow::{Result, bail, ensure};
use interlock_protos::preprocess::v1::patch_frame::Frame;
use interlock_protos::preprocess::v1::{ImageError, PatchDtype, PatchFrame, PatchHeader};
use sha2::{Digest, Sha256};

const BYTES_A_NUMBER: u64 = 2;
const CHANNELS: u64 = 3;

/// A whole picture.
#[derive(Debug)]
pub struct Patches {
    pub header: PatchHeader,
    /// bfloat16, little-endian, in C order: grid row, grid column, channel, row, column.
    pub data: Vec<u8>,
    /// CRC-32C of `data`, as the trailer had it and as it was found.
    pub crc32c: u32,
}

/// How a picture ended.
#[derive(Debug)]
pub enum Outcome {
    Patches(Patches),
    Failed(ImageError),
}

/// Reads the frames of one picture.
#[derive(Default)]
pub struct PatchReader {
    header: Option<PatchHeader>,
    data: Vec<u8>,
}

impl PatchReader {
    /// Takes a frame; gives the outcome with the last one.
    ///
    /// # Errors
    ///
    /// The frames do not add up: what came is not what was sent.
    pub fn read(&mut self, frame: PatchFrame) -> Result<Option<Outcome>> {
        match frame.frame {
            Some(Frame::Header(header)) => self.begin(header)?,
            Some(Frame::Chunk(chunk)) => self.add(chunk.first_patch, &chunk.data)?,
            Some(Frame::Trailer(trailer)) => return Ok(Some(Outcome::Patches(self.whole(trailer.crc32c)?))),
            Some(Frame::Error(error)) => return Ok(Some(Outcome::Failed(error))),
            Some(Frame::Settings(_) | Frame::SourceNeeded(_)) | None => {} // nothing that belongs to the patches
        }
        Ok(None)
    }

    fn begin(&mut self, header: PatchHeader) -> Result<()> {
        let plan = header.plan.unwrap_or_default();
        let due = u64::from(plan.grid_width) * u64::from(plan.grid_height) * bytes_of_patch(&header);
        ensure!(header.dtype() == PatchDtype::Bf16, "the numbers are of type {}", header.dtype);
        ensure!(header.total_bytes == due, "{} bytes are announced, not {due}", header.total_bytes);
        self.data = Vec::with_capacity(usize::try_from(due)?);
        self.header = Some(header);
        Ok(())
    }

    fn add(&mut self, first_patch: u32, data: &[u8]) -> Result<()> {
        let Some(header) = &self.header else { bail!("a chunk comes before the header") };
        let (received, more) = (self.data.len() as u64, data.len() as u64);
        let offset = u64::from(first_patch) * bytes_of_patch(header);
        ensure!(offset == received, "a chunk begins at patch {first_patch}, after {received} bytes");
        ensure!(received + more <= header.total_bytes, "more bytes than announced");
        self.data.extend_from_slice(data);
        Ok(())
    }

    fn whole(&mut self, sent: u32) -> Result<Patches> {
        let Some(header) = self.header.take() else { bail!("a trailer comes before the header") };
        let data = mem::take(&mut self.data);
        ensure!(data.len() as u64 == header.total_bytes, "ended after {} of {} bytes", data.len(), header.total_bytes);
        let found = crc32c::crc32c(&data);
        ensure!(found == sent, "the CRC-32C is {found}, not {sent}");
        Ok(Patches { header, data, crc32c: found })
    }
}

fn bytes_of_patch(header: &PatchHeader) -> u64 {
    CHANNELS * u64::from(header.patch_size) * u64::from(header.patch_size) * BYTES_A_NUMBER
}

/// The numbers of a buffer of little-endian bfloat16: each is the upper half of a float32.
pub fn floats(data: &[u8]) -> impl Iterator<Item = f32> {
    data.chunks_exact(2).map(|pair| f32::from_bits(u32::from(u16::from_le_bytes([pair[0], pair[1]])) << 16))
}

/// SHA-256 as lower-case hexadecimal.
pub fn sha256(data: &[u8]) -> String {
    let digits = Sha256::digest(data).into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(|digit| char::from_digit(digit.into(), 16).expect("a digit")).collect()
}
