import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;

/** Kafka's own classes of remote metadata; events come and go as the hex of their records. */
final class RemoteMetadata {
    private static final RemoteLogMetadataSerde SERDE = new RemoteLogMetadataSerde();
    private static final HexFormat HEX = HexFormat.of();

    static void serve(JsonNode request, ObjectNode answer) throws Exception {
        switch (request.get("op").asText()) {
            case "remote_metadata_read" -> read(request, answer);
            case "remote_metadata_partitions" -> partitions(request, answer);
            case "remote_metadata_lineage" -> lineage(request, answer);
            case "remote_metadata_cache" -> cache(request, answer);
            default -> throw new IllegalArgumentException("unknown op " + request.get("op"));
        }
    }

    private static RemoteLogMetadata event(JsonNode hex) {
        return SERDE.deserialize(HEX.parseHex(hex.asText()));
    }

    /** What each value says, and the bytes that Kafka writes for it; null where it is unreadable. */
    private static void read(JsonNode request, ObjectNode answer) {
        ArrayNode texts = answer.putArray("texts");
        ArrayNode values = answer.putArray("values");
        for (JsonNode value : request.get("values")) {
            try {
                RemoteLogMetadata event = event(value);
                texts.add(event.toString());
                values.add(HEX.formatHex(SERDE.serialize(event)));
            } catch (RuntimeException unreadable) {
                texts.addNull();
                values.addNull();
            }
        }
    }

    private static void partitions(JsonNode request, ObjectNode answer) {
        var partitioner = new RemoteLogMetadataTopicPartitioner(request.get("count").asInt());
        ArrayNode found = answer.putArray("partitions");
        for (JsonNode each : request.get("of")) {
            Uuid topic = Uuid.fromString(each.get(0).asText());
            found.add(partitioner.metadataPartition(
                new TopicIdPartition(topic, each.get(1).asInt(), "t")));
        }
    }

    @SuppressWarnings("unchecked")
    private static void lineage(JsonNode request, ObjectNode answer) throws Exception {
        Method filter = hidden(RemoteLogManager.class, "buildFilteredLeaderEpochMap", NavigableMap.class);
        Method judge = hidden(RemoteLogManager.class, "isRemoteSegmentWithinLeaderEpochs",
            RemoteLogSegmentMetadata.class, long.class, NavigableMap.class);
        ArrayNode found = answer.putArray("found");
        for (JsonNode each : request.get("cases")) {
            var epochs = new TreeMap<Integer, Long>();
            for (JsonNode entry : each.get("epochs")) {
                epochs.put(entry.get(0).asInt(), entry.get(1).asLong());
            }
            found.add((boolean) judge.invoke(
                null, event(each.get("segment")), each.get("log_end").asLong(),
                (NavigableMap<Integer, Long>) filter.invoke(null, epochs)));
        }
    }

    /** A cache fed with events; what it answers for each (epoch, offset), and for each epoch. */
    private static void cache(JsonNode request, ObjectNode answer) throws Exception {
        Class<?> type = RemoteLogMetadataCache.class;
        RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
        hidden(type, "markInitialized").invoke(cache);
        Method add = hidden(type, "addCopyInProgressSegment", RemoteLogSegmentMetadata.class);
        Method update = hidden(type, "updateRemoteLogSegmentMetadata", RemoteLogSegmentMetadataUpdate.class);
        for (JsonNode each : request.get("events")) {
            RemoteLogMetadata event = event(each);
            try {
                (event instanceof RemoteLogSegmentMetadata ? add : update).invoke(cache, event);
            } catch (InvocationTargetException failed) {
                if (!(failed.getCause() instanceof RemoteResourceNotFoundException)) {
                    throw failed;
                }
            }
        }
        Method find = hidden(type, "remoteLogSegmentMetadata", int.class, long.class);
        ArrayNode found = answer.putArray("found");
        for (JsonNode asked : request.get("asked")) {
            Optional<?> segment =
                (Optional<?>) find.invoke(cache, asked.get(0).asInt(), asked.get(1).asLong());
            found.add(segment.map(RemoteMetadata::id).orElse(null));
        }
        Method highestOffset = hidden(type, "highestOffsetForEpoch", int.class);
        Method list = hidden(type, "listRemoteLogSegments", int.class);
        ArrayNode highest = answer.putArray("highest");
        ArrayNode listed = answer.putArray("listed");
        for (JsonNode epoch : request.get("epochs")) {
            highest.add((Long) ((Optional<?>) highestOffset.invoke(cache, epoch.asInt())).orElse(null));
            ArrayNode ids = listed.addArray();
            ((Iterator<?>) list.invoke(cache, epoch.asInt())).forEachRemaining(each -> ids.add(id(each)));
        }
    }

    private static String id(Object segment) {
        return ((RemoteLogSegmentMetadata) segment).remoteLogSegmentId().id().toString();
    }

    private static Method hidden(Class<?> owner, String name, Class<?>... parameters)
            throws NoSuchMethodException {
        Method method = owner.getDeclaredMethod(name, parameters);
        method.setAccessible(true);
        return method;
    }
}
