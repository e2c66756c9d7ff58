// Transactions as an application makes them, one after the other, with the settings as they come.
//
//   java TransactionLoad.java rate BOOTSTRAP TOPIC RECORDS_EACH TRANSACTIONS
//   java TransactionLoad.java copy BOOTSTRAP FROM TO RECORDS RECORD_BYTES
//
// `rate` begins, sends and commits. `copy` fills a topic, then reads it in a group (read_committed),
// sends each record on and commits records and offsets together. Prints seconds by its own clock:
// after a first tenth of the transactions, or from the first record that was read.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class TransactionLoad {
    private static final int RECORD_BYTES = 100;
    private static final Duration WAIT = Duration.ofSeconds(60);

    public static void main(String[] args) throws Exception {
        double seconds = args[0].equals("rate")
            ? rate(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]))
            : copy(args[1], args[2], args[3], Integer.parseInt(args[4]), Integer.parseInt(args[5]));
        System.out.println(seconds);
    }

    private static double rate(String bootstrap, String topic, int each, int transactions)
        throws Exception {
        byte[] value = new byte[RECORD_BYTES];
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, topic + "-rate")) {
            producer.initTransactions();
            int warmUp = transactions / 10;
            long began = 0;
            for (int n = 0; n < warmUp + transactions; n++) {
                if (n == warmUp) {
                    began = System.nanoTime();
                }
                producer.beginTransaction();
                for (int record = 0; record < each; record++) {
                    producer.send(new ProducerRecord<>(topic, value));
                }
                producer.commitTransaction();
            }
            return (System.nanoTime() - began) / 1e9;
        }
    }

    private static double copy(String bootstrap, String from, String to, int records, int bytes)
        throws Exception {
        fill(bootstrap, from, records, bytes);
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", from + "-copy");
        config.put("isolation.level", "read_committed");
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             KafkaProducer<byte[], byte[]> producer = producer(bootstrap, to + "-copy")) {
            producer.initTransactions();
            consumer.subscribe(List.of(from));
            long deadline = System.nanoTime() + WAIT.toNanos();
            long began = 0;
            int copied = 0;
            while (copied < records) {
                ConsumerRecords<byte[], byte[]> read = consumer.poll(Duration.ofMillis(200));
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(copied + " of " + records + " were copied");
                }
                if (read.isEmpty()) {
                    continue;
                }
                if (began == 0) {
                    began = System.nanoTime();
                }
                copied += pass(read, producer, to, consumer);
            }
            return (System.nanoTime() - began) / 1e9;
        }
    }

    /** One transaction of what one poll gave. */
    private static int pass(ConsumerRecords<byte[], byte[]> read, KafkaProducer<byte[], byte[]> producer,
                            String to, KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<byte[], byte[]> record : read) {
            producer.send(new ProducerRecord<>(to, record.partition(), record.key(), record.value()));
            offsets.put(new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
        return read.count();
    }

    private static void fill(String bootstrap, String topic, int records, int bytes) throws Exception {
        byte[] value = new byte[bytes];
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, null)) {
            for (int record = 0; record < records; record++) {
                sent.add(producer.send(new ProducerRecord<>(topic, value)));
            }
        }
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String transactionalId) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        if (transactionalId != null) {
            config.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }
}
