// What decode servers and routers ask: whether they fit, who serves a room, and for how long they wait.

#include <limits>
#include <map>
#include <ranges>
#include <set>

#include "refusals.h"
#include "steps.h"
#include "text.h"

namespace {

// What a decode server is told, sorted.
std::string Told(const Story& story, const std::string& group, const bootstrap::DecodeServer& decode_server) {
  Call call;
  bootstrap::CheckCompatibilityRequest request;
  request.set_group(group);
  *request.mutable_decode_server() = decode_server;
  bootstrap::CheckCompatibilityResponse response;
  ExpectOk(story.bootstrap->CheckCompatibility(call.context(), request, &response));
  Expect(response.ready(), "the group is not ready");
  std::set<std::string> told;
  for (const auto& found : response.incompatibilities()) {
    told.insert(Text(found.field(), " ", found.prefill_value(), ", not ", found.decode_value()));
  }
  return Join(told, "; ");
}

}  // namespace

std::string Compatibility(const Story& story) {
  const ReadyGroup group(story, "compatibility");
  bootstrap::DecodeServer decode_server;
  decode_server.set_page_size(64);
  decode_server.set_kv_cache_dtype("bfloat16");
  decode_server.mutable_sizes()->set_dp(1);
  decode_server.mutable_sizes()->set_cp(1);
  decode_server.mutable_sizes()->set_tp(1);
  decode_server.mutable_sizes()->set_pp(1);
  const auto none = Told(story, group.launch.group(), decode_server);
  Expect(none.empty(), "a decode server that fits was told " + none);

  decode_server.set_page_size(128);
  decode_server.set_kv_cache_dtype("fp8_e4m3");
  const auto found = Told(story, group.launch.group(), decode_server);
  Expect(found == "kv_cache_dtype bfloat16, not fp8_e4m3; page_size 64, not 128", "other violations: " + found);
  return "one fits; the other is told " + found;
}

std::string Rooms(const Story& story) {
  const ReadyGroup group(story, "rooms");
  constexpr std::uint64_t kUnknown = std::uint64_t{1} << 53;
  const std::map<std::uint64_t, std::uint32_t> assigned = {
      {kUnknown + 1, 0}, {std::uint64_t{1} << 63, 1}, {std::numeric_limits<std::uint64_t>::max(), 0}};
  bootstrap::RegisterDpRanksRequest registration;
  registration.set_group(group.launch.group());
  bootstrap::QueryDpRanksRequest query;
  query.set_group(group.launch.group());
  for (const auto& [room, dp_rank] : assigned) {
    auto* assignment = registration.add_assignments();
    assignment->set_room(room);
    assignment->set_dp_rank(dp_rank);
    query.add_rooms(room);
  }
  query.add_rooms(kUnknown);

  Call register_call;
  bootstrap::RegisterDpRanksResponse registered;
  ExpectOk(story.bootstrap->RegisterDpRanks(register_call.context(), registration, &registered));
  Expect(registered.registered() == assigned.size(), Text(registered.registered(), " rooms are new"));

  Call query_call;
  bootstrap::QueryDpRanksResponse answer;
  ExpectOk(story.bootstrap->QueryDpRanks(query_call.context(), query, &answer));
  std::map<std::uint64_t, std::uint32_t> found;
  for (const auto& assignment : answer.assignments()) found[assignment.room()] = assignment.dp_rank();
  const auto rooms = Join(std::views::keys(found), ", ");
  Expect(found == assigned, "the rooms came back as " + rooms);
  return Text(rooms, " came back; ", kUnknown, " is unknown");
}

std::string Deadline(const Story& story) {
  constexpr auto kTimeout = std::chrono::milliseconds(300);
  const ReadyGroup group(story, "deadline");
  bootstrap::GetPrefillServerInfoRequest request;
  request.set_group(group.launch.group());
  request.set_min_revision(group.revision + 1);

  const auto started = std::chrono::steady_clock::now();
  Call call(kTimeout);
  bootstrap::GetPrefillServerInfoResponse response;
  const auto ended = story.bootstrap->GetPrefillServerInfo(call.context(), request, &response);
  const auto waited = std::chrono::steady_clock::now() - started;
  Expect(ended.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED,
         Text("ended with code ", ended.error_code(), ": ", ended.error_message()));
  Expect(waited >= kTimeout / 2 && waited < 10 * kTimeout, "did not end in its time");
  return Text("revision ", request.min_revision(), " did not come in ", kTimeout.count(), " ms");
}
