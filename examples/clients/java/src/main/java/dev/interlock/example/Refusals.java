package dev.interlock.example;

import static dev.interlock.example.NotAsExpectedException.expect;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.rpc.ErrorInfo;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;

/** What a refusal says to programs. Its message is for people and may change. */
final class Refusals {
  private Refusals() {}

  /**
   * Takes the typed detail out of a refusal.
   *
   * @param error what the call threw
   * @param code the status code expected
   * @param reason the reason expected
   * @param kind the message that goes with this reason
   */
  static <D extends Message> D detail(
      StatusRuntimeException error, Status.Code code, String reason, Class<D> kind)
      throws NotAsExpectedException, InvalidProtocolBufferException {
    ErrorInfo info = ErrorInfo.getDefaultInstance();
    D detail = null;
    for (Any any : StatusProto.fromThrowable(error).getDetailsList()) {
      if (any.is(ErrorInfo.class)) {
        info = any.unpack(ErrorInfo.class);
      } else if (any.is(kind)) {
        detail = any.unpack(kind);
      }
    }
    expect(
        error.getStatus().getCode() == code
            && info.getDomain().equals("interlock")
            && info.getReason().equals(reason),
        error + " (" + info.getReason() + ") is not " + code + " (" + reason + ")");
    expect(detail != null, reason + " came without its " + kind.getSimpleName());
    return detail;
  }
}
