package dev.interlock.kv.v1;

import java.util.Locale;
import java.util.Optional;

/** What SGLang calls the pools: the name of the enum value without its prefix, in lower case. */
public final class PoolNames {
  private static final String PREFIX = "POOL_NAME_";

  private PoolNames() {}

  /**
   * The wire name of a pool.
   *
   * @param pool any value of the enum
   * @return empty for {@code POOL_NAME_UNSPECIFIED} and for a pool that this version does not know
   */
  public static Optional<String> wireName(PoolName pool) {
    return pool == PoolName.UNRECOGNIZED || pool == PoolName.POOL_NAME_UNSPECIFIED
        ? Optional.empty()
        : Optional.of(pool.name().substring(PREFIX.length()).toLowerCase(Locale.ROOT));
  }

  /**
   * The pool of a wire name.
   *
   * @param wireName what SGLang calls it
   * @return empty if there is no such pool
   */
  public static Optional<PoolName> fromWire(String wireName) {
    for (PoolName pool : PoolName.values()) {
      if (wireName(pool).filter(wireName::equals).isPresent()) {
        return Optional.of(pool);
      }
    }
    return Optional.empty();
  }
}
