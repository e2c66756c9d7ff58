import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Each price is discounted once, also while requests fail and days pass. */
class DiscountsTest {
    private static final Map<String, Object> DAY = Map.of(
            "retention.ms", 86_400_000, "message.timestamp.type", "LogAppendTime");
    private static Tidelog broker;

    @BeforeAll
    static void start() throws Exception {
        broker = new Tidelog();
    }

    @AfterAll
    static void stop() throws Exception {
        broker.close();
    }

    @BeforeEach
    void createTopics() throws Exception {
        for (var topic : List.of("prices", "discounted")) {
            broker.call("topics/create", Map.of("name", topic, "config", DAY));
        }
    }

    @AfterEach
    void reset() throws Exception {
        broker.call("cluster/reset");
    }

    @Test
    void eachPriceIsDiscounted() throws Exception {
        send("100", "250");
        try (var discounts = new Discounts(broker.bootstrapServers)) {
            discounts.work(2);
        }
        assertEquals(List.of("90", "225"), discounted());
    }

    @Test
    void aPriceIsDiscountedOnceIfAnswersAreLost() throws Exception {
        send("100", "250");
        try (var discounts = new Discounts(broker.bootstrapServers)) {
            var lost = Map.of("kind", "drop_connection", "after_work", true);
            var write = broker.fault("Produce", lost, 1);
            var commit = broker.fault("EndTxn", lost, 1);
            discounts.work(2);
            for (var fault : List.of(write, commit)) {
                var found = broker.call("faults/wait", Map.of("id", fault.get("id").asInt()));
                assertEquals(1, found.get("hits").asInt());
            }
        }
        assertEquals(List.of("90", "225"), discounted());
    }

    @Test
    void afterACrashThePriceIsDiscountedAgain() throws Exception {
        send("100");
        var refused = Map.of("kind", "error", "error", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED");
        broker.fault("EndTxn", refused, 1);
        try (var discounts = new Discounts(broker.bootstrapServers)) {
            assertThrows(KafkaException.class, () -> discounts.work(1));
        }
        assertEquals(List.of(), discounted());
        try (var discounts = new Discounts(broker.bootstrapServers)) {
            discounts.work(1);
        }
        assertEquals(List.of("90"), discounted());
    }

    @Test
    void pricesOfYesterdayAreGone() throws Exception {
        send("100");
        broker.call("clock/advance", Map.of("hours", 25));
        send("250");
        try (var discounts = new Discounts(broker.bootstrapServers)) {
            discounts.work(1);
        }
        assertEquals(List.of("225"), discounted());
    }

    private static void send(String... prices) {
        Map<String, Object> options = Map.of("bootstrap.servers", broker.bootstrapServers);
        var strings = new StringSerializer();
        try (var producer = new KafkaProducer<>(options, strings, strings)) {
            for (var price : prices) {
                producer.send(new ProducerRecord<>("prices", price));
            }
        }
    }

    /** The committed records of the topic. */
    private static List<String> discounted() {
        var strings = new StringDeserializer();
        Map<String, Object> options = Map.of(
                "bootstrap.servers", broker.bootstrapServers, "isolation.level", "read_committed");
        try (var consumer = new KafkaConsumer<>(options, strings, strings)) {
            var partition = new TopicPartition("discounted", 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            var end = consumer.endOffsets(List.of(partition)).get(partition);
            var found = new ArrayList<String>();
            while (consumer.position(partition) < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> found.add(record.value()));
            }
            return found;
        }
    }
}
