package dev.interlock.example;

import com.google.gson.Gson;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The Interlock client in Java: every step of examples/clients/README.md against one pair of
 * services.
 */
public final class Main {
  /** One thing to do; gives a line about it for people. */
  private interface Step {
    String run() throws Exception;
  }

  /** The line that a step ends with. */
  private record Result(String step, boolean ok, double seconds, String detail) {}

  private static final Gson GSON = new Gson();

  private Main() {}

  public static void main(String[] arguments) {
    Map<String, String> options = options(arguments);
    ManagedChannel bootstrap = channel(options.get("--bootstrap"));
    ManagedChannel preprocess = channel(options.get("--preprocess"));
    boolean allOk = true;
    try {
      for (Map.Entry<String, Step> step :
          chosen(steps(bootstrap, preprocess, options), options.get("--only"))) {
        Result result = run(step.getKey(), step.getValue());
        allOk &= result.ok();
        say(result);
      }
    } finally {
      bootstrap.shutdownNow();
      preprocess.shutdownNow();
    }
    System.exit(allOk ? 0 : 1);
  }

  private static Map<String, Step> steps(
      ManagedChannel bootstrap, ManagedChannel preprocess, Map<String, String> options) {
    Routes routes = new Routes(bootstrap);
    Watch watch = new Watch(routes, () -> say(Map.of("step", "watch", "waiting", "restart")));
    Pictures pictures = new Pictures(preprocess, Path.of(options.get("--pictures")));
    Map<String, Step> steps = new LinkedHashMap<>();
    steps.put("register", routes::register);
    steps.put("race", routes::race);
    steps.put("mismatch", routes::mismatch);
    steps.put("watch", watch::overRestart);
    steps.put("compatibility", routes::compatibility);
    steps.put("rooms", routes::rooms);
    steps.put("picture", pictures::picture);
    steps.put("neighbours", pictures::neighbours);
    steps.put("cancel", pictures::cancel);
    steps.put("deadline", routes::deadline);
    return steps;
  }

  /** The steps of a comma-separated list, in their order; all without one. */
  private static List<Map.Entry<String, Step>> chosen(Map<String, Step> steps, String only) {
    if (only == null) {
      return List.copyOf(steps.entrySet());
    }
    List<String> names = List.of(only.split(","));
    for (String name : names) {
      if (!steps.containsKey(name)) {
        throw usage("there is no step " + name);
      }
    }
    return steps.entrySet().stream().filter(step -> names.contains(step.getKey())).toList();
  }

  private static Result run(String name, Step step) {
    long started = System.nanoTime();
    boolean ok = true;
    String detail;
    try {
      detail = step.run();
    } catch (Exception error) {
      ok = false;
      detail = error.toString();
    }
    return new Result(name, ok, (System.nanoTime() - started) / 1e9, detail);
  }

  private static void say(Object line) {
    System.out.println(GSON.toJson(line));
    System.out.flush();
  }

  private static ManagedChannel channel(String address) {
    return Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
  }

  private static Map<String, String> options(String[] arguments) {
    Map<String, String> options = new LinkedHashMap<>();
    options.put("--bootstrap", "127.0.0.1:50051");
    options.put("--preprocess", "127.0.0.1:50051");
    options.put("--pictures", ".");
    options.put("--only", null);
    for (int i = 0; i < arguments.length; i += 2) {
      if (!options.containsKey(arguments[i]) || i + 1 == arguments.length) {
        throw usage("no option " + arguments[i] + ", or no value for it");
      }
      options.put(arguments[i], arguments[i + 1]);
    }
    return options;
  }

  private static RuntimeException usage(String why) {
    System.err.println("interlock-client: " + why);
    System.err.println(
        "usage: interlock-client --bootstrap HOST:PORT --preprocess HOST:PORT --pictures DIR [--only STEP,...]");
    System.exit(2);
    return new IllegalArgumentException(why);
  }
}
