import dev.interlock.bootstrap.v1.RoomAssignment;
import java.util.HexFormat;

/** Uses the packed jar: prints the bytes of one message. */
public final class Main {
  public static void main(String[] arguments) {
    RoomAssignment assignment = RoomAssignment.newBuilder().setRoom(-1L).setDpRank(7).build();
    System.out.println(HexFormat.of().formatHex(assignment.toByteArray()));
  }
}
