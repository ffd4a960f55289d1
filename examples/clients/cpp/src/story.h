#pragma once

#include <grpcpp/client_context.h>
#include <interlock/bootstrap/v1/bootstrap_service.grpc.pb.h>
#include <interlock/preprocess/v1/preprocess_service.grpc.pb.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

// What all steps share: the clients, and the values of a small group of two prefill ranks.

namespace bootstrap = interlock::bootstrap::v1;
namespace preprocess = interlock::preprocess::v1;

// The services, and the folder with `expected.json` and its pictures.
struct Story {
  // Connections are made by the first call, and made anew after a loss.
  Story(const std::string& bootstrap_address, const std::string& preprocess_address, std::filesystem::path folder);

  std::unique_ptr<bootstrap::BootstrapService::Stub> bootstrap;
  std::unique_ptr<preprocess::PreprocessService::Stub> preprocess;
  std::filesystem::path pictures;
};

// The context of one call. Every call has a deadline: none of this is slow, but for a watch.
class Call {
 public:
  explicit Call(std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    context_.set_deadline(std::chrono::system_clock::now() + timeout);
  }
  grpc::ClientContext* context() { return &context_; }

 private:
  grpc::ClientContext context_;
};

// Unix time in nanoseconds: what instances and incarnations are ordered by.
std::uint64_t UnixNanoseconds();

// One launch of a group of two data-parallel ranks, in a group that nobody else uses.
class Launch {
 public:
  explicit Launch(const std::string& step);

  const std::string& group() const { return group_; }
  const bootstrap::Instance& instance() const { return instance_; }

  // Asks to register the rank `dp`.
  bootstrap::RegisterRouteRequest Rank(std::uint32_t dp,
                                       std::optional<std::uint64_t> expected_revision = std::nullopt) const;

 private:
  std::string group_;
  bootstrap::Instance instance_;
};

// A ready group of two ranks.
struct ReadyGroup {
  ReadyGroup(const Story& story, const std::string& step);

  Launch launch;
  // Revision at which it became ready.
  std::uint64_t revision;
};
