package dev.interlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import com.google.rpc.Status;
import dev.interlock.kv.v1.PoolName;
import dev.interlock.kv.v1.PoolNames;
import dev.interlock.kv.v1.SpecLayout;
import dev.interlock.preprocess.v1.PlanImagesRequest;
import dev.interlock.preprocess.v1.PlanImagesResponse;
import dev.interlock.preprocess.v1.PlanResult;
import io.grpc.protobuf.StatusProto;
import java.net.InetAddress;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** What clients in every language agree on: {@code vectors/} of the repository. */
class VectorsTest {
  private static final Path VECTORS = Path.of("..", "..", "vectors");

  @TestFactory
  Stream<DynamicTest> everyMessageHasItsBytesAndItsJson() throws Exception {
    return objects(load("messages.json"))
        .map(m -> dynamicTest(text(m, "type") + ": " + text(m, "about"), () -> check(m)));
  }

  @TestFactory
  Stream<DynamicTest> everyTriedValueHasItsBytesAndItsJson() throws Exception {
    return objects(load("values.json"))
        .map(
            value ->
                dynamicTest(
                    text(value, "about"),
                    () -> {
                      for (JsonElement request : value.getAsJsonArray("requests")) {
                        check(request.getAsJsonObject());
                      }
                    }));
  }

  private static void check(JsonObject m) throws Exception {
    Message kind = kind(text(m, "type"));
    String hex = text(m, "hex");
    Message read = parse(kind, hex);
    assertEquals(hex, hex(read));
    List<Message> same = new ArrayList<>();
    for (JsonElement other : strings(m, "also_hex")) {
      same.add(parse(kind, other.getAsString()));
    }
    if (m.has("json")) {
      assertEquals(m.get("json"), JsonParser.parseString(JsonFormat.printer().print(read)));
      same.add(parseJson(kind, m.get("json").toString()));
    }
    for (JsonElement other : strings(m, "also_json")) {
      same.add(parseJson(kind, other.getAsString()));
    }
    String known =
        m.has("hex_without_unknown_fields") ? text(m, "hex_without_unknown_fields") : hex;
    for (Message other : same) {
      assertEquals(known, hex(other));
    }
  }

  @Test
  void everyPoolHasItsWireName() throws Exception {
    JsonObject names = load("pool_names.json").getAsJsonObject();
    JsonArray pools = names.getAsJsonArray("pools");
    assertEquals(
        PoolName.values().length - 2, pools.size()); // without UNSPECIFIED and UNRECOGNIZED
    for (JsonElement element : pools) {
      JsonObject pool = element.getAsJsonObject();
      PoolName name = PoolName.forNumber(pool.get("number").getAsInt());
      assertEquals(text(pool, "enum_name"), name.name());
      assertEquals(Optional.of(text(pool, "wire_name")), PoolNames.wireName(name));
      assertEquals(Optional.of(name), PoolNames.fromWire(text(pool, "wire_name")));
    }
    for (JsonElement text : names.getAsJsonArray("not_wire_names")) {
      assertEquals(Optional.empty(), PoolNames.fromWire(text.getAsString()));
    }
    assertEquals(Optional.empty(), PoolNames.wireName(PoolName.UNRECOGNIZED));
  }

  @TestFactory
  Stream<DynamicTest> everyRefusalIsReadWithItsDetails() throws Exception {
    return objects(load("errors.json"))
        .map(refusal -> dynamicTest(text(refusal, "about"), () -> checkRefusal(refusal)));
  }

  private static void checkRefusal(JsonObject refusal) throws Exception {
    Status trailer = Status.parseFrom(Files.readAllBytes(VECTORS.resolve(text(refusal, "status"))));
    io.grpc.StatusRuntimeException error = StatusProto.toStatusRuntimeException(trailer);
    assertEquals(
        io.grpc.Status.Code.valueOf(text(refusal, "code_name")), error.getStatus().getCode());
    assertEquals(refusal.get("code").getAsInt(), error.getStatus().getCode().value());
    assertEquals(text(refusal, "message"), error.getStatus().getDescription());
    List<Message> details = new ArrayList<>();
    List<Message> expected = new ArrayList<>();
    for (Any any : StatusProto.fromThrowable(error).getDetailsList()) {
      details.add(any.unpackSameTypeAs(kind(any.getTypeUrl().replaceFirst(".*/", ""))));
    }
    for (JsonElement detail : refusal.getAsJsonArray("details")) {
      JsonObject typed = detail.getAsJsonObject();
      expected.add(parseJson(kind(text(typed, "type")), typed.get("json").toString()));
    }
    assertEquals(expected, details);
  }

  @Test
  void everyReasonHasACodeThatIsKnown() throws Exception {
    for (JsonElement element : load("reasons.json").getAsJsonArray()) {
      JsonObject reason = element.getAsJsonObject();
      io.grpc.Status.Code code = io.grpc.Status.Code.valueOf(text(reason, "code_name"));
      assertEquals(reason.get("code").getAsInt(), code.value(), text(reason, "reason"));
    }
  }

  @Test
  void whatAnAbsentFieldMeansCanBeSaid() throws Exception {
    for (JsonElement element : load("defaults.json").getAsJsonArray()) {
      String field = text(element.getAsJsonObject(), "field");
      int dot = field.lastIndexOf('.');
      JsonObject said = new JsonObject();
      said.add(field.substring(dot + 1), element.getAsJsonObject().get("absent_means"));
      Message kind = kind(field.substring(0, dot));
      assertNotNull(kind.getDescriptorForType().findFieldByName(field.substring(dot + 1)), field);
      parseJson(kind, said.toString());
    }
  }

  @Test
  void everyPlanIsThatOfItsSize() throws Exception {
    int profiles = 0;
    try (DirectoryStream<Path> files =
        Files.newDirectoryStream(VECTORS.resolve("plans"), "*.json")) {
      for (Path file : files) {
        String name = file.getFileName().toString().replaceFirst("\\.json$", "");
        JsonArray plans = load("plans/" + name + ".json").getAsJsonObject().getAsJsonArray("plans");
        PlanImagesRequest request =
            PlanImagesRequest.parseFrom(
                Files.readAllBytes(file.resolveSibling(name + ".request.bin")));
        PlanImagesResponse response =
            PlanImagesResponse.parseFrom(
                Files.readAllBytes(file.resolveSibling(name + ".response.bin")));
        assertEquals(200, plans.size());
        assertEquals(200, request.getSizesCount());
        assertEquals(200, response.getResultsCount());
        for (int i = 0; i < plans.size(); i++) {
          JsonObject plan = plans.get(i).getAsJsonObject();
          assertEquals(plan.remove("width").getAsInt(), request.getSizes(i).getWidth());
          assertEquals(plan.remove("height").getAsInt(), request.getSizes(i).getHeight());
          assertEquals(
              parseJson(PlanResult.getDefaultInstance(), plan.toString()), response.getResults(i));
        }
        profiles++;
      }
    }
    assertNotEquals(0, profiles);
  }

  @Test
  void everyAddressIsStoredAsTheSameAddress() throws Exception {
    int literals = 0;
    for (JsonElement element : load("addresses.json").getAsJsonArray()) {
      JsonObject address = element.getAsJsonObject();
      if (!address.get("legal").getAsBoolean() || !isLiteral(text(address, "stored"))) {
        continue; // refused, or a host name
      }
      literals++;
      InetAddress stored = InetAddress.getByName(text(address, "stored"));
      assertEquals(InetAddress.getByName(text(address, "text")), stored);
    }
    assertNotEquals(0, literals);
  }

  private static boolean isLiteral(String address) {
    return address.contains(":") || address.matches("[0-9.]+");
  }

  @Test
  void extraJsonStaysAsItIsSpelt() throws Exception {
    JsonObject extra = load("extra_json.json").getAsJsonObject();
    for (JsonElement element : extra.getAsJsonArray("texts")) {
      JsonObject text = element.getAsJsonObject();
      if (text.get("legal").getAsBoolean()) {
        SpecLayout layout = layout(text(text, "text"));
        assertEquals(
            text(text, "text"),
            SpecLayout.parseFrom(layout.toByteArray()).getExtraJsonOrThrow("key"));
        assertEquals(
            layout,
            parseJson(layout.getDefaultInstanceForType(), JsonFormat.printer().print(layout)));
      }
    }
    JsonArray pairs = extra.getAsJsonArray("differ_though_they_mean_the_same");
    assertFalse(pairs.isEmpty());
    for (JsonElement element : pairs) {
      JsonArray pair = element.getAsJsonArray();
      assertNotEquals(layout(pair.get(0).getAsString()), layout(pair.get(1).getAsString()));
    }
  }

  private static SpecLayout layout(String text) {
    return SpecLayout.newBuilder().putExtraJson("key", text).build();
  }

  private static Message kind(String type) throws ReflectiveOperationException {
    String name = type.startsWith("google.") ? "com." + type : "dev." + type;
    return (Message) Class.forName(name).getMethod("getDefaultInstance").invoke(null);
  }

  private static Message parse(Message kind, String hex) throws Exception {
    return kind.getParserForType().parseFrom(HexFormat.of().parseHex(hex));
  }

  private static Message parseJson(Message kind, String json) throws Exception {
    Message.Builder builder = kind.newBuilderForType();
    JsonFormat.parser().merge(json, builder);
    return builder.build();
  }

  private static String hex(Message message) {
    ByteString bytes = message.toByteString();
    return HexFormat.of().formatHex(bytes.toByteArray());
  }

  private static Stream<JsonObject> objects(JsonElement array) {
    assertTrue(array.getAsJsonArray().size() > 0);
    return StreamSupport.stream(array.getAsJsonArray().spliterator(), false)
        .map(JsonElement::getAsJsonObject);
  }

  private static JsonArray strings(JsonObject object, String name) {
    return object.has(name) ? object.getAsJsonArray(name) : new JsonArray();
  }

  private static String text(JsonObject object, String name) {
    return object.get(name).getAsString();
  }

  private static JsonElement load(String name) throws Exception {
    return JsonParser.parseString(Files.readString(VECTORS.resolve(name)));
  }
}
