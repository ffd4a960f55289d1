// Pictures: one by one, many on a stream, one that is damaged, one that is not wanted any more.

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "checksums.h"
#include "patches.h"
#include "refusals.h"
#include "steps.h"
#include "text.h"

namespace {

using google::protobuf::Struct;
using google::protobuf::Value;
using Step = preprocess::PreprocessImagesRequest;

// A part of a picture on a stream. Small here, so that there are several; about 1 MiB is a good size.
constexpr std::size_t kPartBytes = 4096;

std::string Contents(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  Expect(stream.is_open(), "cannot read " + file.string());
  std::ostringstream contents;
  contents << stream.rdbuf();
  return contents.str();
}

// One entry of `expected.json`, read by protobuf's own JSON, which is there anyway.
class Entry {
 public:
  explicit Entry(const Value& value) : fields_(value.struct_value()) {}

  const std::string& Text(const std::string& name) const { return At(name).string_value(); }
  std::uint32_t Number(const std::string& name) const { return static_cast<std::uint32_t>(At(name).number_value()); }
  std::vector<float> Numbers(const std::string& name) const {
    std::vector<float> numbers;
    for (const auto& value : At(name).list_value().values())
      numbers.push_back(static_cast<float>(value.number_value()));
    return numbers;
  }
  const std::string& file() const { return Text("file"); }
  // Name of the profile; empty for the server's default.
  std::string profile() const { return fields_.fields().contains("profile") ? Text("profile") : ""; }

 private:
  const Value& At(const std::string& name) const { return fields_.fields().at(name); }

  Struct fields_;
};

// `expected.json`: what must come back, and what must fail.
struct Expected {
  explicit Expected(const Story& story) {
    Struct document;
    const auto read =
        google::protobuf::util::JsonStringToMessage(Contents(story.pictures / "expected.json"), &document);
    Expect(read.ok(), Text("expected.json: ", std::string(read.message())));
    for (const auto& value : document.fields().at("pictures").list_value().values()) pictures.emplace_back(value);
    for (const auto& value : document.fields().at("damaged").list_value().values()) damaged.emplace_back(value);
    Expect(pictures.size() >= 2 && !damaged.empty(), "the folder has too few pictures");
  }

  std::vector<Entry> pictures;
  std::vector<Entry> damaged;
};

// All that is sent of one picture.
std::vector<Step> StepsOf(const Story& story, const Entry& picture) {
  const auto source = Contents(story.pictures / picture.file());
  std::vector<Step> steps(1);
  auto& begin = *steps[0].mutable_begin();
  begin.set_image_id(picture.file());
  begin.set_kind(preprocess::SOURCE_KIND_ENCODED);
  begin.set_total_bytes(source.size());
  if (!picture.profile().empty()) begin.mutable_profile()->set_name(picture.profile());
  for (std::size_t offset = 0; offset < source.size(); offset += kPartBytes) {
    auto& data = *steps.emplace_back().mutable_data();
    data.set_image_id(picture.file());
    data.set_offset(offset);
    data.set_data(source.substr(offset, kPartBytes));
  }
  steps.emplace_back().mutable_end()->set_image_id(picture.file());
  return steps;
}

// Sends the steps on one stream, and gives how each picture ended, by its id. Three small pictures are within any
// credits; whoever sends many waits for `settings` first.
std::map<std::string, Outcome> OutcomesOf(const Story& story, const std::vector<Step>& steps) {
  Call call;
  const auto stream = story.preprocess->PreprocessImages(call.context());
  // Beside the reader: who writes all before reading stops where the server's answers fill the connection.
  std::thread writer([&] {
    for (const auto& step : steps) {
      if (!stream->Write(step)) return;  // the call has ended; its status says why
    }
    stream->WritesDone();
  });
  std::map<std::string, PatchReader> readers;
  std::map<std::string, Outcome> outcomes;
  std::string fault;
  preprocess::PatchFrame frame;
  while (stream->Read(&frame)) {
    if (frame.has_settings() || !fault.empty()) continue;
    try {  // frames of different pictures may interleave
      if (auto outcome = readers[frame.image_id()].Read(frame)) {
        if (!outcomes.emplace(frame.image_id(), *std::move(outcome)).second) fault = frame.image_id() + " ended twice";
      }
    } catch (const PatchesDamagedError& error) {
      fault = Text(frame.image_id(), ": ", error.what());
      call.context()->TryCancel();
    }
  }
  writer.join();
  const auto status = stream->Finish();
  Expect(fault.empty(), fault);
  ExpectOk(status);
  return outcomes;
}

// The patches, if they are what the reference gives for this picture.
const Patches& Checked(const Entry& expected, const Outcome* outcome) {
  const auto& file = expected.file();
  Expect(outcome != nullptr, file + " has no last frame");
  if (const auto* error = std::get_if<preprocess::ImageError>(outcome)) {
    throw NotAsToldError(Text(file, " failed: ", error->message()));
  }
  const auto& patches = std::get<Patches>(*outcome);
  const auto& plan = patches.header.plan();
  Expect(plan.grid_width() == expected.Number("grid_width") && plan.grid_height() == expected.Number("grid_height"),
         Text(file, " has a grid of ", plan.grid_width(), " by ", plan.grid_height(), " patches"));
  Expect(patches.crc32c == expected.Number("crc32c"), Text(file, " has CRC-32C ", patches.crc32c));
  const auto sha256 = Sha256(patches.data);
  Expect(sha256 == expected.Text("patches_sha256"), Text(file, " has SHA-256 ", sha256));
  const auto due = expected.Numbers("first_values");
  const auto first = Floats(std::string_view(patches.data).substr(0, 2 * due.size()));
  Expect(first == due, Text(file, " begins with ", Join(first, ", ")));
  return patches;
}

const Outcome* Find(const std::map<std::string, Outcome>& outcomes, const Entry& picture) {
  const auto found = outcomes.find(picture.file());
  return found == outcomes.end() ? nullptr : &found->second;
}

// The error of a picture that must have failed.
const preprocess::ImageError& ErrorOf(const std::map<std::string, Outcome>& outcomes, const Entry& picture) {
  const auto* outcome = Find(outcomes, picture);
  Expect(outcome != nullptr && std::holds_alternative<preprocess::ImageError>(*outcome),
         picture.file() + " was served");
  return std::get<preprocess::ImageError>(*outcome);
}

}  // namespace

std::string Picture(const Story& story) {
  const Expected expected(story);
  std::size_t bytes = 0;
  for (const auto& picture : expected.pictures) {
    preprocess::PreprocessImageRequest request;
    request.set_image_id(picture.file());
    request.set_encoded(Contents(story.pictures / picture.file()));
    request.mutable_profile()->set_name(picture.profile());
    Call call;
    const auto frames = story.preprocess->PreprocessImage(call.context(), request);
    PatchReader reader;
    std::optional<Outcome> outcome;
    preprocess::PatchFrame frame;
    while (frames->Read(&frame)) {
      Expect(!outcome, picture.file() + " has a frame after its last");
      outcome = reader.Read(frame);
    }
    ExpectOk(frames->Finish());
    bytes += Checked(picture, outcome ? &*outcome : nullptr).data.size();
  }
  return Text(expected.pictures.size(), " pictures, ", bytes, " bytes: CRC-32C, SHA-256 and first numbers are right");
}

std::string Neighbours(const Story& story) {
  const Expected expected(story);
  const auto& before = expected.pictures[0];
  const auto& after = expected.pictures[1];
  const auto& damaged = expected.damaged[0];
  std::vector<Step> steps;
  for (const auto* picture : {&before, &damaged, &after}) {
    std::ranges::move(StepsOf(story, *picture), std::back_inserter(steps));
  }
  const auto outcomes = OutcomesOf(story, steps);
  Checked(before, Find(outcomes, before));
  Checked(after, Find(outcomes, after));
  const auto& error = ErrorOf(outcomes, damaged);
  Expect(error.code() == grpc::StatusCode::INVALID_ARGUMENT && error.reason() == damaged.Text("reason"),
         Text(damaged.file(), " failed with code ", error.code(), " ", error.reason()));
  Expect(!error.field().empty(), Text("the refusal of ", damaged.file(), " names no field"));
  return Text(damaged.file(), " failed with ", error.reason(), " in ", error.field(), "; ", before.file(), " and ",
              after.file(), " were served");
}

std::string Cancel(const Story& story) {
  const Expected expected(story);
  const auto& unwanted = expected.pictures[0];
  const auto& wanted = expected.pictures[1];
  auto steps = StepsOf(story, unwanted);
  Expect(steps.size() > 2, unwanted.file() + " has no parts");
  steps.resize(2);
  steps.emplace_back().mutable_cancel()->set_image_id(unwanted.file());
  std::ranges::move(StepsOf(story, wanted), std::back_inserter(steps));
  const auto outcomes = OutcomesOf(story, steps);
  Checked(wanted, Find(outcomes, wanted));
  const auto& error = ErrorOf(outcomes, unwanted);
  Expect(error.reason() == "CANCELLED", Text(unwanted.file(), " ended with ", error.reason()));
  return Text(unwanted.file(), " ended with CANCELLED, ", wanted.file(), " was served");
}
