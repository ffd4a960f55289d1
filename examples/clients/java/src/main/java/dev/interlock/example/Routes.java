package dev.interlock.example;

import static dev.interlock.example.NotAsExpectedException.expect;

import dev.interlock.bootstrap.v1.BootstrapServiceGrpc;
import dev.interlock.bootstrap.v1.CheckCompatibilityRequest;
import dev.interlock.bootstrap.v1.CheckCompatibilityResponse;
import dev.interlock.bootstrap.v1.ContractMismatch;
import dev.interlock.bootstrap.v1.DecodeServer;
import dev.interlock.bootstrap.v1.GetPrefillServerInfoRequest;
import dev.interlock.bootstrap.v1.GetRankInfoRequest;
import dev.interlock.bootstrap.v1.Incompatibility;
import dev.interlock.bootstrap.v1.Instance;
import dev.interlock.bootstrap.v1.ParallelSizes;
import dev.interlock.bootstrap.v1.PrefillServerInfo;
import dev.interlock.bootstrap.v1.QueryDpRanksRequest;
import dev.interlock.bootstrap.v1.RankKey;
import dev.interlock.bootstrap.v1.RegisterDpRanksRequest;
import dev.interlock.bootstrap.v1.RegisterDpRanksResponse;
import dev.interlock.bootstrap.v1.RegisterRouteRequest;
import dev.interlock.bootstrap.v1.RegisterRouteResponse;
import dev.interlock.bootstrap.v1.RevisionConflict;
import dev.interlock.bootstrap.v1.RoomAssignment;
import dev.interlock.bootstrap.v1.Route;
import dev.interlock.kv.v1.PoolName;
import io.grpc.Channel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Registering by compare-and-swap, and what is asked of a group afterwards.
 *
 * <p>Revisions, incarnations and rooms are uint64, which Java keeps in a {@code long}: they are
 * shown by {@link Long#toUnsignedString} and ordered by {@link Long#compareUnsigned}.
 */
final class Routes {
  private static final Duration PATIENCE = Duration.ofSeconds(50);

  private final Channel channel;

  Routes(Channel channel) {
    this.channel = channel;
  }

  /** A group of one step's own, and one launch of it. */
  record Launch(String group, Instance instance) {
    static Launch of(String step) {
      long now = nanoseconds();
      return new Launch(
          "java-" + step + "-" + now,
          Instance.newBuilder().setId(UUID.randomUUID().toString()).setStartedAt(now).build());
    }
  }

  /** A stub whose calls end in time, whatever happens. */
  BootstrapServiceGrpc.BootstrapServiceBlockingStub stub() {
    return BootstrapServiceGrpc.newBlockingStub(channel).withDeadlineAfter(PATIENCE);
  }

  /** What one of two tensor-parallel ranks registers. */
  static Route.Builder prefillRoute(int tp) {
    return Route.newBuilder()
        .setKey(RankKey.newBuilder().setTp(tp))
        .setIncarnation(nanoseconds())
        .setSizes(sizes(2))
        .setRankIp("10.0.0." + (tp + 1))
        .setRankPort(9000 + tp)
        .setPageSize(64)
        .setKvCacheDtype("bfloat16")
        .addPools(PoolName.POOL_NAME_KV)
        .addPools(PoolName.POOL_NAME_DRAFT);
  }

  private static RegisterRouteRequest request(
      Launch launch, Route.Builder route, long expectedRevision) {
    return RegisterRouteRequest.newBuilder()
        .setGroup(launch.group())
        .setInstance(launch.instance())
        .setRoute(route)
        .setExpectedRevision(expectedRevision)
        .build();
  }

  RegisterRouteResponse registerRank(Launch launch, Route.Builder route, long expectedRevision) {
    return stub().registerRoute(request(launch, route, expectedRevision));
  }

  /**
   * Registers two ranks, each from the revision before, and gives the revision at which the group
   * is ready.
   */
  long registerBoth(Launch launch) throws NotAsExpectedException {
    long first = registerRank(launch, prefillRoute(0), 0).getRevision();
    RegisterRouteResponse second = registerRank(launch, prefillRoute(1), first);
    expect(
        second.getReady() && second.getRegistered() == 2 && second.getExpected() == 2,
        "the group is not ready with both ranks: " + second);
    return second.getRevision();
  }

  String register() throws NotAsExpectedException {
    Launch launch = Launch.of("register");
    long revision = registerBoth(launch);
    PrefillServerInfo info =
        stub()
            .getPrefillServerInfo(
                GetPrefillServerInfoRequest.newBuilder()
                    .setGroup(launch.group())
                    .setMinRevision(revision)
                    .build())
            .getInfo();
    expect(
        info.getPageSize() == 64
            && info.getKvCacheDtype().equals("bfloat16")
            && info.getPoolsCount() == 2,
        "the group is not what was registered: " + info);
    return "two ranks stand at revision " + Long.toUnsignedString(revision);
  }

  String race() throws Exception {
    Launch launch = Launch.of("race");
    List<Route.Builder> routes = List.of(prefillRoute(0), prefillRoute(1));
    List<Future<RegisterRouteResponse>> racing =
        routes.stream()
            .<Future<RegisterRouteResponse>>map(
                route ->
                    BootstrapServiceGrpc.newFutureStub(channel)
                        .withDeadlineAfter(PATIENCE)
                        .registerRoute(request(launch, route, 0)))
            .toList();
    RegisterRouteResponse won = null;
    StatusRuntimeException lost = null;
    Route.Builder loser = null;
    for (int tp = 0; tp < 2; tp++) {
      try {
        won = racing.get(tp).get();
      } catch (ExecutionException error) {
        if (!(error.getCause() instanceof StatusRuntimeException refusal)) {
          throw error;
        }
        lost = refusal;
        loser = routes.get(tp);
      }
    }
    expect(
        won != null && lost != null, "of two ranks not one won and one lost: " + won + ", " + lost);
    RevisionConflict conflict =
        Refusals.detail(lost, Status.Code.ABORTED, "REVISION_CONFLICT", RevisionConflict.class);
    expect(
        conflict.getRevision() == won.getRevision() && !conflict.hasStandingRoute(),
        "the refusal does not say what stands: " + conflict);
    RegisterRouteResponse stood = registerRank(launch, loser, conflict.getRevision());
    expect(stood.getReady(), "the group is not ready after the second try: " + stood);
    return "tp %d lost to revision %s and stands at %s"
        .formatted(
            loser.getKey().getTp(),
            Long.toUnsignedString(conflict.getRevision()),
            Long.toUnsignedString(stood.getRevision()));
  }

  String mismatch() throws Exception {
    Launch launch = Launch.of("mismatch");
    long first = registerRank(launch, prefillRoute(0), 0).getRevision();
    Route.Builder misfit = prefillRoute(1).setPageSize(128).setKvCacheDtype("fp8_e4m3");
    StatusRuntimeException error = refused(() -> registerRank(launch, misfit, first));
    ContractMismatch refusal =
        Refusals.detail(
            error, Status.Code.FAILED_PRECONDITION, "CONTRACT_MISMATCH", ContractMismatch.class);
    String detail =
        refusal.getMismatchesList().stream()
            .map(
                m ->
                    m.getField()
                        + ": "
                        + m.getStandingValue()
                        + " stands, "
                        + m.getOfferedValue()
                        + " was offered")
            .collect(Collectors.joining("; "));
    expect(
        detail.equals(
            "page_size: 64 stands, 128 was offered; kv_cache_dtype: bfloat16 stands, fp8_e4m3 was offered"),
        "other differences than those made: " + detail);
    return detail;
  }

  String compatibility() throws NotAsExpectedException {
    Launch launch = Launch.of("compatibility");
    long revision = registerBoth(launch);
    String fields =
        check(launch, revision, 128, 3).getIncompatibilitiesList().stream()
            .map(Incompatibility::getField)
            .collect(Collectors.joining(", "));
    expect(
        fields.equals("page_size, sizes.tp"),
        "128 tokens a page on 3 ranks are refused for other fields: " + fields);
    CheckCompatibilityResponse fit = check(launch, revision, 64, 2);
    expect(
        fit.getIncompatibilitiesCount() == 0 && fit.getReady(),
        "64 tokens a page on 2 ranks do not fit: " + fit);
    return "one does not fit in "
        + fields
        + "; one fits at revision "
        + Long.toUnsignedString(fit.getRevision());
  }

  private CheckCompatibilityResponse check(Launch launch, long revision, int pageSize, int tp) {
    return stub()
        .checkCompatibility(
            CheckCompatibilityRequest.newBuilder()
                .setGroup(launch.group())
                .setMinRevision(revision)
                .setDecodeServer(
                    DecodeServer.newBuilder().setPageSize(pageSize).setSizes(sizes(tp)))
                .build());
  }

  String rooms() throws NotAsExpectedException {
    Launch launch = Launch.of("rooms");
    registerBoth(launch);
    // Past what a double holds exactly, past what a long shows as positive, and the last one.
    List<Long> named =
        Stream.of("9007199254740993", "9223372036854775808", "18446744073709551615")
            .map(Long::parseUnsignedLong)
            .toList();
    long unknown = 7;
    RegisterDpRanksResponse kept =
        stub()
            .registerDpRanks(
                RegisterDpRanksRequest.newBuilder()
                    .setGroup(launch.group())
                    .addAllAssignments(
                        named.stream()
                            .map(room -> RoomAssignment.newBuilder().setRoom(room).build())
                            .toList())
                    .build());
    expect(
        kept.getRegistered() == 3 && kept.getOverwritten() == 0,
        "3 new rooms were registered, and the answer is " + kept);
    List<Long> known =
        stub()
            .queryDpRanks(
                QueryDpRanksRequest.newBuilder()
                    .setGroup(launch.group())
                    .addAllRooms(named)
                    .addRooms(unknown)
                    .build())
            .getAssignmentsList()
            .stream()
            .map(RoomAssignment::getRoom)
            .sorted(Long::compareUnsigned)
            .toList();
    expect(known.equals(named), "rooms " + unsigned(named) + " came back as " + unsigned(known));
    return unsigned(known) + " are known, " + unknown + " is not";
  }

  String deadline() throws NotAsExpectedException {
    Launch launch = Launch.of("deadline");
    long revision = registerBoth(launch);
    Duration patience = Duration.ofMillis(300);
    long started = System.nanoTime();
    StatusRuntimeException error =
        refused(
            () ->
                BootstrapServiceGrpc.newBlockingStub(channel)
                    .withDeadlineAfter(patience)
                    .getRankInfo(
                        GetRankInfoRequest.newBuilder()
                            .setGroup(launch.group())
                            .setKey(RankKey.getDefaultInstance())
                            .setMinRevision(revision + 1)
                            .build()));
    Duration waited = Duration.ofNanos(System.nanoTime() - started);
    expect(
        error.getStatus().getCode() == Status.Code.DEADLINE_EXCEEDED,
        "a call that waits for a revision that does not come ended with " + error);
    expect(
        waited.compareTo(patience.dividedBy(2)) >= 0,
        "the call ended after " + waited + ", long before its deadline");
    return error.getStatus().getCode() + " after " + waited.toMillis() + " ms";
  }

  private static StatusRuntimeException refused(Runnable call) throws NotAsExpectedException {
    try {
      call.run();
    } catch (StatusRuntimeException error) {
      return error;
    }
    throw new NotAsExpectedException("a call that must fail did not");
  }

  private static ParallelSizes sizes(int tp) {
    return ParallelSizes.newBuilder().setDp(1).setCp(1).setTp(tp).setPp(1).build();
  }

  private static String unsigned(List<Long> numbers) {
    return numbers.stream().map(Long::toUnsignedString).collect(Collectors.joining(", "));
  }

  private static long nanoseconds() {
    return ChronoUnit.NANOS.between(Instant.EPOCH, Instant.now());
  }
}
