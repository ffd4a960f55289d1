package dev.interlock.example;

/** A service answered otherwise than a step expects. */
final class NotAsExpectedException extends Exception {
  private static final long serialVersionUID = 1L;

  NotAsExpectedException(String message) {
    super(message);
  }

  /** Goes on only if something holds. */
  static void expect(boolean holds, String otherwise) throws NotAsExpectedException {
    if (!holds) {
      throw new NotAsExpectedException(otherwise);
    }
  }

  @Override
  public String toString() {
    return getMessage();
  }
}
