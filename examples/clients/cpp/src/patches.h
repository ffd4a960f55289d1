#pragma once

#include <interlock/preprocess/v1/preprocess.pb.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// Patches, put together from the frames of one picture and checked as they arrive.

// The frames of a picture do not add up: what came is not what was sent.
class PatchesDamagedError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A whole picture.
struct Patches {
  interlock::preprocess::v1::PatchHeader header;
  // bfloat16, little-endian, in C order: grid row, grid column, channel, row, column.
  std::string data;
  // CRC-32C of `data`, as the trailer had it and as it was found.
  std::uint32_t crc32c;
};

// How a picture ended.
using Outcome = std::variant<Patches, interlock::preprocess::v1::ImageError>;

// Reads the frames of one picture.
class PatchReader {
 public:
  // Takes a frame; gives the outcome with the last one. Throws PatchesDamagedError.
  std::optional<Outcome> Read(const interlock::preprocess::v1::PatchFrame& frame);

 private:
  void Begin(const interlock::preprocess::v1::PatchHeader& header);
  void Add(const interlock::preprocess::v1::PatchChunk& chunk);
  Patches Whole(std::uint32_t crc32c);

  std::optional<interlock::preprocess::v1::PatchHeader> header_;
  std::string data_;
};

// The numbers of a buffer of little-endian bfloat16: each is the upper half of a float32.
std::vector<float> Floats(std::string_view data);
