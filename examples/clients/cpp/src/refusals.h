#pragma once

#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>
#include <grpcpp/support/status.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

// Refusals: a gRPC status with `ErrorInfo`, whose reason programs decide by, and typed details.

// A step was told something else than it should have been.
class NotAsToldError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Fails the step unless `condition` holds.
void Expect(bool condition, const std::string& otherwise);

// Fails the step unless the call was answered.
void ExpectOk(const grpc::Status& status);

// A typed detail of a refusal, if it has one.
template <typename Detail>
std::optional<Detail> FindDetail(const grpc::Status& refusal) {
  google::rpc::Status status;
  if (!status.ParseFromString(refusal.error_details())) return std::nullopt;
  for (const auto& any : status.details()) {
    if (Detail detail; any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

// A typed detail of a refusal that must have it.
template <typename Detail>
Detail DetailOf(const grpc::Status& refusal) {
  auto detail = FindDetail<Detail>(refusal);
  Expect(detail.has_value(), "the refusal has no " + Detail::descriptor()->name());
  return *std::move(detail);
}

// The reason of a refusal; empty where the status comes from the transport.
std::string ReasonOf(const grpc::Status& refusal);

// Fails the step unless the call was refused for `reason`.
void ExpectRefusal(const grpc::Status& status, grpc::StatusCode code, std::string_view reason);
