import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers behind the JSON line protocol of tests/compat/clients/protocol.py. */
final class Transactions {
    private static final long WAIT_S = 30;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    void serve(JsonNode request, ObjectNode answer) throws Exception {
        String name = request.path("producer").asText();
        switch (request.get("op").asText()) {
            case "txn_open" -> producers.put(name, open(request));
            case "txn_init" -> producers.get(name).initTransactions();
            case "txn_send" -> send(producers.get(name), request);
            case "txn_offsets" -> offsets(producers.get(name), request);
            case "txn_end" -> end(producers.get(name), request);
            case "txn_close" -> producers.remove(name).close(
                Duration.ofSeconds(request.path("at_once").asBoolean() ? 0 : WAIT_S));
            case "copy" -> copy(request, answer);
            default -> throw new IllegalArgumentException("unknown op " + request.get("op"));
        }
    }

    private static KafkaProducer<byte[], byte[]> open(JsonNode request) {
        Properties config = Client.config(request);
        config.put("transactional.id", Client.text(request, "transactional_id"));
        config.put("transaction.timeout.ms", request.path("timeout_ms").asInt(60_000));
        int deliveryMs = request.path("delivery_timeout_ms").asInt(30_000);
        config.put("delivery.timeout.ms", deliveryMs);
        config.put("request.timeout.ms", deliveryMs * 2 / 3);
        config.put("max.block.ms", request.path("max_block_ms").asInt(60_000));
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        try {
            if (request.path("init").asBoolean(true)) {
                producer.initTransactions();
            }
        } catch (RuntimeException failure) {
            producer.close(Duration.ZERO);
            throw failure;
        }
        return producer;
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, JsonNode request)
        throws Exception {
        if (request.get("begin").asBoolean()) {
            producer.beginTransaction();
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : request.get("records")) {
            sent.add(producer.send(Client.producerRecord(Client.text(request, "topic"), record)));
        }
        producer.flush();
        for (Future<RecordMetadata> one : sent) {
            one.get(WAIT_S, TimeUnit.SECONDS);
        }
    }

    private static void offsets(KafkaProducer<byte[], byte[]> producer, JsonNode request) {
        TopicPartition partition =
            new TopicPartition(Client.text(request, "topic"), request.get("partition").asInt());
        OffsetAndMetadata offset = new OffsetAndMetadata(
            request.get("offset").asLong(), request.path("metadata").asText());
        Properties config = Client.config(request);
        config.put("group.id", Client.text(request, "group"));
        try (KafkaConsumer<byte[], byte[]> consumer = Client.consumer(config)) {
            producer.sendOffsetsToTransaction(
                Map.of(partition, offset), consumer.groupMetadata());
        }
    }

    private static void end(KafkaProducer<byte[], byte[]> producer, JsonNode request) {
        if (request.get("commit").asBoolean()) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
    }

    /** One transaction: what a member of a group reads goes to another topic with its offsets. */
    private static void copy(JsonNode request, ObjectNode answer) {
        Properties config = Client.config(request);
        config.put("group.id", Client.text(request, "group"));
        if (request.hasNonNull("protocol")) {
            config.put("group.protocol", Client.text(request, "protocol"));
        }
        config.put("isolation.level", "read_committed");
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        int count = request.get("count").asInt();
        config.put("max.poll.records", count);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        int copied = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = Client.consumer(config);
             KafkaProducer<byte[], byte[]> producer = open(request)) {
            consumer.subscribe(List.of(Client.text(request, "topic")));
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            producer.beginTransaction();
            while (copied < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> read : consumer.poll(Duration.ofMillis(200))) {
                    if (copied == count) {
                        break;
                    }
                    producer.send(new ProducerRecord<>(
                        Client.text(request, "to"), 0, read.key(), read.value()));
                    offsets.put(new TopicPartition(read.topic(), read.partition()),
                        new OffsetAndMetadata(read.offset() + 1));
                    copied++;
                }
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            end(producer, request);
        }
        answer.put("copied", copied);
    }
}
