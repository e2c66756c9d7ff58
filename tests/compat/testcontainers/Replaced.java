import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.Network;
import org.testcontainers.kafka.ConfluentKafkaContainer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** Starts the image as both Kafka containers of Java's testcontainers, writes and reads a record. */
class Replaced {
    public static void main(String[] args) throws Exception {
        DockerImageName image = DockerImageName.parse(args[0]);
        try (var kafka = new KafkaContainer(image.asCompatibleSubstituteFor("apache/kafka"))) {
            kafka.start();
            System.out.println("apache " + writtenAndRead(kafka.getBootstrapServers()));
        }
        try (var kafka = new ConfluentKafkaContainer(
                image.asCompatibleSubstituteFor("confluentinc/cp-kafka"))) {
            kafka.start();
            System.out.println("confluent " + writtenAndRead(kafka.getBootstrapServers()));
        }
        System.out.println("inside " + (seenInside(image).contains("orders") ? "orders" : "nothing"));
    }

    /** The topics that another container sees through the listener "kafka:19092". */
    private static String seenInside(DockerImageName image) throws Exception {
        try (var network = Network.newNetwork();
                var kafka = new KafkaContainer(image.asCompatibleSubstituteFor("apache/kafka"))
                        .withNetwork(network)
                        .withListener("kafka:19092");
                var other = new GenericContainer<>(image).withNetwork(network).withCommand("sleep", "300")) {
            kafka.start();
            other.start();
            writtenAndRead(kafka.getBootstrapServers());
            return other.execInContainer("tidelog", "topics", "--bootstrap-server", "kafka:19092", "list").getStdout();
        }
    }

    private static String writtenAndRead(String servers) throws Exception {
        Map<String, Object> both = Map.of("bootstrap.servers", servers);
        try (var producer = new KafkaProducer<>(both, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("orders", "key", "value")).get();
        }
        Map<String, Object> group = Map.of(
                "bootstrap.servers", servers, "group.id", "g", "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(group, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            for (int tries = 0; tries < 60; tries++) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    return record.key() + "=" + record.value();
                }
            }
        }
        return "nothing";
    }
}
