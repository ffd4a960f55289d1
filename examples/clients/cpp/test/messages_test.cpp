// The stubs against `vectors/`.

#include <gtest/gtest.h>
#include <interlock/kv/v1/pool_name.pb.h>
#include <interlock/kv/v1/spec_layout.pb.h>
#include <interlock/preprocess/v1/preprocess.pb.h>

#include <algorithm>
#include <set>

#include "text.h"
#include "vectors.h"

namespace {

namespace kv = interlock::kv::v1;
namespace preprocess = interlock::preprocess::v1;

TEST(Messages, HaveTheirBytesAndTheirJson) {
  const auto vectors = Items(ReadJson("messages.json"));
  ASSERT_GT(vectors.size(), 100U);
  for (const auto& vector : vectors) {
    const auto type = TextAt(vector, "type");
    SCOPED_TRACE(Text(type, ": ", TextAt(vector, "about")));
    const auto hex = TextAt(vector, "hex");
    const auto unknown = At(vector, "hex_without_unknown_fields");
    const auto known = unknown.has_string_value() ? unknown.string_value() : hex;
    const auto json = Json(At(vector, "json"));

    const auto message = FromBytes(type, Bytes(hex));
    EXPECT_EQ(Hex(ToBytes(*message)), hex) << "read and written again";
    EXPECT_EQ(Json(*message), json);
    EXPECT_EQ(Hex(ToBytes(*FromJson(type, json))), known) << "read from JSON";
    for (const auto& also : ItemsAt(vector, "also_hex")) {
      EXPECT_EQ(Hex(ToBytes(*FromBytes(type, Bytes(also.string_value())))), hex) << also.string_value();
    }
    for (const auto& also : ItemsAt(vector, "also_json")) {
      EXPECT_EQ(Hex(ToBytes(*FromJson(type, also.string_value()))), known) << also.string_value();
    }
  }
}

TEST(Messages, AreAllThere) {
  std::set<std::string> named;
  for (const auto& vector : Items(ReadJson("messages.json"))) named.insert(TextAt(vector, "type"));
  for (const auto* of_file : {"interlock.kv.v1.SpecLayout", "interlock.bootstrap.v1.Route",
                              "interlock.bootstrap.v1.NotReady", "interlock.preprocess.v1.PatchFrame"}) {
    const auto message = NewMessage(of_file);
    const auto* file = message->GetDescriptor()->file();
    for (int index = 0; index < file->message_type_count(); ++index) {
      EXPECT_TRUE(named.contains(file->message_type(index)->full_name())) << file->message_type(index)->full_name();
    }
  }
}

TEST(Values, HaveTheBytesOfTheirJson) {
  int compared = 0;
  for (const auto& vector : Items(ReadJson("values.json"))) {
    SCOPED_TRACE(Text(TextAt(vector, "method"), ": ", TextAt(vector, "about")));
    for (const auto& request : ItemsAt(vector, "requests")) {
      if (!At(request, "json").has_struct_value()) continue;
      const auto type = TextAt(request, "type");
      const auto json = Json(At(request, "json"));
      EXPECT_EQ(Json(*FromBytes(type, Bytes(TextAt(request, "hex")))), json);
      EXPECT_EQ(Hex(ToBytes(*FromJson(type, json))), TextAt(request, "hex"));
      ++compared;
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(PoolNames, FollowFromTheNamesOfTheEnum) {
  const std::string prefix = "POOL_NAME_";
  const auto vectors = ReadJson("pool_names.json");
  const auto pools = ItemsAt(vectors, "pools");
  ASSERT_EQ(static_cast<int>(pools.size()), kv::PoolName_descriptor()->value_count() - 1) << "a pool without a vector";
  for (const auto& pool : pools) {
    const auto number = static_cast<int>(At(pool, "number").number_value());
    ASSERT_TRUE(kv::PoolName_IsValid(number));
    const auto& name = kv::PoolName_Name(static_cast<kv::PoolName>(number));
    EXPECT_EQ(name, TextAt(pool, "enum_name"));
    auto wire_name = name.substr(prefix.size());
    std::ranges::transform(wire_name, wire_name.begin(), [](unsigned char c) { return std::tolower(c); });
    EXPECT_EQ(wire_name, TextAt(pool, "wire_name"));
  }
}

TEST(Plans, AreReadAsTheyWereMade) {
  for (const std::string name : {"deepseek-v4.1", "deepseek-v4-flash-vision-exp"}) {
    SCOPED_TRACE(name);
    const auto plans = ItemsAt(ReadJson("plans/" + name + ".json"), "plans");
    preprocess::PlanImagesRequest request;
    preprocess::PlanImagesResponse response;
    ASSERT_TRUE(request.ParseFromString(ReadFile("plans/" + name + ".request.bin")));
    ASSERT_TRUE(response.ParseFromString(ReadFile("plans/" + name + ".response.bin")));
    ASSERT_EQ(plans.size(), 200U);
    ASSERT_EQ(request.sizes_size(), 200);
    ASSERT_EQ(response.results_size(), 200);
    for (int index = 0; index < 200; ++index) {
      const auto& expected = plans[static_cast<std::size_t>(index)];
      EXPECT_EQ(request.sizes(index).width(), At(expected, "width").number_value());
      EXPECT_EQ(request.sizes(index).height(), At(expected, "height").number_value());
      const auto& result = response.results(index);
      if (result.has_plan()) {
        EXPECT_EQ(Json(result.plan()), Json(At(expected, "plan")));
      } else {
        EXPECT_EQ(result.error().reason(), TextAt(At(expected, "error"), "reason"));
      }
    }
  }
}

TEST(Defaults, CanBeSaid) {
  const auto vectors = Items(ReadJson("defaults.json"));
  ASSERT_FALSE(vectors.empty());
  for (const auto& vector : vectors) {
    const auto field = TextAt(vector, "field");
    const auto dot = field.rfind('.');
    const auto said = Text("{\"", field.substr(dot + 1), "\":", Json(At(vector, "absent_means")), "}");
    FromJson(field.substr(0, dot), said);  // refuses a field that is not there
  }
}

TEST(ExtraJson, IsKeptAsItIs) {
  kv::SpecLayout layout;
  for (const auto& entry : ItemsAt(ReadJson("extra_json.json"), "texts")) {
    (*layout.mutable_extra_json())[Text("key", layout.extra_json_size())] = TextAt(entry, "text");
  }
  ASSERT_GT(layout.extra_json_size(), 0);
  kv::SpecLayout again;
  ASSERT_TRUE(again.ParseFromString(ToBytes(layout)));
  for (const auto& [key, text] : layout.extra_json()) EXPECT_EQ(again.extra_json().at(key), text);
}

}  // namespace
