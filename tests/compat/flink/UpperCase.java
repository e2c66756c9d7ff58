import java.util.Locale;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** A Flink job: committed records of a topic, in upper case, to another, exactly once, until it is killed. */
public final class UpperCase {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        String from = args[1];
        String to = args[2];
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "300ms");
        settings.setString("execution.checkpointing.dir", "file://" + args[3]);
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("execution.checkpointing.num-retained", "3");
        if (args.length > 4) {
            settings.setString("execution.state-recovery.path", "file://" + args[4]);
        }
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(from)
            .setGroupId(from + "-readers")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setProperty("isolation.level", "read_committed")
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(bootstrap)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(to)
            .setProperty("transaction.timeout.ms", "60000")
            .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                .setTopic(to)
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .build();
        StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        job.fromSource(source, WatermarkStrategy.noWatermarks(), "from")
            .map(text -> text.toUpperCase(Locale.ROOT)).returns(String.class)
            .sinkTo(sink);
        job.execute();
    }
}
