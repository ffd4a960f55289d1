// How routers and decode servers follow a group, also over a restart of the server.

#include <google/protobuf/util/message_differencer.h>

#include <thread>
#include <vector>

#include "refusals.h"
#include "steps.h"
#include "text.h"

namespace {

using namespace std::chrono_literals;

// A restart and what follows take a few seconds.
constexpr auto kPatience = 50s;

// A server that ends streams over and over is not asked more often than this.
constexpr auto kPause = 100ms;

// What a watch brings: one snapshot, one change, or progress.
struct News {
  enum class Kind { kSnapshot, kChange, kProgress };
  Kind kind = Kind::kProgress;
  std::uint64_t revision = 0;
  // The connection was lost before this.
  bool resumed = false;
  std::vector<bootstrap::Route> routes;
  std::vector<bootstrap::TopologyEvent> events;
};

std::string_view NameOf(News::Kind kind) {
  switch (kind) {
    case News::Kind::kSnapshot:
      return "a snapshot";
    case News::Kind::kChange:
      return "a change";
    case News::Kind::kProgress:
      return "progress";
  }
  return "";
}

// Follows a group. A lost connection is made again, from the last revision that was told whole: if the group still
// stands there, the server sends no second snapshot.
class Follower {
 public:
  Follower(const Story& story, const std::string& group) : story_(story) { request_.set_group(group); }

  ~Follower() {
    if (!reader_) return;
    call_->context()->TryCancel();
    reader_->Finish();
  }

  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // The next that is told.
  News Next() {
    News news;
    for (bool whole = false; !whole;) {
      if (!reader_) Open();
      bootstrap::WatchTopologyResponse message;
      if (!reader_->Read(&message)) {
        const auto status = reader_->Finish();
        reader_.reset();
        Expect(status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE,
               Text("the watch ended with code ", status.error_code(), ": ", status.error_message()));
        news = News();
        news.resumed = request_.has_after_revision();
        std::this_thread::sleep_for(kPause);
        continue;
      }
      whole = message.last();  // a snapshot or change may come in several messages of one revision
      news.revision = message.revision();
      if (message.has_snapshot()) {
        news.kind = News::Kind::kSnapshot;
        const auto& routes = message.snapshot().routes();
        news.routes.insert(news.routes.end(), routes.begin(), routes.end());
      } else if (message.has_change()) {
        news.kind = News::Kind::kChange;
        const auto& events = message.change().events();
        news.events.insert(news.events.end(), events.begin(), events.end());
      }
    }
    request_.set_after_revision(news.revision);
    return news;
  }

 private:
  void Open() {
    call_ = std::make_unique<Call>(kPatience);
    call_->context()->set_wait_for_ready(true);  // until the server is back
    reader_ = story_.bootstrap->WatchTopology(call_->context(), request_);
  }

  const Story& story_;
  bootstrap::WatchTopologyRequest request_;
  std::unique_ptr<Call> call_;
  std::unique_ptr<grpc::ClientReader<bootstrap::WatchTopologyResponse>> reader_;
};

void SayWaiting() {
  google::protobuf::Struct line;
  (*line.mutable_fields())["step"].set_string_value("watch");
  (*line.mutable_fields())["waiting"].set_string_value("restart");
  Say(line);
}

}  // namespace

std::string Watch(const Story& story) {
  const ReadyGroup group(story, "watch");
  Follower follower(story, group.launch.group());
  const auto first = follower.Next();
  Expect(first.kind == News::Kind::kSnapshot && first.revision == group.revision && first.routes.size() == 2,
         Text("began with ", NameOf(first.kind), " of ", first.routes.size(), " routes at revision ", first.revision));

  SayWaiting();
  auto resumed = follower.Next();
  while (resumed.kind == News::Kind::kProgress && !resumed.resumed) resumed = follower.Next();
  Expect(resumed.kind == News::Kind::kProgress,
         Text("nothing had changed, but after the restart came ", NameOf(resumed.kind)));
  Expect(resumed.revision == group.revision, Text("came back to revision ", resumed.revision));

  auto restarted = group.launch.Rank(1);
  restarted.mutable_route()->set_incarnation(UnixNanoseconds());
  bootstrap::RegisterRouteResponse registered;
  Call call;
  ExpectOk(story.bootstrap->RegisterRoute(call.context(), restarted, &registered));
  auto change = follower.Next();
  while (change.kind == News::Kind::kProgress && change.revision < registered.revision()) change = follower.Next();
  Expect(change.kind == News::Kind::kChange && change.revision == registered.revision(),
         Text("a change was due, and ", NameOf(change.kind), " of revision ", change.revision, " came"));
  Expect(change.events.size() == 1 && change.events[0].has_route_registered() &&
             google::protobuf::util::MessageDifferencer::Equals(change.events[0].route_registered().route(),
                                                                restarted.route()),
         "the change has other events than the one registration");
  return Text("resumed at revision ", group.revision, " without a snapshot, then saw exactly revision ",
              change.revision);
}
