import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client behind the JSON line protocol of tests/compat/clients/protocol.py. */
final class Client {
    private static final long WAIT_S = 30;
    private final Map<String, Member> members = new HashMap<>();
    private final Transactions transactions = new Transactions();
    private final WordCount wordCount = new WordCount();
    private final ShareMembers shareMembers = new ShareMembers();
    private final ConnectWorker connectWorker = new ConnectWorker();

    void serve(JsonNode request, ObjectNode answer) throws Exception {
        switch (request.get("op").asText()) {
            case "produce" -> produce(request, answer);
            case "consume" -> consume(request, answer);
            case "join" -> members.put(text(request, "member"), new Member(request));
            case "assignment" -> member(request).assignment(answer);
            case "consumed" -> member(request).consumed(answer);
            case "commit" -> member(request).commit();
            case "leave" -> members.remove(text(request, "member")).leave();
            case "txn_open", "txn_init", "txn_send", "txn_offsets", "txn_end", "txn_close", "copy" ->
                transactions.serve(request, answer);
            case "share_open", "share_poll", "share_commit", "share_close" ->
                shareMembers.serve(request, answer);
            case "wordcount_start", "wordcount_state", "wordcount_stop" ->
                wordCount.serve(request, answer);
            case "connect_start", "connect_stop", "translated_offsets" ->
                connectWorker.serve(request, answer);
            default -> administer(request, answer);
        }
    }

    private void administer(JsonNode request, ObjectNode answer) throws Exception {
        Properties config = config(request);
        try (Admin admin = Admin.create(config)) {
            switch (request.get("op").asText()) {
                case "create_topic" -> createTopic(admin, request);
                case "delete_topic" ->
                    admin.deleteTopics(List.of(text(request, "topic"))).all().get(WAIT_S, TimeUnit.SECONDS);
                case "topics" -> {
                    ArrayNode names = answer.putArray("topics");
                    admin.listTopics().names().get(WAIT_S, TimeUnit.SECONDS).forEach(names::add);
                }
                case "describe_topic" -> describeTopic(admin, request, answer);
                case "delete_records" -> {
                    TopicPartition partition = partition(request);
                    long lowWatermark = admin.deleteRecords(
                        Map.of(partition, RecordsToDelete.beforeOffset(request.get("before").asLong())))
                        .lowWatermarks().get(partition).get(WAIT_S, TimeUnit.SECONDS).lowWatermark();
                    answer.put("low_watermark", lowWatermark);
                }
                case "offsets" -> offsets(admin, request, answer);
                case "committed" -> committed(admin, request, answer);
                default -> throw new IllegalArgumentException("unknown op " + request.get("op"));
            }
        }
    }

    static String text(JsonNode request, String field) {
        return request.get(field).asText();
    }

    private static TopicPartition partition(JsonNode request) {
        return new TopicPartition(text(request, "topic"), request.get("partition").asInt());
    }

    private Member member(JsonNode request) {
        return members.get(text(request, "member"));
    }

    static Properties config(JsonNode request) {
        Properties config = new Properties();
        config.put("bootstrap.servers", text(request, "bootstrap"));
        return config;
    }

    private static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static String base64(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private static void createTopic(Admin admin, JsonNode request) throws Exception {
        Map<String, String> configs = new HashMap<>();
        request.path("configs").properties().forEach(e -> configs.put(e.getKey(), e.getValue().asText()));
        NewTopic topic = new NewTopic(text(request, "topic"), request.get("partitions").asInt(), (short) 1);
        admin.createTopics(List.of(topic.configs(configs))).all().get(WAIT_S, TimeUnit.SECONDS);
    }

    private static void describeTopic(Admin admin, JsonNode request, ObjectNode answer) throws Exception {
        String name = text(request, "topic");
        TopicDescription topic =
            admin.describeTopics(List.of(name)).allTopicNames().get(WAIT_S, TimeUnit.SECONDS).get(name);
        answer.put("partitions", topic.partitions().size());
        answer.put("leader", topic.partitions().get(0).leader().id());
    }

    private static void offsets(Admin admin, JsonNode request, ObjectNode answer) throws Exception {
        OffsetSpec spec = switch (text(request, "at")) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            default -> OffsetSpec.forTimestamp(request.get("at").asLong());
        };
        TopicPartition partition = partition(request);
        answer.put("offset", admin.listOffsets(Map.of(partition, spec)).partitionResult(partition)
            .get(WAIT_S, TimeUnit.SECONDS).offset());
    }

    private static void committed(Admin admin, JsonNode request, ObjectNode answer) throws Exception {
        OffsetAndMetadata offset = admin.listConsumerGroupOffsets(text(request, "group"))
            .partitionsToOffsetAndMetadata().get(WAIT_S, TimeUnit.SECONDS).get(partition(request));
        answer.put("offset", offset == null ? -1 : offset.offset());
        answer.put("metadata", offset == null ? null : offset.metadata());
    }

    private static void produce(JsonNode request, ObjectNode answer) throws Exception {
        Properties config = config(request);
        config.put("acks", text(request, "acks"));
        config.put("enable.idempotence", request.get("idempotent").asBoolean());
        config.put("compression.type", text(request, "codec"));
        config.put("linger.ms", "5");
        config.put("max.request.size", "20000000");
        config.put("delivery.timeout.ms", "30000");
        config.put("request.timeout.ms", "20000");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : request.get("records")) {
                sent.add(producer.send(producerRecord(text(request, "topic"), record)));
            }
            producer.flush();
        }
        ArrayNode offsets = answer.putArray("offsets");
        for (Future<RecordMetadata> one : sent) {
            RecordMetadata metadata = one.get(WAIT_S, TimeUnit.SECONDS);
            offsets.addArray().add(metadata.partition()).add(metadata.hasOffset() ? metadata.offset() : -1);
        }
    }

    static ProducerRecord<byte[], byte[]> producerRecord(String topic, JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.path("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        Integer partition = record.hasNonNull("partition") ? record.get("partition").asInt() : null;
        Long timestamp = record.hasNonNull("timestamp") ? record.get("timestamp").asLong() : null;
        return new ProducerRecord<>(
            topic, partition, timestamp, bytes(record.get("key")), bytes(record.get("value")), headers);
    }

    private static void addRecord(ArrayNode records, ConsumerRecord<byte[], byte[]> record) {
        ObjectNode node = records.addObject();
        node.put("partition", record.partition());
        node.put("offset", record.offset());
        node.put("timestamp", record.timestamp());
        node.put("key", base64(record.key()));
        node.put("value", base64(record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(base64(header.value()));
        }
    }

    static KafkaConsumer<byte[], byte[]> consumer(Properties config) {
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void consume(JsonNode request, ObjectNode answer) {
        Properties config = config(request);
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "none");
        if (request.path("committed").asBoolean()) {
            config.put("isolation.level", "read_committed");
        }
        config.put("fetch.min.bytes", request.path("fetch_min_bytes").asInt(1));
        config.put("fetch.max.wait.ms", request.path("fetch_max_wait_ms").asInt(500));
        int count = request.get("count").asInt();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        ArrayNode records = answer.putArray("records");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(config)) {
            TopicPartition partition = partition(request);
            consumer.assign(List.of(partition));
            if (request.get("from").isTextual()) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, request.get("from").asLong());
            }
            while (records.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    addRecord(records, record);
                }
            }
        }
    }

    /** One consumer of a group on its own thread; consumers are not thread safe, so work is queued. */
    private static final class Member {
        private final ConcurrentLinkedQueue<Runnable> work = new ConcurrentLinkedQueue<>();
        private final List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final boolean isOfNewProtocol;
        private volatile boolean running = true;
        private final Thread thread;

        Member(JsonNode request) {
            Properties config = config(request);
            config.put("group.id", text(request, "group"));
            config.put("enable.auto.commit", "false");
            config.put("auto.offset.reset", "earliest");
            if (request.hasNonNull("protocol")) {
                config.put("group.protocol", text(request, "protocol"));
            } else {
                config.put("session.timeout.ms", request.get("session_timeout_ms").asText());
                config.put("heartbeat.interval.ms", "200");
            }
            if (request.hasNonNull("instance")) {
                config.put("group.instance.id", text(request, "instance"));
            }
            isOfNewProtocol = request.hasNonNull("protocol");
            consumer = consumer(config);
            consumer.subscribe(List.of(text(request, "topic")));
            thread = new Thread(this::run);
            thread.setDaemon(true);
            thread.start();
        }

        private void run() {
            while (running) {
                poll().forEach(records::add);
                for (Runnable job = work.poll(); job != null; job = work.poll()) {
                    job.run();
                }
            }
            consumer.close();
        }

        /**
         * A poll of the new consumer does not sleep while the member waits to join
         * (AbstractHeartbeatRequestManager.maximumTimeToWait is 0 then): it would take a core from the
         * brokers that it waits for. Its other thread takes one while no broker answers.
         */
        private ConsumerRecords<byte[], byte[]> poll() {
            boolean wouldSpin = isOfNewProtocol && consumer.assignment().isEmpty();
            if (wouldSpin) {
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(20));
            }
            return consumer.poll(Duration.ofMillis(wouldSpin ? 0 : 50));
        }

        private void queued(Runnable job) throws Exception {
            CompletableFuture<Void> done = new CompletableFuture<>();
            work.add(() -> {
                try {
                    job.run();
                    done.complete(null);
                } catch (RuntimeException failure) {
                    done.completeExceptionally(failure);
                }
            });
            done.get(WAIT_S, TimeUnit.SECONDS);
        }

        void assignment(ObjectNode answer) throws Exception {
            ArrayNode partitions = answer.putArray("partitions");
            queued(() -> consumer.assignment().stream().map(TopicPartition::partition).sorted()
                .collect(Collectors.toList()).forEach(partitions::add));
        }

        void consumed(ObjectNode answer) throws Exception {
            ArrayNode node = answer.putArray("records");
            queued(() -> records.forEach(record -> addRecord(node, record)));
        }

        void commit() throws Exception {
            queued(consumer::commitSync);
        }

        void leave() throws Exception {
            running = false;
            thread.join(TimeUnit.SECONDS.toMillis(WAIT_S));
        }
    }
}
