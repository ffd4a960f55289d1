#include "refusals.h"

#include "text.h"

void Expect(bool condition, const std::string& otherwise) {
  if (!condition) throw NotAsToldError(otherwise);
}

void ExpectOk(const grpc::Status& status) {
  Expect(status.ok(),
         Text("failed with code ", status.error_code(), " ", ReasonOf(status), ": ", status.error_message()));
}

std::string ReasonOf(const grpc::Status& refusal) {
  const auto info = FindDetail<google::rpc::ErrorInfo>(refusal);
  return info && info->domain() == "interlock" ? info->reason() : "";
}

void ExpectRefusal(const grpc::Status& status, grpc::StatusCode code, std::string_view reason) {
  Expect(!status.ok(), Text("was not refused with ", reason));
  Expect(status.error_code() == code && ReasonOf(status) == reason,
         Text("refused with code ", status.error_code(), " ", ReasonOf(status), ": ", status.error_message()));
}
