#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/struct.pb.h>

#include <memory>
#include <string>
#include <vector>

// Reading `vectors/`: see its README for what each file says. JSON is read by protobuf's own reader.

using google::protobuf::Value;

// The bytes of a file of `vectors/`.
std::string ReadFile(const std::string& name);

// A JSON file of `vectors/`.
Value ReadJson(const std::string& name);

// A field of a JSON object; null if it is not there.
const Value& At(const Value& object, const std::string& name);

// The text of a field; empty if it is not there.
std::string TextAt(const Value& object, const std::string& name);

// The items of a field that is a list; none if it is not there.
std::vector<Value> ItemsAt(const Value& object, const std::string& name);

// The items of a document that is a list.
std::vector<Value> Items(const Value& list);

// The numbers of a field that is a list of them.
std::vector<float> FloatsAt(const Value& object, const std::string& name);

// Bytes from hexadecimal, and back.
std::string Bytes(const std::string& hex);
std::string Hex(const std::string& bytes);

// A message of the contract, or of google.rpc, by its full name.
std::unique_ptr<google::protobuf::Message> NewMessage(const std::string& type);

// A message read from bytes or from JSON. Fails the test if it cannot be read.
std::unique_ptr<google::protobuf::Message> FromBytes(const std::string& type, const std::string& bytes);
std::unique_ptr<google::protobuf::Message> FromJson(const std::string& type, const std::string& json);

// Bytes of a message, fields in the order of their numbers and map entries in that of their keys.
std::string ToBytes(const google::protobuf::Message& message);

// JSON of a value or of a message. Two JSON values are the same where these texts are: for objects, keys are sorted.
std::string Json(const Value& value);
std::string Json(const google::protobuf::Message& message);
