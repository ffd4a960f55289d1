#include "story.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include "refusals.h"
#include "text.h"

namespace {

// A server that restarts is back within a second or two; gRPC's own pauses grow to two minutes.
constexpr int kFirstReconnectMilliseconds = 100;
constexpr int kLongestReconnectMilliseconds = 1000;

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMilliseconds);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kFirstReconnectMilliseconds);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectMilliseconds);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

Story::Story(const std::string& bootstrap_address, const std::string& preprocess_address, std::filesystem::path folder)
    : bootstrap(bootstrap::BootstrapService::NewStub(ChannelTo(bootstrap_address))),
      preprocess(preprocess::PreprocessService::NewStub(ChannelTo(preprocess_address))),
      pictures(std::move(folder)) {}

std::uint64_t UnixNanoseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

Launch::Launch(const std::string& step) {
  instance_.set_started_at(UnixNanoseconds());
  instance_.set_id(Text(std::hex, instance_.started_at(), std::dec, "-", getpid()));
  group_ = Text("cpp-", step, "-", instance_.id());
}

bootstrap::RegisterRouteRequest Launch::Rank(std::uint32_t dp, std::optional<std::uint64_t> expected_revision) const {
  bootstrap::RegisterRouteRequest request;
  request.set_group(group_);
  *request.mutable_instance() = instance_;
  if (expected_revision) request.set_expected_revision(*expected_revision);
  auto& route = *request.mutable_route();
  route.mutable_key()->set_dp(dp);
  route.set_incarnation(instance_.started_at());
  route.mutable_sizes()->set_dp(2);
  route.mutable_sizes()->set_cp(1);
  route.mutable_sizes()->set_tp(1);
  route.mutable_sizes()->set_pp(1);
  route.set_rank_ip("127.0.0.1");
  route.set_rank_port(9000 + dp);
  route.set_page_size(64);
  route.set_kv_cache_dtype("bfloat16");
  route.add_pools(interlock::kv::v1::POOL_NAME_KV);
  route.add_pools(interlock::kv::v1::POOL_NAME_SWA);
  return request;
}

ReadyGroup::ReadyGroup(const Story& story, const std::string& step) : launch(step), revision(0) {
  for (std::uint32_t dp = 0; dp < 2; ++dp) {
    Call call;
    bootstrap::RegisterRouteResponse registered;
    ExpectOk(story.bootstrap->RegisterRoute(call.context(), launch.Rank(dp), &registered));
    revision = registered.revision();
  }
}
