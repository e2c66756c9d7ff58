import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.Set;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** Kafka Streams' own example, exactly once: words of one topic, each of their counts to another. */
final class WordCount {
    private KafkaStreams streams;

    void serve(JsonNode request, ObjectNode answer) {
        switch (request.get("op").asText()) {
            case "wordcount_start" -> start(request);
            case "wordcount_state" -> state(answer);
            default -> streams.close(Duration.ofSeconds(20));
        }
    }

    private void state(ObjectNode answer) {
        answer.put("state", streams.state().name());
        list(answer.putArray("tasks"), ThreadMetadata::activeTasks);
        list(answer.putArray("standby"), ThreadMetadata::standbyTasks);
    }

    private void list(ArrayNode to, Function<ThreadMetadata, Set<TaskMetadata>> tasks) {
        streams.metadataForLocalThreads().stream().flatMap(thread -> tasks.apply(thread).stream())
            .map(task -> task.taskId().toString()).sorted().forEach(to::add);
    }

    private void start(JsonNode request) {
        Properties config = Client.config(request);
        config.put("application.id", Client.text(request, "application"));
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("commit.interval.ms", "100");
        config.put("state.dir", Client.text(request, "folder"));
        config.put("statestore.cache.max.bytes", "0"); // every count is sent on
        // A killed one's tasks and open transaction are noticed soon.
        config.put("producer.transaction.timeout.ms", "3000");
        String protocol = request.path("protocol").asText("classic");
        config.put("group.protocol", protocol);
        if (protocol.equals("classic")) { // else the broker says
            config.put("session.timeout.ms", "2000");
            config.put("heartbeat.interval.ms", "300");
        }
        config.put("auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(Client.text(request, "from"), Consumed.with(Serdes.ByteArray(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(String::valueOf)
            .to(Client.text(request, "to"), Produced.with(Serdes.String(), Serdes.String()));
        streams = new KafkaStreams(builder.build(), config);
        streams.start();
    }
}
