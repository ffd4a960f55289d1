package dev.interlock.example;

import dev.interlock.bootstrap.v1.BootstrapServiceGrpc;
import dev.interlock.bootstrap.v1.GetPrefillServerInfoRequest;
import dev.interlock.bootstrap.v1.Instance;
import dev.interlock.bootstrap.v1.ParallelSizes;
import dev.interlock.bootstrap.v1.RankKey;
import dev.interlock.bootstrap.v1.RegisterRouteRequest;
import dev.interlock.bootstrap.v1.Route;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.concurrent.TimeUnit;

/**
 * Registers the one rank of a group, and reads what a decode server needs to know of it. Shown in
 * docs/clients.md.
 */
final class TenLines {
  public static void main(String[] arguments) {
    String address = arguments[0];
    long now = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now()) * 1_000;
    // ten lines
    var channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
    var stub = BootstrapServiceGrpc.newBlockingStub(channel);
    var bootstrap = stub.withDeadlineAfter(10, TimeUnit.SECONDS);
    var instance = Instance.newBuilder().setId("launch-" + now).setStartedAt(now);
    var sizes = ParallelSizes.newBuilder().setDp(1).setCp(1).setTp(1).setPp(1);
    var route = Route.newBuilder().setKey(RankKey.getDefaultInstance()).setIncarnation(now);
    route.setSizes(sizes).setRankIp("::1").setRankPort(9000).setPageSize(64);
    var request = RegisterRouteRequest.newBuilder().setGroup("prefill-a").setInstance(instance);
    var registered = bootstrap.registerRoute(request.setRoute(route).build());
    var query = GetPrefillServerInfoRequest.newBuilder().setGroup("prefill-a");
    query.setMinRevision(registered.getRevision());
    var ready = bootstrap.getPrefillServerInfo(query.build());
    String revision = Long.toUnsignedString(ready.getRevision());
    int pageSize = ready.getInfo().getPageSize();
    System.out.printf("ready at revision %s: %d tokens a page%n", revision, pageSize);
    channel.shutdownNow();
    // that is all
  }
}
