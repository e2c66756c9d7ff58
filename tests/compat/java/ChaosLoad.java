import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The Java client as the load program that tests/compat/chaos/load.py describes. */
public final class ChaosLoad {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int VALUE_BYTES = 200;
    private static final int UNANSWERED_MAX = 2000;
    private static final long TICK_MS = 5;

    private final ConcurrentLinkedQueue<long[]> acknowledged = new ConcurrentLinkedQueue<>();
    private final ConcurrentLinkedQueue<String> failed = new ConcurrentLinkedQueue<>();
    private final AtomicInteger unanswered = new AtomicInteger();
    private final Map<String, Follower> followers = new HashMap<>();
    private volatile boolean stopping;
    private AtomicIntegerArray counts;
    private KafkaProducer<byte[], byte[]> producer;
    private Thread thread;

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ChaosLoad load = new ChaosLoad();
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                load.serve(JSON.readTree(line), answer);
            } catch (Exception failure) {
                answer = JSON.createObjectNode();
                answer.put("error", failure.toString());
            }
            answers.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private void serve(JsonNode request, ObjectNode answer) throws Exception {
        switch (request.get("op").asText()) {
            case "start" -> start(request);
            case "count" -> {
                ArrayNode each = answer.putArray("each");
                for (int index = 0; index < counts.length(); index++) {
                    each.add(counts.get(index));
                }
                ArrayNode failures = answer.putArray("failed");
                failed.forEach(failures::add);
            }
            case "finish" -> finish(request, answer);
            case "follow" -> {
                Follower follower = new Follower(request);
                followers.put(request.get("reader").asText(), follower);
                follower.start();
            }
            case "followed" -> followers.get(request.get("reader").asText()).end(request, answer);
            default -> throw new IllegalArgumentException("unknown op " + request.get("op"));
        }
    }

    private static Properties config(JsonNode request) {
        Properties config = new Properties();
        config.put("bootstrap.servers", request.get("bootstrap").asText());
        return config;
    }

    private void start(JsonNode request) {
        Properties config = config(request);
        config.put("acks", "all");
        config.put("enable.idempotence", "true");
        config.put("linger.ms", "5");
        config.put("delivery.timeout.ms", "120000");
        config.put("max.block.ms", "120000");
        counts = new AtomicIntegerArray(request.get("partitions").asInt());
        producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        thread = new Thread(() -> {
            try {
                produce(request);
            } catch (Exception failure) {
                failed.add(failure.toString());
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    /** Numbers every partition's records, round robin, at a steady rate. */
    private void produce(JsonNode request) throws InterruptedException {
        String topic = request.get("topic").asText();
        int partitions = request.get("partitions").asInt();
        double perTick = request.get("rate").asInt() * TICK_MS / 1000.0;
        double allowed = 0;
        for (long sent = 0; !stopping;) {
            allowed = Math.min(allowed + perTick, UNANSWERED_MAX);
            for (; allowed >= 1 && unanswered.get() < UNANSWERED_MAX; allowed--, sent++) {
                int partition = (int) (sent % partitions);
                long number = sent / partitions;
                long asked = System.nanoTime();
                unanswered.incrementAndGet();
                byte[] value = value(request.get("producer").asText(), partition, number);
                producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, failure) -> {
                    unanswered.decrementAndGet();
                    if (failure != null) {
                        failed.add(failure.toString());
                        return;
                    }
                    long offset = metadata.hasOffset() ? metadata.offset() : -1;
                    acknowledged.add(new long[] {partition, number, offset, asked, System.nanoTime()});
                    counts.incrementAndGet(partition);
                });
            }
            Thread.sleep(TICK_MS);
        }
    }

    private static byte[] value(String name, int partition, long number) {
        String head = name + " " + partition + " " + number + " ";
        return (head + ".".repeat(VALUE_BYTES - head.length())).getBytes(StandardCharsets.UTF_8);
    }

    private void finish(JsonNode request, ObjectNode answer) throws Exception {
        stopping = true;
        thread.join();
        producer.close(Duration.ofMillis(request.get("timeout_ms").asLong()));
        try (BufferedWriter file = Files.newBufferedWriter(Path.of(request.get("file").asText()))) {
            for (long[] entry : acknowledged) {
                file.write(entry[0] + " " + entry[1] + " " + entry[2] + " " + entry[3] + " " + entry[4] + "\n");
            }
        }
        answer.put("acknowledged", acknowledged.size());
        answer.put("left", unanswered.get());
        ArrayNode failures = answer.putArray("failed");
        failed.forEach(failures::add);
    }

    /** A consumer of all partitions from their beginning that goes on over all faults. */
    private static final class Follower extends Thread {
        private final List<String> seen = new ArrayList<>();
        private final List<String> failed = new ArrayList<>();
        private final KafkaConsumer<byte[], byte[]> consumer;
        private volatile boolean ending;

        Follower(JsonNode request) {
            setDaemon(true);
            Properties config = config(request);
            config.put("enable.auto.commit", "false");
            config.put("auto.offset.reset", "none");
            consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            List<TopicPartition> partitions = new ArrayList<>();
            for (int index = 0; index < request.get("partitions").asInt(); index++) {
                partitions.add(new TopicPartition(request.get("topic").asText(), index));
            }
            consumer.assign(partitions);
            partitions.forEach(partition -> consumer.seek(partition, 0));
        }

        @Override
        public void run() {
            while (!ending) {
                long asked = System.nanoTime();
                try {
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                    long answered = System.nanoTime();
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        String[] words = new String(record.value(), StandardCharsets.UTF_8).split(" ");
                        String line = record.partition() + " " + record.offset() + " " + asked + " "
                            + answered + " " + words[0] + " " + words[1] + " " + words[2];
                        synchronized (seen) {
                            seen.add(line);
                        }
                    }
                } catch (Exception failure) {
                    failed.add(failure.toString());
                    ending = true;
                }
            }
            consumer.close();
        }

        private int count() {
            synchronized (seen) {
                return seen.size();
            }
        }

        void end(JsonNode request, ObjectNode answer) throws Exception {
            long deadline = System.nanoTime() + request.get("timeout_ms").asLong() * 1_000_000;
            while (count() < request.get("records").asInt() && System.nanoTime() < deadline && !ending) {
                Thread.sleep(50);
            }
            ending = true;
            join();
            Files.write(Path.of(request.get("file").asText()), seen);
            answer.put("records", seen.size());
            ArrayNode failures = answer.putArray("failed");
            failed.forEach(failures::add);
        }
    }
}
