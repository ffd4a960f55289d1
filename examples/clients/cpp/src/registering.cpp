// How prefill ranks register: by compare-and-swap, against others, and not at all where they do not fit.

#include <interlock/bootstrap/v1/errors.pb.h>

#include <set>

#include "refusals.h"
#include "steps.h"
#include "text.h"

namespace {

bootstrap::RegisterRouteResponse Registered(const Story& story, const bootstrap::RegisterRouteRequest& request) {
  Call call;
  bootstrap::RegisterRouteResponse response;
  ExpectOk(story.bootstrap->RegisterRoute(call.context(), request, &response));
  return response;
}

grpc::Status Refused(const Story& story, const bootstrap::RegisterRouteRequest& request) {
  Call call;
  bootstrap::RegisterRouteResponse response;
  return story.bootstrap->RegisterRoute(call.context(), request, &response);
}

bootstrap::GetPrefillServerInfoResponse Info(const Story& story, const std::string& group) {
  Call call;
  bootstrap::GetPrefillServerInfoRequest request;
  request.set_group(group);
  bootstrap::GetPrefillServerInfoResponse response;
  ExpectOk(story.bootstrap->GetPrefillServerInfo(call.context(), request, &response));
  return response;
}

}  // namespace

std::string Register(const Story& story) {
  const Launch launch("register");
  const auto first = Registered(story, launch.Rank(0, 0));
  Expect(!first.ready() && first.registered() == 1 && first.expected() == 2, "the first rank is not one of two");
  const auto second = Registered(story, launch.Rank(1, first.revision()));
  Expect(second.revision() > first.revision(), "the revision did not grow");
  Expect(second.ready() && second.registered() == 2, "the group is not ready with both ranks");

  const auto ready = Info(story, launch.group());
  Expect(ready.revision() == second.revision(),
         Text("the group is at revision ", ready.revision(), ", not ", second.revision()));
  Expect(ready.info().page_size() == 64 && ready.info().sizes().dp() == 2, "the group's values are not its ranks'");
  return Text("two ranks stand at revision ", ready.revision());
}

std::string Race(const Story& story) {
  const Launch launch("race");
  const auto winner = Registered(story, launch.Rank(0, 0));
  const auto lost = Refused(story, launch.Rank(1, 0));
  ExpectRefusal(lost, grpc::StatusCode::ABORTED, "REVISION_CONFLICT");
  const auto conflict = DetailOf<bootstrap::RevisionConflict>(lost);
  Expect(conflict.revision() == winner.revision(), Text("the refusal names revision ", conflict.revision()));
  Expect(conflict.instance().id() == launch.instance().id(), "the refusal names another instance");
  Expect(!conflict.has_standing_route(), "the refusal shows a route under a key that nobody registered");

  const auto second = Registered(story, launch.Rank(1, conflict.revision()));
  Expect(second.ready(), "the group is not ready with both ranks");
  return Text("lost to revision ", conflict.revision(), ", stands at ", second.revision());
}

std::string Mismatch(const Story& story) {
  const ReadyGroup group(story, "mismatch");
  auto misfit = group.launch.Rank(1);
  misfit.mutable_route()->set_page_size(128);
  misfit.mutable_route()->set_kv_cache_dtype("fp8_e4m3");
  const auto refusal = Refused(story, misfit);
  ExpectRefusal(refusal, grpc::StatusCode::FAILED_PRECONDITION, "CONTRACT_MISMATCH");
  const auto mismatch = DetailOf<bootstrap::ContractMismatch>(refusal);
  std::set<std::string> fields;
  for (const auto& found : mismatch.mismatches()) {
    fields.insert(
        Text(found.field(), ": ", found.standing_value(), " stands, ", found.offered_value(), " was offered"));
  }
  const auto told = Join(fields, "; ");
  Expect(told == "kv_cache_dtype: bfloat16 stands, fp8_e4m3 was offered; page_size: 64 stands, 128 was offered",
         "refused for other differences: " + told);
  Expect(Info(story, group.launch.group()).revision() == group.revision, "the refused request left something behind");
  return told;
}
