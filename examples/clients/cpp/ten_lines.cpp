// Registers the one rank of a group, and reads what a decode server needs to know of it. Shown in docs/clients.md.

#include <grpcpp/grpcpp.h>
#include <interlock/bootstrap/v1/bootstrap_service.grpc.pb.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

namespace pb = interlock::bootstrap::v1;

namespace {

int Told(const grpc::Status& status) {
  std::cerr << status.error_message() << '\n';
  return EXIT_FAILURE;
}

int Run(const std::string& address) {
  const auto clock = std::chrono::system_clock::now();
  const auto now = static_cast<std::uint64_t>(std::chrono::nanoseconds(clock.time_since_epoch()).count());
  grpc::ClientContext registering, reading;
  registering.set_deadline(clock + std::chrono::seconds(10));
  reading.set_deadline(clock + std::chrono::seconds(10));
  // ten lines
  auto bootstrap = pb::BootstrapService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  pb::RegisterRouteRequest request;
  request.set_group("prefill-a");
  request.mutable_instance()->set_id("launch-" + std::to_string(now));
  request.mutable_instance()->set_started_at(now);
  pb::Route& route = *request.mutable_route();
  route.mutable_key();
  route.mutable_sizes()->set_dp(1);
  route.mutable_sizes()->set_cp(1);
  route.mutable_sizes()->set_tp(1);
  route.mutable_sizes()->set_pp(1);
  route.set_incarnation(now);
  route.set_rank_ip("::1");
  route.set_rank_port(9000);
  route.set_page_size(64);
  pb::RegisterRouteResponse registered;
  if (auto status = bootstrap->RegisterRoute(&registering, request, &registered); !status.ok()) return Told(status);
  pb::GetPrefillServerInfoRequest query;
  query.set_group("prefill-a");
  query.set_min_revision(registered.revision());
  pb::GetPrefillServerInfoResponse ready;
  if (auto status = bootstrap->GetPrefillServerInfo(&reading, query, &ready); !status.ok()) return Told(status);
  std::cout << "ready at revision " << ready.revision() << ": " << ready.info().page_size() << " tokens a page\n";
  // that is all
  return EXIT_SUCCESS;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: ten_lines HOST:PORT\n";
    return EXIT_FAILURE;
  }
  return Run(arguments[1]);
}
