// What the program makes of bytes, against `vectors/`.

#include <gtest/gtest.h>
#include <interlock/bootstrap/v1/errors.pb.h>

#include <bit>
#include <map>
#include <set>

#include "checksums.h"
#include "patches.h"
#include "refusals.h"
#include "vectors.h"

namespace {

namespace bootstrap = interlock::bootstrap::v1;
namespace preprocess = interlock::preprocess::v1;

// Bits, so that -0 differs from 0.
std::vector<std::uint32_t> Bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

std::vector<preprocess::PatchFrame> FramesOf(const Value& stream) {
  std::vector<preprocess::PatchFrame> frames;
  for (const auto& hex : ItemsAt(stream, "frames")) {
    EXPECT_TRUE(frames.emplace_back().ParseFromString(Bytes(hex.string_value())));
  }
  return frames;
}

TEST(Checksums, AreThoseOfTheVectors) {
  const auto vectors = Items(ReadJson("checksums.json"));
  ASSERT_FALSE(vectors.empty());
  for (const auto& vector : vectors) {
    const auto data = Bytes(TextAt(vector, "hex"));
    EXPECT_EQ(Crc32c(data), At(vector, "crc32c").number_value()) << TextAt(vector, "about");
    EXPECT_EQ(Sha256(data), TextAt(vector, "sha256")) << TextAt(vector, "about");
  }
}

TEST(Bfloat16, GivesExactFloats) {
  const auto vectors = ReadJson("bf16.json");
  for (const auto* name : {"levels", "others"}) {
    const auto& buffer = At(vectors, name);
    ASSERT_FALSE(TextAt(buffer, "hex").empty()) << name;
    EXPECT_EQ(Bits(Floats(Bytes(TextAt(buffer, "hex")))), Bits(FloatsAt(buffer, "values"))) << name;
  }
}

TEST(PatchReader, TakesPicturesOutOfInterleavedFrames) {
  const auto stream = ReadJson("stream.json");
  std::map<std::string, PatchReader> readers;
  std::map<std::string, Outcome> outcomes;
  for (const auto& frame : FramesOf(stream)) {
    if (auto outcome = readers[frame.image_id()].Read(frame)) outcomes.emplace(frame.image_id(), *std::move(outcome));
  }
  const auto& pictures = At(stream, "pictures").struct_value().fields();
  ASSERT_EQ(outcomes.size(), pictures.size());
  for (const auto& [image_id, expected] : pictures) {
    SCOPED_TRACE(image_id);
    if (const auto* error = std::get_if<preprocess::ImageError>(&outcomes.at(image_id))) {
      EXPECT_EQ(Json(*error), Json(At(expected, "error")));
      continue;
    }
    const auto& found = std::get<Patches>(outcomes.at(image_id));
    const auto& due = At(expected, "patches");
    EXPECT_EQ(Json(found.header), Json(At(expected, "header")));
    EXPECT_EQ(Hex(found.data), TextAt(due, "hex"));
    EXPECT_EQ(Bits(Floats(found.data)), Bits(FloatsAt(due, "values")));
    EXPECT_EQ(found.crc32c, At(due, "crc32c").number_value());
  }
}

TEST(PatchReader, FindsAChunkThatIsMissingDoubledOrChanged) {
  auto frames = FramesOf(ReadJson("stream.json"));
  std::string whole;
  for (const auto& frame : frames) {
    if (frame.has_trailer()) whole = frame.image_id();
  }
  std::erase_if(frames, [&](const auto& frame) { return frame.image_id() != whole; });
  const auto chunk = std::ranges::find_if(frames, &preprocess::PatchFrame::has_chunk) - frames.begin();
  ASSERT_LT(chunk, std::ssize(frames));
  const auto read = [](const std::vector<preprocess::PatchFrame>& some) {
    PatchReader reader;
    for (const auto& frame : some) reader.Read(frame);
  };
  EXPECT_NO_THROW(read(frames));

  auto missing = frames;
  missing.erase(missing.begin() + chunk);
  EXPECT_THROW(read(missing), PatchesDamagedError);
  auto doubled = frames;
  doubled.insert(doubled.begin() + chunk, frames[static_cast<std::size_t>(chunk)]);
  EXPECT_THROW(read(doubled), PatchesDamagedError);
  auto changed = frames;
  auto& data = *changed[static_cast<std::size_t>(chunk)].mutable_chunk()->mutable_data();
  data[0] = static_cast<char>(data[0] ^ 1);
  EXPECT_THROW(read(changed), PatchesDamagedError);
  EXPECT_THROW(read({frames.begin() + 1, frames.end()}), PatchesDamagedError);
}

TEST(Refusals, HaveTheirReasonAndTheirDetails) {
  std::map<std::string, double> codes;
  for (const auto& vector : Items(ReadJson("reasons.json"))) {
    codes[TextAt(vector, "reason")] = At(vector, "code").number_value();
  }
  std::set<std::string> types;
  for (const auto& vector : Items(ReadJson("errors.json"))) {
    SCOPED_TRACE(TextAt(vector, "about"));
    const auto trailer = ReadFile(TextAt(vector, "status"));
    google::rpc::Status status;
    ASSERT_TRUE(status.ParseFromString(trailer));
    EXPECT_EQ(status.code(), At(vector, "code").number_value());
    EXPECT_EQ(status.message(), TextAt(vector, "message"));
    const auto details = ItemsAt(vector, "details");
    ASSERT_EQ(status.details_size(), static_cast<int>(details.size()));
    for (int index = 0; index < status.details_size(); ++index) {
      const auto& detail = details[static_cast<std::size_t>(index)];
      const auto type = types.insert(TextAt(detail, "type")).first;
      EXPECT_EQ(status.details(index).type_url(), "type.googleapis.com/" + *type);
      EXPECT_EQ(Json(*FromBytes(*type, status.details(index).value())), Json(At(detail, "json")));
    }

    const grpc::Status refusal(static_cast<grpc::StatusCode>(status.code()), status.message(), trailer);
    EXPECT_EQ(ReasonOf(refusal), TextAt(At(details.at(0), "json"), "reason"));
    EXPECT_EQ(refusal.error_code(), codes[ReasonOf(refusal)]) << ReasonOf(refusal);
    const auto conflict = FindDetail<bootstrap::RevisionConflict>(refusal);
    EXPECT_EQ(conflict.has_value(), ReasonOf(refusal) == "REVISION_CONFLICT");
  }
  EXPECT_TRUE(types.contains("interlock.bootstrap.v1.RevisionConflict"));
  EXPECT_TRUE(types.contains("interlock.bootstrap.v1.ContractMismatch"));
}

}  // namespace
