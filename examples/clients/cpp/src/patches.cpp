#include "patches.h"

#include <bit>

#include "checksums.h"
#include "text.h"

namespace preprocess = interlock::preprocess::v1;

namespace {

constexpr std::uint64_t kBytesANumber = 2;
constexpr std::uint64_t kChannels = 3;

std::uint64_t BytesOfPatch(const preprocess::PatchHeader& header) {
  return kChannels * header.patch_size() * header.patch_size() * kBytesANumber;
}

void Check(bool condition, const std::string& otherwise) {
  if (!condition) throw PatchesDamagedError(otherwise);
}

}  // namespace

std::optional<Outcome> PatchReader::Read(const preprocess::PatchFrame& frame) {
  switch (frame.frame_case()) {
    case preprocess::PatchFrame::kHeader:
      Begin(frame.header());
      return std::nullopt;
    case preprocess::PatchFrame::kChunk:
      Add(frame.chunk());
      return std::nullopt;
    case preprocess::PatchFrame::kTrailer:
      return Whole(frame.trailer().crc32c());
    case preprocess::PatchFrame::kError:
      return frame.error();
    default:
      return std::nullopt;  // nothing that belongs to the patches
  }
}

void PatchReader::Begin(const preprocess::PatchHeader& header) {
  const auto due = std::uint64_t{header.plan().grid_width()} * header.plan().grid_height() * BytesOfPatch(header);
  Check(header.dtype() == preprocess::PATCH_DTYPE_BF16, Text("the numbers are of type ", header.dtype()));
  Check(header.total_bytes() == due, Text(header.total_bytes(), " bytes are announced, not ", due));
  header_ = header;
  data_.clear();
  data_.reserve(due);
}

void PatchReader::Add(const preprocess::PatchChunk& chunk) {
  Check(header_.has_value(), "a chunk comes before the header");
  Check(chunk.first_patch() * BytesOfPatch(*header_) == data_.size(),
        Text("a chunk begins at patch ", chunk.first_patch(), ", after ", data_.size(), " bytes"));
  Check(data_.size() + chunk.data().size() <= header_->total_bytes(), "more bytes than announced");
  data_ += chunk.data();
}

Patches PatchReader::Whole(std::uint32_t crc32c) {
  Check(header_.has_value(), "a trailer comes before the header");
  Check(data_.size() == header_->total_bytes(),
        Text("ended after ", data_.size(), " of ", header_->total_bytes(), " bytes"));
  const auto found = Crc32c(data_);
  Check(found == crc32c, Text("the CRC-32C is ", found, ", not ", crc32c));
  return {*header_, std::move(data_), found};
}

std::vector<float> Floats(std::string_view data) {
  std::vector<float> values;
  values.reserve(data.size() / kBytesANumber);
  for (std::size_t offset = 0; offset + 1 < data.size(); offset += kBytesANumber) {
    const std::uint32_t low = static_cast<unsigned char>(data[offset]);
    const std::uint32_t high = static_cast<unsigned char>(data[offset + 1]);
    values.push_back(std::bit_cast<float>(low << 16 | high << 24));
  }
  return values;
}
