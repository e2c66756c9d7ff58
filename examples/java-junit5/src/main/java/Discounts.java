import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Takes ten percent off each price: from the topic "prices" to "discounted", exactly once. */
class Discounts implements AutoCloseable {
    private final KafkaConsumer<String, String> consumer;
    private final KafkaProducer<String, String> producer;

    Discounts(String servers) {
        var strings = new StringDeserializer();
        consumer = new KafkaConsumer<>(Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, servers,
                ConsumerConfig.GROUP_ID_CONFIG, "discounts",
                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
                ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed"), strings, strings);
        consumer.subscribe(List.of("prices"));
        producer = new KafkaProducer<>(Map.of(
                ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, servers,
                ProducerConfig.RETRY_BACKOFF_MS_CONFIG, 20,
                ProducerConfig.TRANSACTIONAL_ID_CONFIG, "discounts"),
                new StringSerializer(), new StringSerializer());
        producer.initTransactions();
    }

    /** Works on so many prices; those of one poll, and their offsets, are one transaction. */
    void work(int prices) {
        while (prices > 0) {
            var records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty()) {
                continue;
            }
            producer.beginTransaction();
            for (var record : records) {
                var price = Long.toString(Long.parseLong(record.value()) * 9 / 10);
                producer.send(new ProducerRecord<>("discounted", record.key(), price));
            }
            producer.sendOffsetsToTransaction(records.nextOffsets(), consumer.groupMetadata());
            producer.commitTransaction();
            prices -= records.count();
        }
    }

    @Override
    public void close() {
        producer.close();
        consumer.close();
    }
}
