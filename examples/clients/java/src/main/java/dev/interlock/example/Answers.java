package dev.interlock.example;

import dev.interlock.preprocess.v1.ImageError;
import dev.interlock.preprocess.v1.PatchFrame;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/** The pictures of a stream by their ids: patches, or an error. Their frames may interleave. */
final class Answers {
  private final Map<String, Patches> patches = new HashMap<>();
  private final Map<String, ImageError> errors = new HashMap<>();

  /** Takes in one frame of the stream. */
  void add(PatchFrame frame) throws NotAsExpectedException {
    switch (frame.getFrameCase()) {
      case SETTINGS -> {} // the credits; these few small pictures are within any
      case ERROR -> errors.put(frame.getImageId(), frame.getError());
      default -> patches.computeIfAbsent(frame.getImageId(), id -> new Patches()).add(frame);
    }
  }

  /** Pictures that came back whole. */
  Set<String> served() {
    return patches.entrySet().stream()
        .filter(entry -> entry.getValue().isWhole())
        .map(Map.Entry::getKey)
        .collect(Collectors.toSet());
  }

  /** Pictures that failed. */
  Set<String> failed() {
    return errors.keySet();
  }

  Patches patches(String id) throws NotAsExpectedException {
    if (!patches.containsKey(id) || errors.containsKey(id)) {
      throw new NotAsExpectedException(id + " was not served: " + errors.get(id));
    }
    return patches.get(id);
  }

  ImageError error(String id) throws NotAsExpectedException {
    if (!errors.containsKey(id)) {
      throw new NotAsExpectedException(id + " did not fail");
    }
    return errors.get(id);
  }
}
