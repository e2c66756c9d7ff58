import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Members of share groups, by name: "share_open", "share_poll", "share_commit", "share_close". */
final class ShareMembers {
    private static final Duration WAIT = Duration.ofSeconds(30);
    private final Map<String, Member> members = new HashMap<>();

    private static final class Member {
        final KafkaShareConsumer<byte[], byte[]> consumer;
        final Map<Long, ConsumerRecord<byte[], byte[]>> polled = new HashMap<>();

        Member(Properties config) {
            consumer = new KafkaShareConsumer<>(
                config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }
    }

    void serve(JsonNode request, ObjectNode answer) {
        String name = Client.text(request, "member");
        switch (request.get("op").asText()) {
            case "share_open" -> open(name, request);
            case "share_poll" -> poll(members.get(name), request, answer);
            case "share_commit" -> commit(members.get(name), request, answer);
            case "share_close" -> close(members.remove(name), request, answer);
            default -> throw new IllegalArgumentException("unknown op " + request.get("op"));
        }
    }

    private void open(String name, JsonNode request) {
        Properties config = Client.config(request);
        config.put("group.id", Client.text(request, "group"));
        request.path("settings").properties().forEach(e -> config.put(e.getKey(), e.getValue().asText()));
        Member member = new Member(config);
        member.consumer.subscribe(List.of(Client.text(request, "topic")));
        members.put(name, member);
    }

    /** The first records that come, as [offset, value, deliveries]; none after the time is up. */
    private static void poll(Member member, JsonNode request, ObjectNode answer) {
        ArrayNode records = answer.putArray("records");
        long end = System.nanoTime() + request.get("wait_ms").asLong() * 1_000_000;
        member.polled.clear();
        do {
            for (ConsumerRecord<byte[], byte[]> record : member.consumer.poll(Duration.ofMillis(100))) {
                member.polled.put(record.offset(), record);
                records.addArray()
                    .add(record.offset())
                    .add(new String(record.value(), StandardCharsets.UTF_8))
                    .add(record.deliveryCount().orElse((short) 0));
            }
        } while (records.isEmpty() && System.nanoTime() < end);
    }

    /** Acknowledge polled records by [offset, type], if any are named, and send all; the errors. */
    private static void commit(Member member, JsonNode request, ObjectNode answer) {
        acknowledge(member, request);
        ArrayNode errors = answer.putArray("errors");
        for (Optional<KafkaException> error : member.consumer.commitSync(WAIT).values()) {
            error.ifPresent(each -> errors.add(each.getClass().getSimpleName()));
        }
    }

    /** The same with the member's last request: after it, no fetch of the client takes records. */
    private static void close(Member member, JsonNode request, ObjectNode answer) {
        ArrayNode errors = answer.putArray("errors");
        member.consumer.setAcknowledgementCommitCallback((offsets, error) -> {
            if (error != null) {
                errors.add(error.getClass().getSimpleName());
            }
        });
        acknowledge(member, request);
        member.consumer.close();
    }

    private static void acknowledge(Member member, JsonNode request) {
        for (JsonNode one : request.path("marks")) {
            member.consumer.acknowledge(
                member.polled.get(one.get(0).asLong()), AcknowledgeType.valueOf(one.get(1).asText()));
        }
    }
}
