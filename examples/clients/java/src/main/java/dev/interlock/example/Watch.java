package dev.interlock.example;

import static dev.interlock.example.NotAsExpectedException.expect;

import dev.interlock.bootstrap.v1.RankKey;
import dev.interlock.bootstrap.v1.RegisterRouteResponse;
import dev.interlock.bootstrap.v1.Route;
import dev.interlock.bootstrap.v1.TopologyEvent;
import dev.interlock.bootstrap.v1.WatchTopologyRequest;
import dev.interlock.bootstrap.v1.WatchTopologyResponse;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;

/** A watch that goes on after the server was away. */
final class Watch {
  private final Routes routes;
  private final Runnable waitForRestart;

  /**
   * @param waitForRestart tells whoever runs the program to restart the server
   */
  Watch(Routes routes, Runnable waitForRestart) {
    this.routes = routes;
    this.waitForRestart = waitForRestart;
  }

  /** What a watcher knows of a group. */
  private static final class Topology {
    private final Map<RankKey, Route> routes = new HashMap<>();
    private long revision;
    private boolean
        partial; // a snapshot or change has begun, and its last message is still to come

    void apply(WatchTopologyResponse message) {
      switch (message.getBodyCase()) {
        case SNAPSHOT -> {
          if (!partial) {
            routes.clear();
          }
          message.getSnapshot().getRoutesList().forEach(route -> routes.put(route.getKey(), route));
        }
        case CHANGE -> message.getChange().getEventsList().forEach(this::apply);
        case PROGRESS, BODY_NOT_SET -> {}
      }
      partial = !message.getLast();
      if (message.getLast()) {
        revision = message.getRevision();
      }
    }

    private void apply(TopologyEvent event) {
      switch (event.getEventCase()) {
        case EPOCH_STARTED -> routes.clear();
        case ROUTE_REMOVED -> routes.remove(event.getRouteRemoved().getKey());
        case ROUTE_REGISTERED -> {
          Route route = event.getRouteRegistered().getRoute();
          routes.put(route.getKey(), route);
        }
        case EVENT_NOT_SET -> {} // an event of a newer version
      }
    }

    boolean isBefore(long other) {
      return Long.compareUnsigned(revision, other) < 0;
    }
  }

  String overRestart() throws NotAsExpectedException {
    Routes.Launch launch = Routes.Launch.of("watch");
    long revision = routes.registerBoth(launch);
    WatchTopologyRequest.Builder request =
        WatchTopologyRequest.newBuilder().setGroup(launch.group());
    Topology known = new Topology();
    Iterator<WatchTopologyResponse> watch = follow(request);
    while (known.isBefore(revision)) {
      known.apply(watch.next());
    }
    expect(known.routes.size() == 2, "the snapshot has " + known.routes.size() + " routes, not 2");
    waitForRestart.run();
    untilLost(watch);

    watch = resume(request, known);
    Route restarted = Routes.prefillRoute(1).setRankPort(9100).build();
    RegisterRouteResponse stood =
        routes.registerRank(launch, restarted.toBuilder(), known.revision);
    while (known.isBefore(stood.getRevision())) {
      WatchTopologyResponse message = watch.next();
      expect(!message.hasSnapshot(), "a watch that was current got a second snapshot");
      expect(
          !message.hasChange() || message.getChange().getEventsCount() == 1,
          "one registration is " + message.getChange().getEventsCount() + " events");
      known.apply(message);
    }
    expect(
        known.revision == stood.getRevision()
            && known.routes.size() == 2
            && restarted.equals(known.routes.get(restarted.getKey())),
        "the change was not seen as it was made: " + known.routes);
    return "resumed at revision %s without a snapshot, then saw revision %s"
        .formatted(Long.toUnsignedString(revision), Long.toUnsignedString(stood.getRevision()));
  }

  /** Opens a watch, and waits for a server to be there. */
  private Iterator<WatchTopologyResponse> follow(WatchTopologyRequest.Builder request) {
    return routes.stub().withWaitForReady().watchTopology(request.build());
  }

  /** Reads until the server is gone; until then only progress may come. */
  private static void untilLost(Iterator<WatchTopologyResponse> watch)
      throws NotAsExpectedException {
    try {
      while (watch.hasNext()) {
        WatchTopologyResponse message = watch.next();
        expect(message.hasProgress(), "nothing was changed, and the watch says " + message);
      }
    } catch (StatusRuntimeException error) {
      if (error.getStatus().getCode() == Status.Code.UNAVAILABLE) {
        return;
      }
      throw error;
    }
    throw new NotAsExpectedException("the watch ended though the server was there");
  }

  /**
   * Opens the watch again after the revision that is known, until a server answers. Whoever is
   * current is told so by a progress message, and gets no snapshot.
   */
  private Iterator<WatchTopologyResponse> resume(
      WatchTopologyRequest.Builder request, Topology known) throws NotAsExpectedException {
    request.setAfterRevision(known.revision);
    while (true) {
      Iterator<WatchTopologyResponse> watch = follow(request);
      try {
        WatchTopologyResponse message = watch.next();
        expect(
            message.hasProgress() && message.getRevision() == known.revision,
            "a watch that was current got " + message);
        return watch;
      } catch (StatusRuntimeException error) {
        if (error.getStatus().getCode() != Status.Code.UNAVAILABLE) {
          throw error;
        } // else it answered on its way down, or was not yet up
      }
    }
  }
}
