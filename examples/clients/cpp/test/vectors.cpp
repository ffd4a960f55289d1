#include "vectors.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>
#include <google/rpc/error_details.pb.h>
#include <gtest/gtest.h>
#include <interlock/bootstrap/v1/errors.pb.h>
#include <interlock/preprocess/v1/preprocess.pb.h>

#include <fstream>
#include <map>
#include <sstream>

#include "text.h"

std::string ReadFile(const std::string& name) {
  std::ifstream stream(Text(VECTORS, "/", name), std::ios::binary);
  if (!stream.is_open()) throw std::runtime_error("cannot read " + name);
  std::ostringstream contents;
  contents << stream.rdbuf();
  return contents.str();
}

Value ReadJson(const std::string& name) {
  Value value;
  const auto read = google::protobuf::util::JsonStringToMessage(ReadFile(name), &value);
  if (!read.ok()) throw std::runtime_error(Text(name, ": ", std::string(read.message())));
  return value;
}

const Value& At(const Value& object, const std::string& name) {
  const auto& fields = object.struct_value().fields();
  const auto found = fields.find(name);
  return found == fields.end() ? Value::default_instance() : found->second;
}

std::string TextAt(const Value& object, const std::string& name) { return At(object, name).string_value(); }

std::vector<Value> Items(const Value& list) {
  const auto& values = list.list_value().values();
  return {values.begin(), values.end()};
}

std::vector<Value> ItemsAt(const Value& object, const std::string& name) { return Items(At(object, name)); }

std::vector<float> FloatsAt(const Value& object, const std::string& name) {
  std::vector<float> numbers;
  for (const auto& value : ItemsAt(object, name)) numbers.push_back(static_cast<float>(value.number_value()));
  return numbers;
}

std::string Bytes(const std::string& hex) {
  std::string bytes;
  for (std::size_t index = 0; index < hex.size(); index += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(index, 2), nullptr, 16));
  }
  return bytes;
}

std::string Hex(const std::string& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char byte : bytes) {
    hex += kDigits[static_cast<unsigned char>(byte) >> 4];
    hex += kDigits[static_cast<unsigned char>(byte) & 0xf];
  }
  return hex;
}

std::unique_ptr<google::protobuf::Message> NewMessage(const std::string& type) {
  // Named, so that the linker keeps the files that nothing else here uses.
  static const auto* const kFiles = new std::vector{
      interlock::bootstrap::v1::RevisionConflict::descriptor(),
      interlock::preprocess::v1::PatchFrame::descriptor(),
      google::rpc::ErrorInfo::descriptor(),
  };
  const auto* descriptor = kFiles->front()->file()->pool()->FindMessageTypeByName(type);
  if (descriptor == nullptr) throw std::runtime_error("no message " + type);
  return std::unique_ptr<google::protobuf::Message>(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor)->New());
}

std::unique_ptr<google::protobuf::Message> FromBytes(const std::string& type, const std::string& bytes) {
  auto message = NewMessage(type);
  EXPECT_TRUE(message->ParseFromString(bytes)) << type << " " << Hex(bytes);
  return message;
}

std::unique_ptr<google::protobuf::Message> FromJson(const std::string& type, const std::string& json) {
  auto message = NewMessage(type);
  const auto read = google::protobuf::util::JsonStringToMessage(json, message.get());
  EXPECT_TRUE(read.ok()) << type << " " << json << ": " << std::string(read.message());
  return message;
}

std::string ToBytes(const google::protobuf::Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

std::string Json(const Value& value) {
  std::ostringstream out;
  switch (value.kind_case()) {
    case Value::kStructValue: {
      const auto& fields = value.struct_value().fields();
      std::map<std::string, std::string> sorted;
      for (const auto& [name, field] : fields) sorted[name] = Json(field);
      for (const auto& [name, field] : sorted) out << (out.tellp() > 0 ? "," : "{") << '"' << name << "\":" << field;
      out << (sorted.empty() ? "{}" : "}");
      return out.str();
    }
    case Value::kListValue:
      for (const auto& item : Items(value)) out << (out.tellp() > 0 ? "," : "[") << Json(item);
      out << (value.list_value().values().empty() ? "[]" : "]");
      return out.str();
    default: {
      std::string text;
      EXPECT_TRUE(google::protobuf::util::MessageToJsonString(value, &text).ok());
      return text;
    }
  }
}

std::string Json(const google::protobuf::Message& message) {
  std::string text;
  EXPECT_TRUE(google::protobuf::util::MessageToJsonString(message, &text).ok());
  Value value;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(text, &value).ok()) << text;
  return Json(value);
}
